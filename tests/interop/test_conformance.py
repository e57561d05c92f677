"""Every bridge, and the ways between asyncio and streams that need none, pass the conformance kit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import reactivex
from reactivex.scheduler import NewThreadScheduler

from penstock.interop.reactivex_bridge import from_observable, to_observable
from penstock.interop.rsocket_bridge import from_rsocket, to_rsocket, to_rsocket_subscriber
from penstock.streams import Flux, Overflow
from penstock.tck import RSOCKET, PublisherVerification
from tests.interop.rsocket_publishers import payload, stream_from_async_generator, stream_from_generator
from tests.patient_kit import PATIENT

FAILED = ValueError("failed from the start")
FAILS_LATER = ("optional_spec104", "required_spec109_may_reject")
"""For what is not begun before there is demand: it cannot fail at once."""
LONGEST = 10_000
"""An Observable cannot wait: it must fit into the buffer."""


def observed(observable: Any) -> Flux[Any]:
    return from_observable(observable, overflow=Overflow.ERROR, capacity=LONGEST)


def refuse() -> Any:
    # A new one each time: its traceback refers to whoever subscribed.
    raise ValueError("failed from the start")


class TestObservable(PublisherVerification):
    environment = PATIENT
    profile = "sync"
    max_elements_from_publisher = LONGEST
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return observed(reactivex.range(0, elements))

    def create_failed_publisher(self) -> Any:
        return observed(reactivex.throw(FAILED))


class TestObservableOnAThread(PublisherVerification):
    environment = PATIENT
    max_elements_from_publisher = LONGEST
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return observed(reactivex.from_iterable(range(elements), scheduler=NewThreadScheduler()))

    def create_failed_publisher(self) -> Any:
        return observed(reactivex.throw(FAILED, scheduler=NewThreadScheduler()))


class TestObservableThatDrops(PublisherVerification):
    """With a callback for what is given up, there are two stages."""

    environment = PATIENT
    profile = "sync"
    max_elements_from_publisher = LONGEST

    def create_publisher(self, elements: int) -> Any:
        return from_observable(
            reactivex.range(0, elements),
            overflow=Overflow.DROP_OLDEST,
            capacity=LONGEST,
            on_dropped=lambda element: None,
        )

    def create_failed_publisher(self) -> Any:
        return from_observable(reactivex.throw(FAILED), overflow=Overflow.DROP_OLDEST, on_dropped=print)


class TestFluxToObservableAndBack(PublisherVerification):
    environment = PATIENT
    profile = "sync"
    max_elements_from_publisher = LONGEST
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return observed(to_observable(Flux.range(elements), prefetch=16))

    def create_failed_publisher(self) -> Any:
        return observed(to_observable(Flux.error(FAILED)))


class TestRSocketStream(PublisherVerification):
    environment = PATIENT
    profile = "asyncio"
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return from_rsocket(lambda: stream_from_generator(elements))

    def create_failed_publisher(self) -> Any:
        return from_rsocket(refuse)


class TestRSocketAsyncStream(PublisherVerification):
    environment = PATIENT
    profile = "asyncio"
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return from_rsocket(lambda: stream_from_async_generator(elements), prefetch=4)

    def create_failed_publisher(self) -> Any:
        return from_rsocket(refuse)


class TestRSocketStreamOnTheLoopOfThePackage(PublisherVerification):
    """Whoever has no event loop gets one on a thread."""

    environment = PATIENT
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return from_rsocket(lambda: stream_from_generator(elements))

    def create_failed_publisher(self) -> Any:
        return from_rsocket(refuse)


class TestRSocketStreamForOneSubscriber(PublisherVerification):
    environment = PATIENT
    profile = "asyncio"
    max_supported_subscribers = 1

    def create_publisher(self, elements: int) -> Any:
        return from_rsocket(stream_from_generator(elements))

    def create_failed_publisher(self) -> Any:
        return from_rsocket(to_rsocket(Flux.error(FAILED)))


class TestFluxToRSocket(PublisherVerification):
    environment = PATIENT
    profile = "asyncio"
    spelling = RSOCKET
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return to_rsocket(Flux.range(elements).map(payload))

    def create_failed_publisher(self) -> Any:
        return to_rsocket(Flux.error(FAILED))


class TestFluxToRSocketAndBack(PublisherVerification):
    environment = PATIENT
    profile = "asyncio"
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        flux = Flux.range(elements).map(payload)
        return from_rsocket(lambda: to_rsocket(flux, prefetch=8), prefetch=8)

    def create_failed_publisher(self) -> Any:
        return from_rsocket(lambda: to_rsocket(Flux.error(FAILED)))


class TestFluxToRSocketWithoutALoop(PublisherVerification):
    environment = PATIENT
    profile = "sync"
    spelling = RSOCKET
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return to_rsocket(Flux.range(elements).map(payload))

    def create_failed_publisher(self) -> Any:
        return to_rsocket(Flux.error(FAILED))


class _SubscribedByHand:
    """A Publisher of ours that shows our Subscriber to rsocket-py."""

    def __init__(self, flux: Flux[Any]) -> None:
        self._flux = flux

    def subscribe(self, subscriber: Any) -> None:
        theirs = to_rsocket(self._flux)
        theirs.subscribe(None if subscriber is None else to_rsocket_subscriber(subscriber))


class TestSubscriberShownToRSocket(PublisherVerification):
    environment = PATIENT
    profile = "asyncio"
    fanout = "unicast"

    def create_publisher(self, elements: int) -> Any:
        return _SubscribedByHand(Flux.range(elements).map(payload))

    def create_failed_publisher(self) -> Any:
        return _SubscribedByHand(Flux.error(FAILED))


async def numbers(elements: int) -> AsyncIterator[int]:
    for number in range(elements):
        if number % 3 == 0:
            await asyncio.sleep(0)
        yield number


class TestAsyncIterable(PublisherVerification):
    environment = PATIENT
    profile = "asyncio"
    fanout = "unicast"
    expected_skips = FAILS_LATER

    def create_publisher(self, elements: int) -> Any:
        return Flux.from_async_iterable(lambda: numbers(elements))


class TestAsyncIterableFromAThread(PublisherVerification):
    environment = PATIENT
    fanout = "unicast"
    expected_skips = FAILS_LATER

    def create_publisher(self, elements: int) -> Any:
        return Flux.from_async_iterable(lambda: numbers(elements))


class TestFluxToAsyncIterableAndBack(PublisherVerification):
    environment = PATIENT
    profile = "asyncio"
    fanout = "unicast"
    expected_skips = FAILS_LATER

    def create_publisher(self, elements: int) -> Any:
        flux = Flux.range(elements)
        return Flux.from_async_iterable(lambda: flux.to_async_iterable(prefetch=8))


class TestIterableToAsyncIterableAndBack(PublisherVerification):
    """The same without a queue: a stream over an iterable is stepped through directly."""

    environment = PATIENT
    profile = "asyncio"
    fanout = "unicast"
    expected_skips = FAILS_LATER

    def create_publisher(self, elements: int) -> Any:
        def count() -> Iterator[int]:
            yield from range(elements)

        return Flux.from_async_iterable(lambda: aiter(Flux.defer(lambda: Flux.from_iterable(count()))))
