"""What a type checker makes of a program: every line is checked by mypy --strict and by pyright, strict.

Nothing here is run as a test; `test_sample.py` asks both checkers. A result without an annotation is compared
with `assert_type`, so a method that forgets its type (`Any`) is an error.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeGuard, assert_type

from penstock.streams import (
    Flux,
    Mono,
    Overflow,
    ParallelFlux,
    Retry,
    Single,
    Sink,
    SinkOne,
    Sinks,
    schedulers,
)


@dataclass(frozen=True)
class Order:
    """Something to send through a stream."""

    id: int
    item: str


class Urgent(Order):
    """A kind of Order."""


def is_urgent(order: Order) -> TypeGuard[Urgent]:
    return isinstance(order, Urgent)


def label(order: Order, name: str) -> str:
    return order.item + name


async def price(order: Order) -> float:
    return 9.5 * order.id


async def orders() -> AsyncIterator[Order]:
    yield Order(1, "tea")


def plain(flux: Flux[Order]) -> None:
    assert_type(flux.map(lambda order: order.item), Flux[str])
    assert_type(flux.filter(lambda order: order.id > 1), Flux[Order])
    assert_type(flux.filter(is_urgent), Flux[Urgent])
    assert_type(flux.of_type(Urgent), Flux[Urgent])
    assert_type(Flux.just(flux, print).filter(callable), Flux[Callable[..., object]])
    assert_type(flux.map_async(price), Flux[float])
    assert_type(flux.buffer(10), Flux[list[Order]])
    assert_type(flux.parallel(2).map(lambda order: order.id).sequential(), Flux[int])
    assert_type(flux.parallel(2).transform_rails(lambda rail: rail.buffer(2)), ParallelFlux[list[Order]])
    assert_type(flux.index(), Flux[tuple[int, Order]])
    assert_type(flux.scan(lambda total, order: total + order.id, 0), Flux[int])
    assert_type(flux.take(3).do_on_next(print).log().retry_when(Retry.backoff(3, first=0.1)), Flux[Order])
    assert_type(flux.transform(lambda stream: stream.count()), Single[int])
    assert_type(flux.timeout(1), Flux[Order])
    assert_type(flux.timeout(1, Flux.just("late")), Flux[Order | str])
    assert_type(flux.publish_on(schedulers.shared_pool()).share(), Flux[Order])


def combined(flux: Flux[Order], names: Flux[str]) -> None:
    assert_type(Flux.zip(flux, names), Flux[tuple[Order, str]])
    assert_type(Flux.zip(flux, names, [1, 2]), Flux[tuple[Order, str, int]])
    assert_type(Flux.zip(flux, names, combinator=label), Flux[str])
    assert_type(Flux.zip(*[flux, flux]), Flux[tuple[Order, ...]])
    assert_type(flux.zip_with(names), Flux[tuple[Order, str]])
    assert_type(flux.zip_with(names, lambda order, name: (name, order.id)), Flux[tuple[str, int]])
    assert_type(Flux.combine_latest(flux, names), Flux[tuple[Order, str]])
    assert_type(flux.with_latest_from(names), Flux[tuple[Order, str]])
    assert_type(flux.switch_map(lambda order: [order.id]), Flux[int])
    assert_type(Flux.merge(names, ["a", "b"]), Flux[str])
    assert_type(flux.concat_with(Flux.empty()), Flux[Order])
    assert_type(flux.start_with("first"), Flux[Order | str])
    assert_type(flux.switch_if_empty(Mono.just("none")), Flux[Order | str])
    assert_type(flux.on_error_resume(lambda error: [str(error)]), Flux[Order | str])
    assert_type(flux.then(Mono.just(1)), Single[int])
    assert_type(flux.then_many(names), Flux[str])


def split(flux: Flux[Order]) -> None:
    assert_type(flux.group_by(lambda order: order.item).map(lambda group: group.key), Flux[str])
    assert_type(flux.group_by(lambda order: order.id).flat_map(lambda group: group.count()), Flux[int])
    assert_type(flux.window(3).concat_map(lambda window: window.last()), Flux[Order])
    assert_type(flux.buffer_timeout(10, 0.5), Flux[list[Order]])
    assert_type(flux.materialize().map(lambda signal: signal.element), Flux[Order | None])
    assert_type(flux.materialize().dematerialize(), Flux[Order])
    assert_type(Flux.first_with_value(["a"], Flux.just("b")), Flux[str])


def anything_that_becomes_a_stream(flux: Flux[Order], future: Future[int]) -> None:
    assert_type(flux.flat_map(lambda order: Flux.just(order.id)), Flux[int])
    assert_type(flux.flat_map(lambda order: Mono.just(order.id)), Flux[int])
    assert_type(flux.flat_map(price), Flux[float])
    assert_type(flux.concat_map(lambda order: [order.id]), Flux[int])
    assert_type(flux.concat_map(lambda order: future), Flux[int])
    assert_type(Flux.defer(orders), Flux[Order])
    assert_type(Flux.from_async_iterable(orders), Flux[Order])
    assert_type(Mono.from_callable(lambda: 1), Mono[int])
    assert_type(Mono.defer(lambda: price(Order(1, "tea"))), Mono[float])


def covariance(urgent: Flux[Urgent], one: Mono[Urgent]) -> None:
    wider: Flux[Order] = urgent
    wider_one: Mono[Order] = one
    nothing: Flux[Order] = Flux.empty()
    broken: Mono[Order] = Mono.error(ValueError)
    plain(urgent)
    print(wider, wider_one, nothing, broken)


async def one_or_none(flux: Flux[Order], mono: Mono[Order]) -> None:
    assert_type(await mono, Order | None)
    assert_type(await mono.map(lambda order: order.id), int | None)
    assert_type(await mono.default_if_empty("nobody"), Order | str)
    assert_type(await mono.single(), Order)
    assert_type(await flux.count(), int)
    assert_type(await flux.collect_list(), list[Order])
    assert_type(await flux.collect_list().map(len).retry(2).timeout(1), int)
    assert_type(await Mono.just(1).flat_map(lambda n: Mono.just(str(n))).single(), str)
    assert_type(await Mono.just(1).zip_with(Mono.just("a")), tuple[int, str])
    assert_type(await Mono.zip(Mono.just(1), Mono.just("a")), tuple[int, str])
    assert_type(await Mono.zip(mono, Mono.just("a")), tuple[Order, str] | None)
    assert_type(await Mono.just(1).filter(lambda n: n > 0), int | None)
    assert_type(flux.first().block(), Order | None)
    assert_type(flux.single().block(), Order)
    await flux.then()


async def pushed() -> None:
    sink: Sink[Order] = Sinks.multicast()
    await sink.emit(Order(1, "tea"))
    assert_type(sink.flux(), Flux[Order])
    reply: SinkOne[str] = Sinks.one()
    reply.try_value("done")
    assert_type(reply.mono(), Mono[str])
    created: Flux[int] = Flux.create(lambda emitter: emitter.next(1), overflow=Overflow.DROP_OLDEST)
    assert_type(created, Flux[int])


async def read(flux: Flux[Order], waiting: asyncio.Queue[Order], threads: queue.Queue[str | None]) -> None:
    for each in flux:
        assert_type(each, Order)
    async with flux.stream() as elements:
        async for element in elements:
            assert_type(element, Order)
    assert_type(Flux.from_queue(waiting), Flux[Order])
    assert_type(Flux.from_queue(threads), Flux[str])
    await flux.to_queue(waiting, end=Order(0, "end"))
    flux.subscribe(lambda order: print(order.item), on_error=print).cancel()
