"""Several threaded sources into one stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import BufferOverflow, Flux, Overflow, schedulers
from penstock.streams.schedulers import PoolScheduler
from penstock.testing import race
from tests.races.racing import eventually, rounds
from tests.streams.recording import Recorder


def asking(requests: int) -> Recorder:
    return Recorder(requests, (lambda r, x: r.request(1)) if requests == 1 else None)


@pytest.mark.parametrize("requests", [1, UNBOUNDED])
@pytest.mark.parametrize("prefetch", [1, 3])
def test_merge_of_four_threaded_sources(pool: PoolScheduler, requests: int, prefetch: int) -> None:
    for _ in rounds(0.4):
        sources = [Flux.range(i * 100, 50).subscribe_on(pool) for i in range(4)]
        recorder = asking(requests)
        Flux.merge(*sources, prefetch=prefetch).subscribe(recorder)
        recorder.wait()
        for i in range(4):
            assert [x for x in recorder.items if x // 100 == i] == list(range(i * 100, i * 100 + 50))


@pytest.mark.parametrize("requests", [1, UNBOUNDED])
def test_zip_of_two_threaded_sources(pool: PoolScheduler, requests: int) -> None:
    for _ in rounds(0.5):
        recorder = asking(requests)
        left, right = Flux.range(60).subscribe_on(pool), Flux.range(50).publish_on(pool, prefetch=2)
        Flux.zip(left, right, prefetch=2).subscribe(recorder)
        recorder.wait()
        assert recorder.items == [(i, i) for i in range(50)]


@pytest.mark.parametrize("operator", ["flat_map", "flat_map_sequential", "concat_map"])
def test_inner_streams_on_other_threads(pool: PoolScheduler, operator: str) -> None:
    for _ in rounds(0.5):
        recorder = asking(1)

        def inner(x: int) -> Flux[Any]:
            return Flux.range(x * 10, 5).publish_on(pool, prefetch=1)

        getattr(Flux.range(10), operator)(inner).subscribe(recorder)
        recorder.wait()
        expected = [x * 10 + i for x in range(10) for i in range(5)]
        assert (sorted(recorder.items) if operator == "flat_map" else recorder.items) == expected


@pytest.mark.parametrize("operator", ["merge", "zip", "concat"])
def test_cancel_against_threaded_sources_cancels_all_of_them(pool: PoolScheduler, operator: str) -> None:
    for _ in rounds(0.4):
        live: list[int] = []

        def source(live: list[int] = live) -> Flux[Any]:
            return (
                Flux.range(1000)
                .do_on_subscribe(lambda s: live.append(1))
                .do_finally(lambda outcome: live.pop())
                .subscribe_on(pool)
            )

        recorder = Recorder.of(getattr(Flux, operator)(source(), source(), source()), UNBOUNDED)
        race(recorder.cancel, recorder.cancel)
        eventually(lambda live=live: live == [])
        recorder.check()


@pytest.mark.parametrize("operator", ["concat", "limit_rate", "publish_on", "retry", "share"])
def test_cancel_against_a_stage_that_asks_its_source_for_more(pool: PoolScheduler, operator: str) -> None:
    stages: dict[str, Callable[[Flux[Any]], Flux[Any]]] = {
        "concat": lambda flux: Flux.concat(flux, flux, flux),
        "limit_rate": lambda flux: flux.limit_rate(1),
        "publish_on": lambda flux: flux.publish_on(pool, prefetch=1),
        "retry": lambda flux: flux.retry(1),
        "share": lambda flux: flux.share(prefetch=1),
    }
    for _ in rounds(0.5):
        started = threading.Event()
        source = stages[operator](Flux.range(5).subscribe_on(pool)).do_on_next(lambda _, go=started: go.set())
        recorder = Recorder.of(source)

        def ask(recorder: Recorder = recorder) -> None:
            for _ in range(20):
                recorder.request(1)

        def leave(recorder: Recorder = recorder, started: threading.Event = started) -> None:
            assert started.wait(20)
            recorder.cancel()

        race(ask, leave)
        recorder.check()


def test_one_failing_source_ends_a_merge_once(
    pool: PoolScheduler, nothing_dropped: list[BaseException]
) -> None:
    for _ in rounds(0.4):
        sources = [Flux.range(20).concat_with(Flux.error(ValueError(i))).subscribe_on(pool) for i in range(3)]
        recorder = Recorder.of(Flux.merge(*sources, prefetch=2), UNBOUNDED).wait()
        assert isinstance(recorder.error, ValueError)
    assert all(isinstance(error, ValueError) for error in nothing_dropped), "the other sources' own errors"
    nothing_dropped.clear()


def test_create_from_many_threads_loses_nothing() -> None:
    for _ in rounds(0.4):
        emitters: list[Any] = []
        recorder = Recorder.of(Flux.create(emitters.append, capacity=10), UNBOUNDED)
        emitter = emitters[0]
        race(*[lambda i=i, e=emitter: [e.next((i, k)) for k in range(20)] for i in range(4)])
        emitter.complete()
        recorder.wait()
        assert sorted(recorder.items) == [(i, k) for i in range(4) for k in range(20)]
        for i in range(4):
            assert [k for j, k in recorder.items if j == i] == list(range(20))


@pytest.mark.parametrize("overflow", list(Overflow))
def test_create_from_many_threads_against_requests_and_the_end(overflow: Overflow) -> None:
    for _ in rounds(0.5):
        emitters: list[Any] = []
        recorder = Recorder.of(Flux.create(emitters.append, capacity=2, overflow=overflow))
        emitter = emitters[0]
        race(
            *[lambda i=i, e=emitter: [e.next((i, k)) for k in range(10)] for i in range(3)],
            lambda r=recorder: [r.request(1) for _ in range(10)],
        )
        emitter.complete()
        recorder.request(100)
        recorder.wait()
        assert recorder.completed or isinstance(recorder.error, BufferOverflow)
        for i in range(3):
            mine = [k for j, k in recorder.items if j == i]
            assert mine == sorted(set(mine))


def test_create_cancelled_while_it_emits_releases_once() -> None:
    for _ in rounds(0.4):
        emitters: list[Any] = []
        released: list[int] = []
        recorder = Recorder.of(Flux.create(emitters.append), UNBOUNDED)
        emitter = emitters[0]
        emitter.on_dispose(lambda released=released: released.append(1))
        race(recorder.cancel, emitter.complete, lambda e=emitter: [e.next(i) for i in range(10)])
        assert released == [1]
        recorder.check()


def test_on_dispose_against_the_end_runs_each_release_once() -> None:
    for _ in rounds(0.4):
        emitters: list[Any] = []
        released: list[int] = []
        Recorder.of(Flux.create(emitters.append), UNBOUNDED)
        emitter = emitters[0]
        race(
            emitter.complete,
            *[lambda i=i, e=emitter, out=released: e.on_dispose(lambda: out.append(i)) for i in range(3)],
        )
        assert sorted(released) == [0, 1, 2]


def test_a_stream_on_a_shared_thread_lets_others_run_however_often_it_is_asked() -> None:
    with schedulers.single("shared") as single:
        stop: list[int] = []
        greedy = Recorder(1, lambda r, x: r.cancel() if stop else r.request(1))
        Flux.generate(lambda: 0, lambda i, sink: sink.next(i) or i + 1).publish_on(single).subscribe(greedy)
        other = Recorder.of(Flux.range(3).publish_on(single), 3)
        try:
            other.wait(10)
        finally:
            stop.append(1)
        assert other.items == [0, 1, 2]
