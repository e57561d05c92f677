"""One log, many threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import EmitResult, Flux, Sink, SinkOne, Sinks, processor, schedulers
from penstock.streams.schedulers import PoolScheduler, background_loop
from penstock.testing import race
from tests.races.racing import eventually, rounds
from tests.streams.recording import Recorder


@pytest.mark.parametrize("capacity", [1, 4, 64])
def test_multicast_with_four_emitters_gives_all_subscribers_the_same_sequence(capacity: int) -> None:
    for _ in rounds(0.4):
        sink: Sink[Any] = Sinks.multicast(capacity)
        quick = Recorder.of(sink.flux(), UNBOUNDED)
        slow = Recorder(1, lambda r, x: r.request(1))
        sink.flux().map(lambda x: x).subscribe(slow)
        race(*[lambda i=i, s=sink: [s.emit_blocking((i, k), 10) for k in range(25)] for i in range(4)])
        sink.try_complete()
        quick.wait()
        slow.wait()
        assert quick.items == slow.items
        for i in range(4):
            assert [k for j, k in quick.items if j == i] == list(range(25))


def test_multicast_waits_for_a_subscriber_that_asks_on_its_own_thread() -> None:
    for _ in rounds(0.4):
        sink: Sink[Any] = Sinks.multicast(2)
        first, second = Recorder.of(sink.flux()), Recorder.of(sink.flux())

        def read(recorder: Recorder) -> None:
            for _ in range(40):
                recorder.request(1)

        race(
            *[lambda i=i, s=sink: [s.emit_blocking((i, k), 10) for k in range(10)] for i in range(4)],
            lambda r=first: read(r),
            lambda r=second: read(r),
        )
        sink.try_complete()
        assert first.wait().items == second.wait().items
        assert sorted(first.items) == [(i, k) for i in range(4) for k in range(10)]


@pytest.mark.parametrize("kind", ["multicast", "replay"])
def test_subscribers_that_come_and_go_see_a_contiguous_run(kind: str) -> None:
    for _ in rounds(0.4):
        sink: Sink[Any] = Sinks.multicast(64) if kind == "multicast" else Sinks.replay(8)
        steady = Recorder.of(sink.flux(), UNBOUNDED)
        visitors: list[Recorder] = []

        def visit(sink: Any = sink, visitors: list[Recorder] = visitors) -> None:
            for _ in range(5):
                visitor = Recorder(UNBOUNDED, lambda r, x: r.cancel() if len(r.items) == 5 else None)
                visitors.append(visitor)
                sink.flux().subscribe(visitor)

        race(visit, visit, lambda s=sink: [s.emit_blocking(i, 10) for i in range(100)])
        sink.try_complete()
        assert steady.wait().items == list(range(100))
        for visitor in visitors:
            visitor.check()
            if visitor.items:
                first = visitor.items[0]
                assert visitor.items == list(range(first, first + len(visitor.items)))


def test_one_value_is_set_once_and_seen_by_all() -> None:
    for _ in rounds(0.5):
        sink: SinkOne[Any] = Sinks.one()
        results: list[Any] = []
        recorders = [Recorder(1) for _ in range(3)]
        race(
            *[lambda i=i, s=sink, out=results: out.append((i, s.try_value(i))) for i in range(3)],
            *[lambda r=r, s=sink: s.mono().subscribe(r) for r in recorders],
        )
        winners = [i for i, result in results if result is EmitResult.OK]
        assert len(winners) == 1
        assert all(recorder.wait().items == winners for recorder in recorders)


@pytest.mark.parametrize("history", [None, 1, 3])
def test_cache_with_concurrent_subscribers(pool: PoolScheduler, history: int | None) -> None:
    for _ in rounds(0.5):
        runs: list[int] = []
        source = (
            Flux.range(40).do_on_subscribe(lambda s, runs=runs: runs.append(1)).publish_on(pool, prefetch=3)
        )
        cached = source.cache(history)
        recorders = [Recorder(1, lambda r, x: r.request(1)) for _ in range(4)]
        race(*[lambda r=r, c=cached: c.subscribe(r) for r in recorders])
        for recorder in recorders:
            recorder.wait()
            missed = 40 - len(recorder.items)
            assert recorder.items == list(range(missed, 40))
            assert history is not None or not missed
        assert any(len(recorder.items) == 40 for recorder in recorders), "the first loses nothing"
        assert runs == [1]


def test_share_started_and_left_at_the_same_time(pool: PoolScheduler) -> None:
    for _ in rounds(0.4):
        live: list[int] = []
        source = (
            Flux.never()
            .do_on_subscribe(lambda s, live=live: live.append(1))
            .do_on_cancel(lambda live=live: live.pop())
        )
        shared = source.share()
        recorders = [Recorder(1) for _ in range(3)]
        race(*[lambda r=r, s=shared: (s.subscribe(r), r.cancel()) for r in recorders])
        eventually(lambda live=live: live == [])


class Hand:
    """A publisher that a test drives."""

    def __init__(self) -> None:
        self.requested = 0
        self.subscriber: Any = None

    def subscribe(self, subscriber: Any, /) -> None:
        self.subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        self.requested += n

    def cancel(self) -> None: ...


@pytest.mark.parametrize("kind", ["cache", "share"])
def test_a_late_reader_costs_the_others_no_element(kind: str) -> None:
    """The feeder had asked for these when the newcomer made the log full."""
    hand = Hand()
    flux = Flux.from_publisher(hand)
    flux = flux.cache(4) if kind == "cache" else flux.share(prefetch=4)
    early = Recorder.of(flux, 100)
    for i in range(4):
        hand.subscriber.on_next(i)
    late = Recorder.of(flux)
    sent = 4
    while sent < min(hand.requested, 12):
        hand.subscriber.on_next(sent)
        sent += 1
    assert early.check().items == list(range(sent))
    late.request(100)
    first = late.items[0] if late.items else sent
    assert late.check().items == list(range(first, sent))


def test_timeout_racing_with_elements_loses_none_before_the_switch_and_passes_none_after() -> None:
    with schedulers.pool(4, "clock") as clock:
        for _ in rounds(0.5):
            sink: Sink[Any] = Sinks.unicast(1000)
            recorder = Recorder.of(sink.flux().timeout(0.0005, Flux.just(-1), scheduler=clock), UNBOUNDED)
            for i in range(200):
                if sink.try_emit(i) is not EmitResult.OK:
                    break
            recorder.wait()
            assert recorder.items[-1] == -1
            assert recorder.items[:-1] == list(range(len(recorder.items) - 1))


def test_map_async_cancelled_at_any_moment() -> None:
    async def work(x: int) -> int:
        await asyncio.sleep(0)
        return x

    for _ in rounds(0.5):
        recorder = Recorder.of(Flux.range(100).map_async(work, concurrency=4))
        race(lambda r=recorder: r.request(50), recorder.cancel)
        recorder.check()
        assert recorder.items == list(range(len(recorder.items)))
        assert not recorder.terminated
    passed = threading.Event()
    background_loop().submit(passed.set)
    assert passed.wait(60)


def test_map_async_with_demand_from_many_threads() -> None:
    async def work(x: int) -> int:
        await asyncio.sleep(0)
        return x

    for _ in rounds(0.4):
        recorder = Recorder.of(Flux.range(60).map_async(work, concurrency=3))
        race(*[lambda r=recorder: [r.request(1) for _ in range(20)] for _ in range(3)])
        assert recorder.wait().items == list(range(60))


@pytest.mark.parametrize("leave_after", [1, 5, 50])
def test_an_async_window_fed_by_a_foreign_thread_and_left_early(
    pool: PoolScheduler, leave_after: int
) -> None:
    async def read(ended: list[Any]) -> list[int]:
        seen: list[int] = []
        flux = Flux.range(10_000).do_finally(ended.append).subscribe_on(pool)
        async for x in flux.to_async_iterable(prefetch=4):
            seen.append(x)
            if len(seen) == leave_after:
                break
        return seen

    for _ in rounds(0.4):
        ended: list[Any] = []
        assert asyncio.run(read(ended)) == list(range(leave_after))
        eventually(lambda ended=ended: len(ended) == 1)


def test_an_async_window_reads_everything_of_a_foreign_thread(pool: PoolScheduler) -> None:
    async def read() -> list[int]:
        return [x async for x in Flux.range(500).publish_on(pool, prefetch=2).to_async_iterable(prefetch=2)]

    for _ in rounds(0.4):
        assert asyncio.run(read()) == list(range(500))


def test_a_blocking_window_reads_everything_of_a_foreign_thread(pool: PoolScheduler) -> None:
    for _ in rounds(0.4):
        flux = Flux.range(300).publish_on(pool, prefetch=2)
        assert list(flux.to_iterable(prefetch=1)) == list(range(300))


def test_a_future_cancelled_against_its_result(pool: PoolScheduler) -> None:
    for _ in rounds(0.5):
        future = Flux.just(1).subscribe_on(pool).first().to_future()
        future.cancel()
        assert future.cancelled() or future.result(60) == 1


def test_a_waiting_emitter_whose_loop_is_gone_harms_no_subscriber() -> None:
    sink: Sink[Any] = Sinks.multicast(1)
    recorder = Recorder.of(sink.flux())

    async def emit() -> None:
        await sink.emit(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sink.emit(2), 0.01)

    asyncio.run(emit())
    recorder.request(1)
    assert recorder.check().items == [1]
    assert recorder.error is None


@pytest.mark.parametrize("kind", ["unicast", "multicast", "replay", "one", "share", "cache", "processor"])
@pytest.mark.parametrize("failing", [False, True], ids=["completes", "fails"])
def test_the_end_of_a_sink_does_not_overtake_on_subscribe(kind: str, failing: bool) -> None:
    error = OSError("gone")
    for _ in rounds(0.4):
        sink: Any = (
            Sinks.one() if kind == "one" else Sinks.replay(2) if kind == "replay" else Sinks.multicast()
        )
        if kind == "unicast":
            sink = Sinks.unicast()
        stream: Any = sink.mono() if kind == "one" else sink.flux()
        if kind in ("share", "cache"):
            stream = getattr(stream, kind)()
            Recorder.of(stream, 1)  # somebody is there already
        elif kind == "processor":
            between = processor()
            stream.subscribe(between)
            stream = Flux.from_publisher(between)
            Recorder.of(stream, 1)
        recorder = Recorder(1)

        def end(sink: Any = sink) -> None:
            if failing:
                sink.try_error(error)
            elif kind == "one":
                sink.try_empty()
            else:
                sink.try_complete()

        race(end, lambda s=stream, r=recorder: s.subscribe(r))
        recorder.wait()
        assert recorder.error is (error if failing else None)
