"""Rails on many threads, with demand, cancels and errors from others at the same time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Sink, Sinks, schedulers
from penstock.streams.schedulers import PoolScheduler
from penstock.testing import race
from tests.races.racing import eventually, rounds
from tests.streams.operators.rigs import Counting, Oops
from tests.streams.recording import Recorder


def ask(recorder: Recorder, requests: int, each: int) -> None:
    for _ in range(requests):
        recorder.request(each)


@pytest.mark.parametrize("gather", ["sequential", "ordered"])
def test_nothing_is_lost_or_comes_twice_with_demand_from_two_threads(
    pool: PoolScheduler, gather: str
) -> None:
    for _ in rounds(0.6):
        total, rails = random.randrange(200), random.randrange(1, 6)
        parallel = Flux.range(total).parallel(rails).run_on(pool, prefetch=random.randrange(1, 9))
        flux = getattr(parallel.map(lambda x: x), gather)(prefetch=random.randrange(1, 9))
        recorder = Recorder.of(flux)
        race(lambda r=recorder: ask(r, 50, 2), lambda r=recorder: ask(r, 20, 5))

        items = recorder.wait().items
        assert (sorted(items) if gather == "sequential" else items) == list(range(total))


def test_nothing_is_lost_with_several_producers(pool: PoolScheduler) -> None:
    for _ in rounds(0.6):
        sink: Sink[Any] = Sinks.unicast(8)
        recorder = Recorder.of(sink.flux().parallel(3).run_on(pool, prefetch=2).sequential(), UNBOUNDED)
        race(*[lambda i=i, s=sink: [s.emit_blocking((i, k), 20) for k in range(30)] for i in range(3)])
        sink.try_complete()

        assert sorted(recorder.wait().items) == [(i, k) for i in range(3) for k in range(30)]


def test_a_cancel_at_any_moment_closes_the_source(pool: PoolScheduler) -> None:
    for _ in rounds(0.6):
        source = Counting(10_000)
        flux = Flux.from_iterable(source).parallel(3).run_on(pool, prefetch=3).map(lambda x: x).sequential()
        recorder = Recorder.of(flux)
        race(lambda r=recorder: ask(r, 20, 2), lambda r=recorder: r.cancel())

        eventually(lambda s=source: s.closed or not s.taken)
        recorder.check()
        assert not recorder.terminated


def test_the_first_of_several_errors_is_the_end(nothing_dropped: list[BaseException]) -> None:
    """Every rail fails at about the same time: one error goes down, the others are dropped at most."""

    def fail(x: int) -> int:
        raise Oops(x)

    sent: list[BaseException] = []
    with schedulers.pool(4, "failing") as pool:
        for _ in rounds(0.6):
            source = Counting(1000)
            flux = Flux.from_iterable(source).parallel(4).run_on(pool, prefetch=2).map(fail).sequential()
            recorder = Recorder.of(flux, UNBOUNDED).wait()
            eventually(lambda s=source: s.closed)
            assert isinstance(recorder.error, Oops)
            assert recorder.items == []
            sent.append(recorder.error)

    assert all(isinstance(error, Oops) for error in nothing_dropped)
    assert not set(map(id, sent)) & set(map(id, nothing_dropped))
    nothing_dropped.clear()


def test_an_error_of_the_source_against_a_cancel(nothing_dropped: list[BaseException]) -> None:
    with schedulers.pool(4, "failing") as pool:
        for _ in rounds(0.6):
            sink: Sink[Any] = Sinks.unicast(16)
            error = Oops("source")
            recorder = Recorder.of(sink.flux().parallel(3).run_on(pool, prefetch=2).sequential(), UNBOUNDED)
            sink.emit_blocking(1, 20)
            race(lambda s=sink, e=error: s.try_error(e), lambda r=recorder: r.cancel())
            recorder.check()
            assert recorder.error in (None, error)

    assert all(isinstance(error, Oops) for error in nothing_dropped)
    nothing_dropped.clear()


def test_the_end_of_the_source_against_an_error_of_a_rail(pool: PoolScheduler) -> None:
    for _ in rounds(0.6):
        sink: Sink[Any] = Sinks.unicast(16)

        def second_fails(x: int) -> int:
            if x == 2:
                raise Oops(x)
            return x

        flux = sink.flux().parallel(2).run_on(pool, prefetch=2).map(second_fails).sequential()
        recorder = Recorder.of(flux, UNBOUNDED)
        race(lambda s=sink: [s.emit_blocking(i, 20) for i in (1, 2)] and s.try_complete())

        assert isinstance(recorder.wait().error, Oops)
        assert recorder.items in ([], [1])
