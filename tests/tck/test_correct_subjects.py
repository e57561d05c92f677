"""Subjects that keep the rules pass every test: on any thread, on an event loop, in any spelling.

They are written as a user of the kit would write them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from penstock.streams import Flux, processor, schedulers
from penstock.tck import (
    CAMEL_CASE,
    RSOCKET,
    IdentityProcessorVerification,
    Probed,
    PublisherVerification,
    SubscriberBlackboxVerification,
    SubscriberWhiteboxVerification,
    WhiteboxSubscriberProbe,
)
from tests.tck.legal.publishers import MulticastPublisher, SubscribesOnAnotherThread
from tests.tck.legal.serving import FailedPublisher, RangePublisher
from tests.tck.legal.subscribers import ReferenceSubscriber
from tests.tck.subjects import (
    CamelProcessor,
    CamelPublisher,
    CamelSubscriber,
    RSocketPublisher,
    RSocketSubscriber,
    rsocket_failed_publisher,
)


class TestSynchronousPublisher(PublisherVerification):
    """A Flux of numbers works on the thread that requests them."""

    profile = "sync"
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return Flux.range(elements).map(lambda number: number * 2)

    def create_failed_publisher(self) -> Any:
        return Flux.error(OSError("no such file"))


class TestPublisherOnThreads(PublisherVerification):
    """The same Flux on two threads, which end with the test."""

    profile = "threads"
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        source, there = schedulers.single("source"), schedulers.single("there")
        self.add_cleanup(source.close)
        self.add_cleanup(there.close)
        return Flux.range(elements).subscribe_on(source).publish_on(there, prefetch=16)

    def create_failed_publisher(self) -> Any:
        there = schedulers.single("there")
        self.add_cleanup(there.close)
        return Flux.error(OSError("no such file")).publish_on(there)


class TestPublisherOnAnEventLoop(PublisherVerification):
    """A Flux from an asynchronous generator, made and asked on the event loop of the kit."""

    profile = "asyncio"
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        async def numbers() -> AsyncIterator[int]:
            for number in range(elements):
                yield number

        return Flux.from_async_iterable(numbers)

    def create_failed_publisher(self) -> Any:
        return Flux.error(OSError("no such file"))


class TestMulticastPublisher(PublisherVerification):
    """All Subscribers read one log, which makes §1.12 binding."""

    profile = "sync"
    fanout = "multicast"

    def create_publisher(self, elements: int) -> Any:
        return MulticastPublisher(elements)

    def create_failed_publisher(self) -> Any:
        return FailedPublisher()


class TestSettlesItself(PublisherVerification):
    """A subject that can say when it is done never has to be waited for."""

    def create_publisher(self, elements: int) -> Any:
        return SubscribesOnAnotherThread(elements)

    def create_failed_publisher(self) -> Any:
        return FailedPublisher()

    def settle(self) -> None:
        # One thread does everything, in order: when it gets to this, nothing is left.
        SubscribesOnAnotherThread._worker.submit(lambda: None).result(10)


class TestPublisherInCamelCase(PublisherVerification):
    """A Publisher that calls ``onNext``."""

    profile = "sync"
    spelling = CAMEL_CASE
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return CamelPublisher(RangePublisher(elements))

    def create_failed_publisher(self) -> Any:
        return CamelPublisher(FailedPublisher())


class TestPublisherOfRSocket(PublisherVerification):
    """A Publisher that calls ``on_next(value, is_complete)``."""

    profile = "sync"
    spelling = RSOCKET
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return RSocketPublisher(elements)

    def create_failed_publisher(self) -> Any:
        return rsocket_failed_publisher()


class TestSubscriberAlone(SubscriberBlackboxVerification):
    """A Subscriber that knows nothing of the kit."""

    profile = "sync"

    def create_subscriber(self) -> Any:
        return ReferenceSubscriber()


class TestSubscriberAloneOnAnEventLoop(SubscriberBlackboxVerification):
    """The same, called on an event loop."""

    profile = "asyncio"

    def create_subscriber(self) -> Any:
        return ReferenceSubscriber()


class TestSubscriberAloneInCamelCase(SubscriberBlackboxVerification):
    """A Subscriber with ``onNext``."""

    profile = "sync"
    spelling = CAMEL_CASE

    def create_subscriber(self) -> Any:
        return CamelSubscriber()


class TestSubscriberWithAProbe(SubscriberWhiteboxVerification):
    """A Subscriber that was written with the kit in mind."""

    profile = "sync"

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        return ReferenceSubscriber(probe)


class Quiet:
    """A Subscriber that leaves the asking to others."""

    def __init__(self) -> None:
        self.subscription: Any = None

    def on_subscribe(self, subscription: Any, /) -> None:
        if subscription is None:
            raise TypeError("a Subscription is needed")
        if self.subscription is not None:
            subscription.cancel()
        self.subscription = subscription

    def on_next(self, element: Any, /) -> None:
        if element is None:
            raise TypeError("None is no element")

    def on_error(self, error: Any, /) -> None:
        if error is None:
            raise TypeError("None is no error")

    def on_complete(self) -> None:
        pass


class TestSubscriberBesideAProbe(SubscriberWhiteboxVerification):
    """A Subscriber that was not, with the probe put beside it."""

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        return Probed(Quiet(), probe)


class TestSubscriberOfRSocket(SubscriberWhiteboxVerification):
    """A Subscriber with ``on_next(value, is_complete)``."""

    profile = "sync"
    spelling = RSOCKET

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        return RSocketSubscriber(probe)


class TestProcessor(IdentityProcessorVerification):
    """The processor of penstock.streams serves any number of Subscribers."""

    profile = "sync"
    fanout = "multicast"

    def create_identity_processor(self, buffer_size: int) -> Any:
        return processor(capacity=buffer_size)

    def create_failed_publisher(self) -> Any:
        relay = processor()
        Flux.error(OSError("no such file")).subscribe(relay)
        return relay


class TestProcessorInCamelCase(IdentityProcessorVerification):
    """A Processor with ``onNext``."""

    profile = "sync"
    spelling = CAMEL_CASE

    def create_identity_processor(self, buffer_size: int) -> Any:
        return CamelProcessor(buffer_size)
