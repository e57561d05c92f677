"""``parallel``: rails side by side, and one stream of them again."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, ParallelFlux, schedulers
from penstock.streams.schedulers import PoolScheduler, SchedulerClosed
from penstock.testing import DroppedSignals
from tests.streams.operators.rigs import Counting, Oops, oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolScheduler]:
    with schedulers.pool(4, "rails") as threads:
        yield threads


def rails_of(parallel: ParallelFlux[Any]) -> list[list[Any]]:
    """The elements of each rail."""
    return sorted(parallel.transform_rails(lambda rail: rail.collect_list()).sequential())


# -------------------------------------------------------------------- what comes out
def test_the_elements_are_dealt_out_in_turn() -> None:
    assert rails_of(Flux.range(7).parallel(3)) == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.parametrize("rails", [1, 2, 5])
@pytest.mark.parametrize("prefetch", [1, 3, 256])
def test_on_threads_each_element_comes_out_once(pool: PoolScheduler, rails: int, prefetch: int) -> None:
    flux = Flux.range(3000).parallel(rails).run_on(pool, prefetch=prefetch).map(lambda x: x * 2)

    assert sorted(flux.sequential(prefetch=prefetch)) == [x * 2 for x in range(3000)]


def test_a_rail_keeps_its_order_and_runs_on_one_thread_at_a_time(pool: PoolScheduler) -> None:
    inside: list[set[int]] = [set(), set(), set()]
    overlaps = []
    numbers = itertools.count()

    def watched(rail: Flux[int]) -> Flux[int]:
        mine = inside[next(numbers) % 3]

        def look(x: int) -> None:
            mine.add(threading.get_ident())
            if len(mine) > 1:
                overlaps.append(x)
            mine.discard(threading.get_ident())

        return rail.do_on_next(look)

    rails = Flux.range(2000).parallel(3).run_on(pool, prefetch=7).transform_rails(watched)
    lists = rails.transform_rails(lambda rail: rail.collect_list()).sequential().collect_list().block(60)

    assert overlaps == []
    assert [each == sorted(each) for each in lists] == [True] * 3
    assert sorted(x for each in lists for x in each) == list(range(2000))


def test_several_rails_are_at_work_at_the_same_time(pool: PoolScheduler) -> None:
    together = threading.Barrier(3)

    # Each call waits for two others, so one rail at a time would not get through.
    flux = Flux.range(3).parallel(3).run_on(pool).do_on_next(lambda _: together.wait(20)).sequential()

    assert sorted(flux.collect_list().block(30)) == [0, 1, 2]


def test_without_run_on_the_rails_run_where_the_source_does() -> None:
    names = Flux.range(4).parallel(2).map(lambda _: threading.current_thread().name).sequential()

    assert set(names) == {threading.current_thread().name}


def test_every_operator_of_the_rails_does_what_it_does_on_a_flux() -> None:
    numbers = Flux.range(1, 6).parallel(2)
    seen: list[int] = []

    assert sorted(numbers.filter(lambda x: x > 4).sequential()) == [5, 6]
    assert sorted(numbers.handle(lambda x, sink: sink.next(-x) if x < 3 else None).sequential()) == [-2, -1]
    assert sorted(numbers.flat_map(lambda x: [x] * x).sequential()) == [
        x for x in range(1, 7) for _ in range(x)
    ]
    assert sorted(numbers.concat_map(lambda x: Mono.just(x + 1)).sequential()) == [2, 3, 4, 5, 6, 7]
    assert sorted(numbers.flat_map_iterable(lambda x: [x, x]).sequential()) == sorted([*range(1, 7)] * 2)
    assert sorted(numbers.do_on_next(seen.append).sequential()) == sorted(seen) == [1, 2, 3, 4, 5, 6]


def test_reduce_goes_over_each_rail_and_then_over_the_rails(pool: PoolScheduler) -> None:
    total = Flux.range(1, 1000).parallel(4).run_on(pool).reduce(lambda a, b: a + b)

    assert total.block(30) == 500_500
    assert Flux.empty().parallel(4).reduce(lambda a, b: a + b).block() is None
    assert Flux.just(7).parallel(4).reduce(oops).block() == 7


def test_reduce_with_gives_one_result_for_each_rail() -> None:
    sums = Flux.range(6).parallel(4).reduce_with(lambda: 100, lambda a, b: a + b).sequential()

    assert sorted(sums) == [102, 103, 104, 106]


def test_an_empty_source_completes() -> None:
    assert Flux.empty().parallel(3).map(oops).sequential().collect_list().block() == []
    assert Flux.empty().parallel(3).ordered().collect_list().block() == []


def test_each_subscriber_has_a_run_of_its_own(pool: PoolScheduler) -> None:
    flux = Flux.range(500).parallel(3).run_on(pool, prefetch=4).sequential()
    recorders = [Recorder.of(flux, UNBOUNDED) for _ in range(4)]

    assert [sorted(each.wait().items) for each in recorders] == [list(range(500))] * 4


def test_rails_inside_of_rails(pool: PoolScheduler) -> None:
    inner = Flux.range(10).parallel(2).run_on(pool).sequential()
    flux = Flux.range(10).parallel(2).run_on(pool).flat_map(lambda _: inner).sequential()

    assert sorted(flux.collect_list().block(30)) == sorted([*range(10)] * 10)


# -------------------------------------------------------------------- in order again
def test_ordered_keeps_the_order_of_a_sorted_source(pool: PoolScheduler) -> None:
    flux = Flux.range(3000).parallel(4).run_on(pool, prefetch=5).map(lambda x: (x, -x))

    assert flux.ordered(lambda pair: pair[0], prefetch=3).collect_list().block(30) == [
        (x, -x) for x in range(3000)
    ]


def test_ordered_goes_on_when_a_rail_lets_nothing_through(pool: PoolScheduler) -> None:
    # All elements of the first rail are left out, so the others wait for it until it has seen the end.
    flux = Flux.range(3000).parallel(3).run_on(pool, prefetch=4).filter(lambda x: x % 3)

    assert flux.ordered(prefetch=2).collect_list().block(30) == [x for x in range(3000) if x % 3]


def test_a_key_that_raises_cancels_the_source() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().parallel(2).ordered(oops), UNBOUNDED)
    source.emit(1, 2)

    assert isinstance(recorder.error, Oops)
    assert source.cancelled


# -------------------------------------------------------------------- demand
def test_the_source_is_asked_for_what_the_rails_ask_for() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().parallel(2).sequential(prefetch=1))
    assert source.requests == [2]
    source.emit(1, 2)
    assert recorder.items == []
    assert source.requests == [2]

    recorder.request(1)
    assert recorder.items == [1]
    assert source.requests == [2, 1]
    recorder.request(1)

    assert recorder.items == [1, 2]
    assert source.requests == [2, 1, 1]


def test_an_element_that_a_rail_leaves_out_is_asked_for_again() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().parallel(2).filter(lambda x: x > 2).sequential(prefetch=1), 1)
    source.emit(1, 2)
    assert source.requests == [2, 1, 1]

    source.emit(3)
    assert recorder.items == [3]


def test_take_below_cancels_the_source_and_takes_no_more_than_the_rails_hold() -> None:
    source = Counting(1000)
    flux = Flux.from_iterable(source).parallel(2).sequential(prefetch=4).take(5)

    assert len(flux.collect_list().block()) == 5
    assert source.closed
    assert source.taken <= 5 + 2 * 4


def test_a_slow_rail_is_left_out_until_it_has_room(pool: PoolScheduler) -> None:
    """One rail stands still. The other takes all but what the first one has room for."""
    prefetch, total = 4, 1000
    stuck, others = threading.Event(), threading.Semaphore(0)

    def work(x: int) -> int:
        if x == 0:
            stuck.wait(30)
        else:
            others.release()
        return x

    flux = Flux.range(total).parallel(2).run_on(pool, prefetch=prefetch).map(work).sequential()
    recorder = Recorder.of(flux, UNBOUNDED)
    for _ in range(total - prefetch):
        assert others.acquire(timeout=20)
    assert not recorder.completed
    stuck.set()

    assert sorted(recorder.wait().items) == list(range(total))


def test_rails_that_all_stand_still_stop_the_source(pool: PoolScheduler) -> None:
    go = threading.Event()
    source = Counting(10_000)
    flux = Flux.from_iterable(source).parallel(2).run_on(pool, prefetch=8).do_on_next(lambda _: go.wait(30))
    recorder = Recorder.of(flux.sequential(prefetch=2), UNBOUNDED)

    assert source.taken == 16
    go.set()
    assert len(recorder.wait(60).items) == 10_000


# -------------------------------------------------------------------- how it ends
def test_an_error_on_one_rail_cancels_the_others_and_the_source(pool: PoolScheduler) -> None:
    cancelled = []
    source = Driven()
    flux = (
        source.flux()
        .parallel(3)
        .transform_rails(lambda rail: rail.do_on_cancel(lambda: cancelled.append(1)))
        .run_on(pool)
        .map(lambda x: oops() if x == 2 else x)
        .sequential()
    )
    recorder = Recorder.of(flux, UNBOUNDED)
    source.emit(1, 2)
    recorder.wait()

    assert isinstance(recorder.error, Oops)
    assert any("map(" in note and __file__ in note for note in recorder.error.__notes__)
    assert source.cancels == 1
    assert len(cancelled) == 3


def test_the_error_of_a_stage_names_the_line_that_made_it() -> None:
    flux = Flux.range(3).parallel(2).flat_map(oops).sequential()  # here
    recorder = Recorder.of(flux, 1)

    assert isinstance(recorder.error, Oops)
    line = test_the_error_of_a_stage_names_the_line_that_made_it.__code__.co_firstlineno + 1
    assert any(f"flat_map(oops), assembled at {__file__}:{line}" in note for note in recorder.error.__notes__)


@pytest.mark.parametrize("gather", [lambda p: p.sequential(), lambda p: p.ordered()])
def test_an_error_of_the_source_comes_after_what_was_dealt_and_only_once(
    pool: PoolScheduler, gather: Any
) -> None:
    for _ in range(20):
        with DroppedSignals() as dropped:
            source = Flux.range(100).concat_with(Flux.error(Oops("source")))
            recorder = Recorder.of(gather(source.parallel(4).run_on(pool)), UNBOUNDED).wait()

        assert sorted(recorder.items) == list(range(100))
        assert isinstance(recorder.error, Oops)
        assert dropped.places == []


def test_an_error_of_the_source_waits_for_demand_like_what_is_before_it() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().parallel(2).sequential())
    source.emit(1, 2).fail(Oops("source"))
    assert not recorder.terminated

    recorder.request(2)
    assert recorder.items == [1, 2]
    assert isinstance(recorder.error, Oops)


def test_rails_that_go_on_after_the_error_of_the_source_decide_the_end() -> None:
    flux = Flux.error(Oops("source")).parallel(2)
    resumed = flux.transform_rails(lambda rail: rail.on_error_resume(lambda _: Flux.just(1)))

    assert resumed.sequential().collect_list().block() == [1, 1]


def test_an_exit_on_a_rail_is_the_error_of_the_stream(pool: PoolScheduler) -> None:
    def leave(x: int) -> int:
        raise SystemExit(x)

    recorder = Recorder.of(Flux.range(3).parallel(2).run_on(pool).map(leave).sequential(), 1).wait()

    assert isinstance(recorder.error, SystemExit)


def test_a_function_that_returns_none_breaks_the_rule_of_every_map() -> None:
    recorder = Recorder.of(Flux.range(3).parallel(2).map(lambda _: None).sequential(), 1)

    assert recorder.error is not None
    assert "None" in str(recorder.error)


def test_a_cancel_reaches_all_rails_and_the_source(pool: PoolScheduler) -> None:
    cancelled = []
    source = Driven()
    rails = (
        source.flux().parallel(3).transform_rails(lambda rail: rail.do_on_cancel(lambda: cancelled.append(1)))
    )
    recorder = Recorder.of(rails.run_on(pool).sequential(), 5)
    source.emit(1)
    recorder.cancel()

    assert source.cancels == 1
    assert len(cancelled) == 3
    source.emit(2).complete()  # §2.8: may still come
    recorder.check()


def test_a_cancel_inside_on_next_is_the_last_signal() -> None:
    source = Counting(1000)
    recorder = Recorder(UNBOUNDED, on_element=lambda me, _: me.cancel())
    Flux.from_iterable(source).parallel(2).map(lambda x: x).sequential().subscribe(recorder)

    assert len(recorder.items) == 1
    assert source.closed
    recorder.check()


def test_a_cancel_inside_on_subscribe_never_starts_the_source() -> None:
    source = Driven()

    class Leaves(Recorder):
        def on_subscribe(self, subscription: Any, /) -> None:
            super().on_subscribe(subscription)
            subscription.cancel()

    Leaves.of(source.flux().parallel(2).sequential())

    assert source.subscriptions == 0


def test_a_request_inside_on_next_does_not_nest() -> None:
    recorder = Recorder(1, on_element=lambda me, _: me.request(1))
    Flux.range(500).parallel(2).map(lambda x: x).sequential(prefetch=2).subscribe(recorder)

    assert sorted(recorder.items) == list(range(500))
    assert recorder.completed
    assert recorder.deepest == 1


def test_a_rail_that_ends_early_leaves_the_rest_to_the_others() -> None:
    numbers = itertools.count()

    def first_takes_one(rail: Flux[int]) -> Flux[int]:
        # Number 0 is the call that looks at what the function makes.
        return rail.take(1) if next(numbers) == 1 else rail

    rails = Flux.range(10).parallel(2).transform_rails(first_takes_one).sequential(prefetch=2)

    assert sorted(rails) == list(range(10))


def test_the_function_of_transform_rails_makes_something_for_each_rail() -> None:
    def numbered(rail: Flux[int]) -> Flux[tuple[int, int]]:
        numbers = itertools.count()
        return rail.map(lambda x: (next(numbers), x))

    rails = Flux.range(6).parallel(2).transform_rails(numbered).sequential()

    assert sorted(rails) == sorted(rails) == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (2, 5)]


def test_the_source_is_cancelled_when_all_rails_have_ended() -> None:
    source = Counting(1000)
    rails = Flux.from_iterable(source).parallel(2).transform_rails(lambda rail: rail.take(2))

    assert sorted(rails.sequential()) == [1, 2, 3, 4]
    assert source.closed
    assert source.taken == 4


def test_a_rail_that_nobody_reads_gets_nothing() -> None:
    source = Driven()
    rails = source.flux().parallel(2).transform_rails(lambda _: Flux.just("else"))

    assert rails.sequential().collect_list().block(20) == ["else", "else"]
    assert source.requests == []


def test_a_function_that_raises_when_a_rail_is_built_fails_the_stream() -> None:
    calls = itertools.count()
    source = Driven()

    def third_time_fails(rail: Flux[int]) -> Flux[int]:
        return oops() if next(calls) == 2 else rail

    recorder = Recorder.of(source.flux().parallel(3).transform_rails(third_time_fails).sequential(), 1)

    assert isinstance(recorder.error, Oops)
    assert source.requests == []
    assert source.subscriptions == source.cancels
    recorder.check()


def test_a_closed_scheduler_fails_the_stream_and_cancels_the_source() -> None:
    gone = schedulers.pool(2, "gone")
    gone.close()
    source = Counting(1000)
    recorder = Recorder.of(Flux.from_iterable(source).parallel(2).run_on(gone).sequential(), 1).wait()

    assert isinstance(recorder.error, SchedulerClosed)
    assert "gone" in str(recorder.error)
    assert source.taken == 0 or source.closed


def test_a_scheduler_that_closes_under_way_fails_the_stream() -> None:
    pool = schedulers.pool(2, "short")
    source = Driven()
    recorder = Recorder.of(source.flux().parallel(2).run_on(pool).sequential(), UNBOUNDED)
    source.emit(1)
    pool.close()
    assert not recorder.terminated
    source.emit(2)

    assert isinstance(recorder.wait().error, SchedulerClosed)
    assert source.cancelled


# -------------------------------------------------------------------- where it runs
def test_rails_see_the_context_of_the_subscriber(pool: PoolScheduler) -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")
    flux = Flux.range(4).parallel(2).run_on(pool).map(lambda _: user.get()).sequential()
    token = user.set("ada")
    try:
        seen = flux.collect_list().block(20)
    finally:
        user.reset(token)

    assert seen == ["ada"] * 4


def test_on_an_event_loop_with_coroutines_on_the_rails(pool: PoolScheduler) -> None:
    async def double(x: int) -> int:
        await asyncio.sleep(0)
        return 2 * x

    async def read() -> list[int]:
        rails = Flux.range(300).parallel(3).run_on(pool)
        doubled = rails.transform_rails(lambda rail: rail.map_async(double)).sequential()
        return [x async for x in doubled]

    assert sorted(asyncio.run(read())) == list(range(0, 600, 2))


def test_rails_on_an_event_loop() -> None:
    async def read() -> list[int]:
        here = schedulers.loop()
        return [x async for x in Flux.range(100).parallel(3).run_on(here).sequential()]

    assert sorted(asyncio.run(read())) == list(range(100))


# -------------------------------------------------------------------- what it looks like, and wrong use
def test_explain_draws_the_rails() -> None:
    rails = Flux.range(9).parallel(3).run_on(schedulers.shared_pool(), prefetch=8).map(abs)

    assert "parallel(3) | map(abs)" in rails.explain()
    assert "3×32" in rails.sequential().explain()
    assert repr(Flux.range(9).parallel(3).map(abs)) == "<ParallelFlux parallel(3) map(abs)>"
    assert rails.rails == 3


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda flux: flux.parallel(0), "parallel"),
        (lambda flux: flux.parallel(2).map(3), "map"),
        (lambda flux: flux.parallel(2).run_on("pool"), "run_on"),
        (lambda flux: flux.parallel(2).run_on(schedulers.shared_pool(), prefetch=0), "run_on"),
        (lambda flux: flux.parallel(2).sequential(prefetch=0), "sequential"),
        (lambda flux: flux.parallel(2).ordered(3), "ordered"),
        (lambda flux: flux.parallel(2).transform_rails(lambda rail: 3), "transform_rails"),
        (lambda flux: flux.parallel(2).transform_rails(None), "transform_rails"),
    ],
)
def test_wrong_arguments_are_refused_at_once(wrong: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        wrong(Flux.range(3))


def test_a_rail_cannot_be_read_before_the_rails_are_joined() -> None:
    kept: list[Flux[int]] = []
    Flux.range(3).parallel(2).transform_rails(lambda rail: kept.append(rail) or rail)
    recorder = Recorder.of(kept[0], 1)

    assert "sequential()" in str(recorder.error)


def test_a_rail_that_leaves_takes_its_demand_with_it() -> None:
    """It has asked for everything, and the other one for a few elements: so the source has to stop."""
    made = 0

    def count(element: int) -> None:
        nonlocal made
        made += 1

    rails = itertools.cycle([True, False])

    def leaving(rail: Flux[int]) -> Flux[Any] | Mono[Any]:
        return rail.take_while(lambda element: False).collect_list() if next(rails) else rail

    flux = Flux.range(1_000_000).do_on_next(count).parallel(2)
    recorder = Recorder.of(flux.transform_rails(leaving).sequential(4), first=1)
    assert len(recorder.items) == 1
    assert made < 1000


def test_rails_that_leave_after_many_elements_leave_their_share_to_the_others() -> None:
    rails = itertools.cycle([True, False])

    def leaving(rail: Flux[int]) -> Flux[Any] | Mono[Any]:
        return rail.take(5000).collect_list() if next(rails) else rail

    flux = Flux.range(20_000).parallel(2).transform_rails(leaving).sequential(4)
    recorder = Recorder.of(flux)
    while not recorder.terminated:
        recorder.request(3)
    assert recorder.check().completed
    (collected,) = [item for item in recorder.items if isinstance(item, list)]
    others = [item for item in recorder.items if item is not collected]
    assert len(collected) == 5000
    assert sorted(collected + others) == list(range(20_000))
