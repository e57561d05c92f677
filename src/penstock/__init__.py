"""Penstock: Reactive Streams for Python, from the socket to Spark, with demand going the other way."""

from penstock.spec import Processor, Publisher, Subscriber, Subscription
from penstock.streams import Flux, Mono, Sinks

__version__ = "0.1.0"

__all__ = ["Flux", "Mono", "Processor", "Publisher", "Sinks", "Subscriber", "Subscription", "__version__"]
