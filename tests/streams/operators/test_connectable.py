"""``publish``, ``replay``, ``cache(ttl)``: one run, and when it starts, stops and is forgotten."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import ConnectableFlux, Disconnected, Flux, Mono, schedulers
from tests.streams.operators.rigs import Elsewhere, result
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


@pytest.fixture
def source() -> Driven:
    return Driven()


# ---------------------------------------------------------------- connect


def test_nothing_runs_before_connect(source: Driven) -> None:
    published = source.flux().publish()
    a, b = Recorder.of(published, first=9), Recorder.of(published, first=9)
    assert source.subscriptions == 0

    run = published.connect()
    source.emit(1, 2).complete()

    assert a.check().items == b.check().items == [1, 2]
    assert a.completed
    assert b.completed
    assert run.done
    assert source.subscriptions == 1


def test_connect_again_is_the_same_run(source: Driven) -> None:
    published = source.flux().publish()

    assert published.connect() is published.connect()
    assert source.subscriptions == 1


def test_after_the_end_a_new_run_waits_for_the_next_connect(source: Driven) -> None:
    published = source.flux().publish()
    published.connect()
    source.complete()
    late = Recorder.of(published, first=9)
    assert not late.terminated

    published.connect()
    source.emit("fresh")

    assert (source.subscriptions, late.check().items) == (2, ["fresh"])


def test_without_subscribers_nothing_is_asked_for(source: Driven) -> None:
    source.flux().publish().connect()

    assert source.requests == []


def test_a_cancelled_run_fails_its_subscribers(source: Driven) -> None:
    published = source.flux().publish()
    recorder = Recorder.of(published, first=9)
    run = published.connect()
    source.emit(1)
    run.cancel()
    run.cancel()

    assert source.cancels == 1
    assert recorder.items == [1]
    assert isinstance(recorder.check().error, Disconnected)


def test_an_operator_below_makes_it_a_plain_flux() -> None:
    published = Flux.range(3).publish()
    assert isinstance(published, ConnectableFlux)

    assert type(published.map(lambda x: x)) is Flux


def test_one_slow_subscriber_of_a_shared_stream(source: Driven) -> None:
    """It bounds how far the source is ahead, and holds up nobody for what is already there."""
    published = source.flux().publish(prefetch=4)
    quick, slow = Recorder.of(published, first=UNBOUNDED), Recorder.of(published)
    published.connect()
    assert source.requests == [4]
    source.emit(1, 2, 3, 4)
    assert quick.items == [1, 2, 3, 4]
    assert sum(source.requests) == 4, "the slow one is four behind, so the source waits"

    slow.request(3)
    assert slow.items == [1, 2, 3]
    assert sum(source.requests) == 7
    slow.cancel()
    source.emit(5, 6, 7)

    assert quick.check().items == [1, 2, 3, 4, 5, 6, 7]
    assert sum(source.requests) > 7, "nobody has to be waited for any more"


# ---------------------------------------------------------------- auto_connect


def test_the_nth_subscriber_starts_it(source: Driven) -> None:
    shared = source.flux().publish().auto_connect(2)
    a = Recorder.of(shared, first=9)
    assert source.subscriptions == 0
    b = Recorder.of(shared, first=9)
    source.emit(1)

    assert a.items == b.items == [1]


def test_auto_connect_goes_on_without_subscribers_and_runs_once(source: Driven) -> None:
    shared = source.flux().publish().auto_connect()
    Recorder.of(shared, first=1).cancel()
    assert source.cancels == 0
    source.complete()

    late = Recorder.of(shared, first=9)

    assert late.completed, "not a wait for a connect() that never comes"
    assert source.subscriptions == 1


def test_zero_subscribers_connect_at_once(source: Driven) -> None:
    source.flux().publish().auto_connect(0)

    assert source.subscriptions == 1


# ---------------------------------------------------------------- ref_count


def test_ref_count_starts_with_n_and_stops_with_none(source: Driven) -> None:
    shared = source.flux().publish().ref_count(2)
    a = Recorder.of(shared, first=9)
    assert source.subscriptions == 0
    b = Recorder.of(shared, first=9)
    assert source.subscriptions == 1
    a.cancel()
    assert source.cancels == 0
    b.cancel()
    assert source.cancels == 1

    Recorder.of(shared, first=9)
    assert source.subscriptions == 1
    Recorder.of(shared, first=9)
    assert source.subscriptions == 2


def test_subscribers_that_left_before_the_start_do_not_count(source: Driven) -> None:
    shared = source.flux().publish().ref_count(2)
    Recorder.of(shared, first=9).cancel()
    Recorder.of(shared, first=9)

    assert source.subscriptions == 0


def test_in_the_time_of_grace_a_subscriber_may_come_back(source: Driven) -> None:
    clock = schedulers.virtual_time()
    shared = source.flux().publish().ref_count(1, grace=10, scheduler=clock)
    Recorder.of(shared, first=9).cancel()
    clock.advance_by(9)
    assert source.cancels == 0
    back = Recorder.of(shared, first=9)
    clock.advance_by(100)
    source.emit("same run")
    assert (source.cancels, source.subscriptions, back.items) == (0, 1, ["same run"])

    back.cancel()
    clock.advance_by(10)

    assert source.cancels == 1
    assert clock.pending == 0


def test_each_departure_has_its_own_time_of_grace(source: Driven) -> None:
    clock = schedulers.virtual_time()
    shared = source.flux().publish().ref_count(1, grace=10, scheduler=clock)
    for _ in range(3):
        Recorder.of(shared, first=9).cancel()
        clock.advance_by(9)

    assert source.cancels == 0
    clock.advance_by(1)
    assert source.cancels == 1


def test_a_closed_scheduler_ends_the_time_of_grace(source: Driven) -> None:
    clock = schedulers.virtual_time()
    shared = source.flux().publish().ref_count(1, grace=10, scheduler=clock)
    Recorder.of(shared, first=9).cancel()
    clock.close()
    assert source.cancels == 1

    Recorder.of(shared, first=9).cancel()
    assert source.cancels == 2


def test_ref_count_runs_again_after_the_end() -> None:
    runs: list[int] = []
    shared = Flux.defer(lambda: runs.append(1) or Flux.range(3)).publish().ref_count()

    assert result(shared) == result(shared) == [0, 1, 2]
    assert len(runs) == 2


def test_an_error_reaches_all(source: Driven) -> None:
    shared = source.flux().publish().ref_count()
    a, b, error = Recorder.of(shared, first=9), Recorder.of(shared), ValueError("x")
    source.emit(1).fail(error)
    assert a.error is error
    b.request(1)

    assert (b.check().items, b.error) == ([1], error)


def test_a_cancel_inside_on_subscribe_leaves_nothing_behind(source: Driven) -> None:
    class Leaving(Recorder):
        def on_subscribe(self, subscription: Any, /) -> None:
            super().on_subscribe(subscription)
            self.cancel()

    shared = source.flux().publish().ref_count()
    shared.subscribe(Leaving())
    assert source.subscriptions == source.cancels

    stays = Recorder.of(shared, first=9)
    source.emit(1)
    assert stays.items == [1]


def test_many_threads_come_and_go() -> None:
    source = Flux.range(100)
    shared = source.publish(prefetch=8).ref_count()

    def read(recorders: list[Recorder]) -> None:
        for _ in range(50):
            recorder = Recorder(UNBOUNDED)
            shared.subscribe(recorder)
            recorders.append(recorder.wait())

    recorders: list[Recorder] = []
    threads = [threading.Thread(target=read, args=(recorders,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorders) == 200
    for recorder in recorders:
        assert recorder.completed
        assert recorder.items == list(range(100))[100 - len(recorder.items) :], "a piece without gaps"


# ---------------------------------------------------------------- replay and ttl


def test_late_subscribers_receive_the_history(source: Driven) -> None:
    shared = source.flux().replay(2).auto_connect()
    Recorder.of(shared, first=UNBOUNDED)
    source.emit(1, 2, 3)
    late = Recorder.of(shared, first=UNBOUNDED)
    assert late.items == [2, 3]
    source.emit(4).complete()

    assert late.check().items == [2, 3, 4]
    assert Recorder.of(shared, first=UNBOUNDED).check().items == [3, 4]


def test_what_is_too_old_is_not_replayed(source: Driven) -> None:
    clock = schedulers.virtual_time()
    shared = source.flux().replay(ttl=10, scheduler=clock).auto_connect()
    first = Recorder.of(shared, first=UNBOUNDED)
    for n in range(5):
        source.emit(n)
        clock.advance_by(4)

    assert Recorder.of(shared, first=UNBOUNDED).items == [3, 4]
    assert first.check().items == [0, 1, 2, 3, 4]
    source.complete()
    clock.advance_by(100)
    late = Recorder.of(shared, first=UNBOUNDED)
    assert (late.items, late.completed) == ([], True)


def test_what_a_subscriber_has_not_read_yet_does_not_expire_for_it(source: Driven) -> None:
    clock = schedulers.virtual_time()
    shared = source.flux().replay(ttl=10, scheduler=clock).auto_connect()
    quick, slow = Recorder.of(shared, first=UNBOUNDED), Recorder.of(shared)
    source.emit(1, 2)
    clock.advance_by(100)
    source.emit(3)
    slow.request(9)

    assert slow.check().items == quick.check().items == [1, 2, 3]


def test_a_history_without_a_bound_is_bounded_by_its_time_to_live(source: Driven) -> None:
    clock = schedulers.virtual_time()
    shared = source.flux().cache(ttl=10, scheduler=clock)
    recorder = Recorder.of(shared, first=UNBOUNDED)
    kept = []
    for n in range(1000):
        source.emit(n)
        clock.advance_by(1)
        kept.append(len(shared._source._broadcast._run._buffer._elements))

    assert len(recorder.check().items) == 1000
    assert max(kept) < 600, "forgotten places are swept in batches"
    assert Recorder.of(shared, first=UNBOUNDED).items == list(range(991, 1000))


def test_a_cache_with_a_time_to_live_runs_once() -> None:
    clock, calls = schedulers.virtual_time(), []
    cached = Flux.range(3).do_on_next(calls.append).cache(ttl=10, scheduler=clock)

    assert result(cached) == result(cached) == [0, 1, 2]
    clock.advance_by(10)
    assert result(cached) == []
    assert calls == [0, 1, 2]


def test_a_mono_runs_again_when_its_result_is_too_old() -> None:
    clock, calls = schedulers.virtual_time(), []
    cached = Mono.from_callable(lambda: calls.append(1) or len(calls)).cache(10, clock)
    assert (cached.block(), cached.block()) == (1, 1)
    clock.advance_by(9.9)
    assert cached.block() == 1
    clock.advance_by(0.1)

    assert (cached.block(), cached.block()) == (2, 2)


@pytest.mark.parametrize("empty", [True, False])
def test_an_empty_mono_or_an_error_is_kept_as_long(empty: bool) -> None:
    clock, runs = schedulers.virtual_time(), []

    def run() -> Mono[Any]:
        runs.append(1)
        return Mono.empty() if empty else Mono.error(ValueError("x"))

    cached = Mono.defer(run).cache(10, clock).on_error_return("failed")
    expected = None if empty else "failed"
    assert (cached.block(), cached.block()) == (expected, expected)
    assert len(runs) == 1
    clock.advance_by(10)
    cached.block()
    assert len(runs) == 2


def test_the_time_to_live_starts_when_the_result_is_there(source: Driven) -> None:
    clock = schedulers.virtual_time()
    cached = source.mono().cache(10, clock)
    a = Recorder.of(cached, first=1)
    clock.advance_by(100)
    b = Recorder.of(cached, first=1)
    source.emit(1).complete()

    assert a.items == b.items == [1]
    assert source.subscriptions == 1


def test_a_shared_mono_runs_once_for_those_who_wait(source: Driven) -> None:
    shared = source.mono().share()
    a, b = Recorder.of(shared, first=1), Recorder.of(shared, first=1)
    source.emit(1).complete()
    assert a.items == b.items == [1]
    assert source.subscriptions == 1

    Recorder.of(shared, first=1)
    assert source.subscriptions == 2


def test_the_demand_of_the_quickest_reaches_the_source() -> None:
    source = Elsewhere(*range(100))
    shared = Flux.from_publisher(source).publish(prefetch=50).ref_count()
    recorder = Recorder.of(shared, first=3)
    assert source.asked == 3
    recorder.request(4)

    assert source.asked == 7
