"""Tools for the tests of streams: a step verifier, virtual time, marbles.

>>> from penstock.streams import Flux
>>> _ = verify(Flux.range(1, 3)).request(2).next(1, 2).request(1).next(3).complete()
>>> _ = verify(Flux.interval(0.02).take(2)).marble("--0-(1|)")
"""

from penstock.testing.dropped import DroppedSignals
from penstock.testing.examples import MarbleExample, marble_examples
from penstock.testing.leaks import OpenStreams
from penstock.testing.marbles import Marble, MarbleError, MarbleSignal, marble
from penstock.testing.publishers import PublisherProbe, TestPublisher
from penstock.testing.race import race
from penstock.testing.subscriber import SeenSignal, TestSubscriber
from penstock.testing.verifier import ExpectationFailed, Verifier, verify
from penstock.testing.virtual_time import VirtualLoop, virtual_time

__all__ = [
    "DroppedSignals",
    "ExpectationFailed",
    "Marble",
    "MarbleError",
    "MarbleExample",
    "MarbleSignal",
    "OpenStreams",
    "PublisherProbe",
    "SeenSignal",
    "TestPublisher",
    "TestSubscriber",
    "Verifier",
    "VirtualLoop",
    "marble",
    "marble_examples",
    "race",
    "verify",
    "virtual_time",
]
