"""Every operator in a shape whose output is known, so that the kit can verify it as a Publisher.

An entry gives, for a number of elements, a stream of exactly that many elements that has gone through the
operator. Where an operator makes one element of many, only streams of 0 and 1 can be made.
"""

from __future__ import annotations

import queue
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

from penstock.streams import Flux, Mono, Sink, Sinks, schedulers

POOL = schedulers.shared_pool()
SINGLE = schedulers.shared_single()


class Fails(Exception):
    """What a failing source fails with."""


@dataclass(frozen=True)
class Shape:
    """How to make a stream of ``elements`` elements with an operator in it."""

    create: Callable[[int], Any]
    failed: Callable[[], Any] | None = None
    profile: Literal["sync", "threads"] = "sync"
    most: int | None = None
    fanout: Literal["unicast", "multicast"] | None = "unicast"


def identity(x: Any) -> Any:
    return x


async def awaited(x: Any) -> Any:
    return x


def through(operator: Callable[[Any], Any], **settings: Any) -> Shape:
    """An operator that lets all elements, and errors, of a Flux through."""
    return Shape(lambda n: operator(Flux.range(n)), lambda: operator(Flux.error(Fails)), **settings)


def recovering(operator: Callable[[Any], Any], **settings: Any) -> Shape:
    """An operator that lets all elements through, but no error."""
    return Shape(lambda n: operator(Flux.range(n)), None, **settings)


def folding(operator: Callable[[Any], Any], **settings: Any) -> Shape:
    """An operator that makes one element of all; for an empty stream that one is left out below it."""

    def create(n: int) -> Any:
        one = operator(Flux.just(1, 1, 1))
        return one if n else one.filter(lambda _: False)

    return Shape(create, lambda: operator(Flux.error(Fails)), most=1, **settings)


def single(operator: Callable[[Any], Any], *, recovers: bool = False, **settings: Any) -> Shape:
    """An operator of a Mono that lets its element through."""
    failed = None if recovers else (lambda: operator(Mono.error(Fails)))
    return Shape(lambda n: operator(Mono.just(n) if n else Mono.empty()), failed, most=1, **settings)


def threads(shape: Shape) -> Shape:
    return Shape(shape.create, shape.failed, "threads", shape.most, shape.fanout)


async def numbers(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


def queued(n: int) -> queue.Queue[Any]:
    """A queue with ``n`` numbers and the end."""
    made: queue.Queue[Any] = queue.Queue()
    for element in [*range(n), None]:
        made.put(element)
    return made


def settled(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def emitted(n: int) -> Any:
    return Flux.create(
        lambda emitter: ([emitter.next(i) for i in range(n)], emitter.complete()), capacity=20_000
    )


def counting(state: int, sink: Any, upto: int) -> int:
    if state < upto:
        sink.next(state)
    if state + 1 >= upto:
        sink.complete()
    return state + 1


class Foreign:
    """A publisher of somebody else's."""

    def __init__(self, flux: Any) -> None:
        self._flux = flux

    def subscribe(self, subscriber: Any) -> None:
        self._flux.subscribe(subscriber)


class Prompted:
    """A stream over a source that cannot be slowed down, which happens to emit just what was asked for."""

    def __init__(self, operator: Callable[[Any], Any], elements: int) -> None:
        self._operator = operator
        self._elements = elements

    def subscribe(self, subscriber: Any) -> None:
        sink: Sink[Any] = Sinks.unicast(20_000)
        stream = self._operator(sink.flux())
        stream.subscribe(None if subscriber is None else _Prompting(subscriber, sink, self._elements))


class _Prompting:
    def __init__(self, subscriber: Any, sink: Any, elements: int) -> None:
        self._subscriber = subscriber
        self._sink = sink
        self._left = list(range(elements))[::-1]
        self._subscription: Any = None

    def on_subscribe(self, subscription: Any) -> None:
        self._subscription = subscription
        self._subscriber.on_subscribe(self)
        self._emit(0)

    def on_next(self, element: Any) -> None:
        if self._subscriber is not None:
            self._subscriber.on_next(element)

    def on_error(self, error: BaseException) -> None:
        self._forget().on_error(error)

    def on_complete(self) -> None:
        self._forget().on_complete()

    def request(self, n: Any) -> None:
        self._subscription.request(n)
        if self._subscriber is not None:
            self._emit(n)

    def cancel(self) -> None:
        self._forget()
        self._subscription.cancel()

    def _emit(self, n: int) -> None:
        for _ in range(min(n, len(self._left))):
            self._sink.try_emit(self._left.pop())
        if not self._left:
            self._sink.try_complete()

    def _forget(self) -> Any:
        subscriber, self._subscriber = self._subscriber, None
        return subscriber


def ticking(operator: Callable[[Any], Any]) -> Shape:
    """An operator that drops elements by time, over a source that has more of them."""
    return Shape(
        lambda n: operator(Flux.interval(0.0005)).take(n), lambda: operator(Flux.error(Fails)), most=100
    )


def prompted(operator: Callable[[Any], Any]) -> Shape:
    return Shape(lambda n: Prompted(operator, n), lambda: operator(Flux.error(Fails)))


def filled(sink: Any, n: int) -> Any:
    for i in range(n):
        sink.try_emit(i)
    sink.try_complete()
    return sink.flux()


class FilledAfterwards:
    """A sink that keeps nothing for those who are not there: it is filled when its subscriber has come."""

    def __init__(self, elements: int) -> None:
        self._elements = elements

    def subscribe(self, subscriber: Any) -> None:
        sink: Any = Sinks.best_effort(20_000)
        sink.flux().subscribe(subscriber)
        filled(sink, self._elements)
