"""Loops over records of a megabyte: what they read ahead is bounded in bytes, and nothing is lost by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from penstock.aquifer import AquiferPublisher, AquiferSubscription, Gateway, MemoryJournal
from penstock.streams import Flux, schedulers
from penstock.streams.schedulers import Scheduler
from tests.aquifer.faults.rigs import ANYWHERE, eventually, set_patience

LARGE = 1 << 20
COUNT = 60
"""More than any of these readers may hold, and fewer than a loop asks for at first."""
MOST = 8
"""A bound of 256 KiB, with the records that exceed it, in two queues one behind the other."""


def record(number: int, size: int = LARGE) -> bytes:
    return number.to_bytes(4, "big") * (size // 4)


def number_of(value: Any) -> int:
    return int.from_bytes(getattr(value, "value", value)[:4], "big")


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    source = Flux.range(0, COUNT).map(record)
    with Gateway(source, ANYWHERE, journal=MemoryJournal()) as gateway:
        eventually(lambda: gateway.status().head == COUNT)
        yield gateway


def everything_else_is_read(gateway: Gateway) -> None:
    """Another reader gets everything. By then one that reads too far ahead has done so."""
    other = AquiferPublisher(gateway.endpoint, start="earliest").flux()
    assert [number_of(each) for each in other.to_iterable(prefetch=2)] == list(range(COUNT))


def delivered(publisher: AquiferPublisher) -> int:
    return sum(metrics.records for metrics in publisher.metrics())


SHAPES: dict[str, Callable[[Flux[Any], Scheduler], Flux[Any]]] = {
    "alone": lambda flux, _: flux,
    "map": lambda flux, _: flux.map(lambda each: each),
    "publish_on": lambda flux, scheduler: flux.publish_on(scheduler),
    "merge": lambda flux, _: flux.merge_with(Flux.empty()),
    "flat_map": lambda flux, _: Flux.just(flux).flat_map(lambda each: each),
    "concat_map": lambda flux, _: Flux.just(flux).concat_map(lambda each: each),
    "parallel": lambda flux, _: flux.parallel(2).map(lambda each: each).ordered(key=number_of),
    "subscribe_on": lambda flux, scheduler: flux.subscribe_on(scheduler),
    "group_by": lambda flux, _: flux.group_by(lambda each: 0).flat_map(lambda group: group),
}


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    """One of our own: the threads of the shared pool stay, and other tests wait until no thread is left."""
    with schedulers.single() as scheduler:
        yield scheduler


@pytest.mark.parametrize("settings", [{}, {"records": True}, {"dialect": "plain"}], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_loop_holds_a_few_large_records(
    gateway: Gateway, scheduler: Scheduler, shape: str, settings: dict[str, Any]
) -> None:
    publisher = AquiferPublisher(gateway.endpoint, start="earliest", **settings)
    elements = iter(SHAPES[shape](publisher.flux(), scheduler))
    first = next(elements)
    everything_else_is_read(gateway)
    assert delivered(publisher) <= 1 + MOST
    assert [number_of(each) for each in (first, *elements)] == list(range(COUNT))


def test_a_coroutine_holds_a_few_large_records(gateway: Gateway) -> None:
    publisher = AquiferPublisher(gateway.endpoint, start="earliest")

    async def read() -> list[int]:
        elements: AsyncIterator[bytes] = aiter(publisher.flux())
        first = await anext(elements)
        await asyncio.to_thread(everything_else_is_read, gateway)
        assert delivered(publisher) <= 1 + MOST
        return [number_of(first), *[number_of(each) async for each in elements]]

    assert asyncio.run(read()) == list(range(COUNT))


def test_a_member_of_a_group_holds_a_few_large_records_of_all_its_partitions(gateway: Gateway) -> None:
    publisher = AquiferPublisher(gateway.endpoint, group="team", start="earliest")
    with_one = iter(publisher.flux())
    first = next(with_one)
    everything_else_is_read(gateway)
    assert delivered(publisher) <= 1 + MOST
    assert sorted(number_of(each) for each in (first, *with_one)) == list(range(COUNT))


def test_small_records_are_read_ahead_in_lists_until_large_ones_come() -> None:
    sizes = [100] * 1000 + [LARGE] * 40 + [100] * 1000
    source = Flux.from_iterable(enumerate(sizes)).map(lambda each: record(*each))
    with Gateway(source, ANYWHERE, journal=MemoryJournal()) as gateway:
        eventually(lambda: gateway.status().head == len(sizes))
        publisher = AquiferPublisher(gateway.endpoint, start="earliest")
        elements = iter(publisher.flux())
        seen = [number_of(each) for each in islice(elements, 1001)]
        list(AquiferPublisher(gateway.endpoint, start="earliest").flux().to_iterable(prefetch=2))
        assert delivered(publisher) <= 1001 + MOST
        seen += [number_of(each) for each in elements]
    assert seen == list(range(len(sizes)))


def test_a_number_that_the_user_gives_counts_records_whatever_their_size(gateway: Gateway) -> None:
    publisher = AquiferPublisher(gateway.endpoint, start="earliest")
    elements = iter(publisher.flux().to_iterable(prefetch=COUNT))
    next(elements)
    eventually(lambda: delivered(publisher) == COUNT)
    assert [number_of(each) for each in elements] == list(range(1, COUNT))


def test_a_loop_that_is_left_while_it_is_full_lets_the_subscription_end(gateway: Gateway) -> None:
    publisher = AquiferPublisher(gateway.endpoint, start="earliest")
    elements = publisher.flux().to_iterable()
    reading = iter(elements)
    next(reading)
    everything_else_is_read(gateway)
    reading.close()  # type: ignore[attr-defined]
    eventually(lambda: not [each for each in threading.enumerate() if each.name == "penstock-aquifer"])


def test_what_was_requested_comes_before_the_error_of_a_lost_gateway() -> None:
    source = Flux.range(0, 4).map(record).concat_with(Flux.never())
    with Gateway(source, ANYWHERE, journal=MemoryJournal()) as gateway:
        publisher = AquiferPublisher(gateway.endpoint, start="earliest")
        elements = iter(publisher.flux())
        seen = [number_of(next(elements))]
        eventually(lambda: publisher.metrics()[0].next == 4)
        (subscription,) = publisher._subscriptions
        set_patience(subscription, 0.2)
    with pytest.raises(Exception, match="gateway") as lost:  # noqa: PT012 - it comes after the records
        for each in elements:
            seen.append(number_of(each))
    assert seen == [0, 1, 2, 3], lost.value


def test_resume_is_heard_from_any_thread_and_after_the_end(gateway: Gateway) -> None:
    got: list[int] = []
    over = threading.Event()
    stopped = threading.Event()

    class Pausing:
        subscription: AquiferSubscription

        def on_subscribe(self, subscription: AquiferSubscription, /) -> None:
            self.subscription = subscription
            subscription.request(COUNT)

        def expect_large(self, step: int) -> bool:
            return True

        def on_next(self, element: bytes, /) -> None:
            got.append(number_of(element))
            self.subscription.pause()
            stopped.set()

        def on_error(self, error: BaseException, /) -> None:
            raise AssertionError from error

        def on_complete(self) -> None:
            over.set()

    subscriber = Pausing()
    AquiferPublisher(gateway.endpoint, start="earliest").subscribe(subscriber)  # type: ignore[arg-type]
    for already in range(COUNT):
        assert stopped.wait(60)
        assert len(got) == already + 1
        assert subscriber.subscription.size_of_one() in range(LARGE, LARGE + 1000)
        stopped.clear()
        subscriber.subscription.resume()
    assert over.wait(60)
    subscriber.subscription.resume()
    assert got == list(range(COUNT))
