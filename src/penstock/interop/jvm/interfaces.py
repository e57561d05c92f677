"""The two families of Java interfaces, and the conversions between them and Python's."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from penstock.interop.jvm.machine import has_interface
from penstock.interop.jvm.wrappers import (
    JavaClasses,
    JavaProcessor,
    JavaPublisher,
    JavaSubscriber,
    java_classes,
)
from penstock.spec import Processor, Publisher, Subscriber, Subscription, check_publisher, check_subscriber

__all__ = ["JavaInterfaces", "flow", "from_java", "reactive_streams"]


class JavaInterfaces:
    """One family of the four interfaces in Java. There are two: ``flow`` and ``reactive_streams``.

    Each method takes an object of Python and gives one that Java sees as its own, with the same behaviour,
    for calls of Java methods. What came from Java in the first place is given back as it was.
    """

    def __init__(self, prefix: str) -> None:
        """Name the family by what comes before ``Publisher`` in its Java names."""
        self._prefix = prefix

    def __repr__(self) -> str:
        """The family by its Java name."""
        return f"<Java interfaces {self._prefix}*>"

    def name(self, interface: str) -> str:
        """The full Java name of ``Publisher``, ``Subscriber``, ``Subscription`` or ``Processor``."""
        return self._prefix + interface

    def has(self, interface: str, candidate: object) -> bool:
        """Whether a Java object implements one of the four."""
        return has_interface(candidate, self.name(interface))

    def publisher(self, publisher: Publisher[Any]) -> Any:
        """A Python Publisher (a Flux, a Mono, any other) as a Java ``Publisher``."""
        check_publisher(publisher)
        return self._given_by_java("Publisher", publisher) or self._classes.publisher(publisher)

    def subscriber(self, subscriber: Subscriber[Any]) -> Any:
        """A Python Subscriber as a Java ``Subscriber``."""
        check_subscriber(subscriber)
        return self._given_by_java("Subscriber", subscriber) or self._classes.subscriber(subscriber)

    def processor(self, processor: Processor[Any, Any]) -> Any:
        """A Python Processor as a Java ``Processor``."""
        check_subscriber(processor)
        check_publisher(processor)
        return self._given_by_java("Processor", processor) or self._classes.processor(processor)

    def subscription(self, subscription: Subscription | None) -> Any:
        """A Python Subscription as a Java one; ``None`` becomes null, which the receiver refuses."""
        return None if subscription is None else self._classes.subscription(subscription)

    def _given_by_java(self, interface: str, candidate: object) -> Any:
        if isinstance(candidate, JavaSubscriber | JavaPublisher) and self.has(interface, candidate.java):
            return candidate.java
        return None

    @cached_property
    def _classes(self) -> JavaClasses:
        return java_classes(self)


flow = JavaInterfaces("java.util.concurrent.Flow$")
"""The interfaces of the JDK: ``java.util.concurrent.Flow.Publisher`` and so on."""

reactive_streams = JavaInterfaces("org.reactivestreams.")
"""The interfaces of the library ``org.reactivestreams:reactive-streams``; start() needs its jar."""


def from_java(java: Any) -> Any:
    """A Java Publisher, Subscriber or Processor, of either family, as one of Python.

    >>> flux = Flux.from_publisher(from_java(java_publisher))               # doctest: +SKIP
    >>> flux.map(str.upper).subscribe(from_java(java_subscriber))           # doctest: +SKIP

    What came from Python in the first place is given back as it was.
    """
    for interfaces in (flow, reactive_streams):
        for interface, kind in (
            ("Processor", JavaProcessor),
            ("Publisher", JavaPublisher),
            ("Subscriber", JavaSubscriber),
        ):
            if isinstance(java, getattr(interfaces._classes, interface.lower())):
                return java.python
            if interfaces.has(interface, java):
                return kind(java, interfaces)
    raise TypeError(
        f"{java!r} is not a Java Publisher, Subscriber or Processor, neither of java.util.concurrent.Flow "
        "nor of org.reactivestreams (whose jar must be on the class path: see start())"
    )
