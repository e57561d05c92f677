"""``publish_on``, ``subscribe_on`` and ``limit_rate``: threads, queues and what is asked of the source."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, schedulers
from penstock.streams.schedulers import SchedulerClosed, VirtualTimeScheduler
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


@pytest.fixture
def clock() -> VirtualTimeScheduler:
    """A scheduler whose tasks run when the test says so."""
    return VirtualTimeScheduler()


# -------------------------------------------------------------------- publish_on
def test_the_source_is_asked_for_256_and_then_for_192_at_a_time(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().publish_on(clock), first=UNBOUNDED)
    assert source.requests == [256]

    source.emit(*range(191))
    clock.run_pending()
    assert source.requests == [256]
    source.emit(191)
    clock.run_pending()
    assert source.requests == [256, 192]
    source.emit(*range(192, 256 + 192))
    clock.run_pending()

    assert source.requests == [256, 192, 192]
    assert recorder.check().items == list(range(256 + 192))


def test_another_prefetch_gives_three_quarters_of_it(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    Recorder.of(source.flux().publish_on(clock, prefetch=8), first=UNBOUNDED)
    source.emit(*range(6))
    clock.run_pending()

    assert source.requests == [8, 6]


def test_a_full_queue_holds_the_source_back(clock: VirtualTimeScheduler) -> None:
    taken: list[int] = []
    recorder = Recorder.of(Flux.range(1000).do_on_next(taken.append).publish_on(clock, prefetch=4))

    clock.run_pending()
    assert (taken, recorder.items) == ([0, 1, 2, 3], [])
    recorder.request(3)
    clock.run_pending()

    assert (taken, recorder.items) == ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2])


def test_what_is_below_runs_on_the_scheduler() -> None:
    with schedulers.single("below") as below:
        names = Flux.just(1).publish_on(below).map(lambda _: threading.current_thread().name)
        recorder = Recorder.of(names, first=1).wait()

    assert (recorder.items, recorder.threads) == (["penstock-below"], {"MainThread", "penstock-below"})


def test_an_error_waits_for_the_elements_before_it(clock: VirtualTimeScheduler) -> None:
    source, error = Driven(), ValueError("x")
    recorder = Recorder.of(source.flux().publish_on(clock))
    source.emit(1, 2).fail(error)
    clock.run_pending()
    assert not recorder.terminated

    recorder.request(2)
    clock.run_pending()

    assert (recorder.items, recorder.error, source.cancels) == ([1, 2], error, 0)


def test_an_end_without_elements_needs_no_demand(clock: VirtualTimeScheduler) -> None:
    recorder = Recorder.of(Flux.empty().publish_on(clock))
    clock.run_pending()

    assert recorder.completed


def test_take_below_a_boundary_cancels_the_source_after_n_elements(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().publish_on(clock).take(2), first=UNBOUNDED)
    source.emit(1, 2, 3)

    clock.run_pending()

    assert (recorder.items, recorder.completed, source.cancels) == ([1, 2], True, 1)


def test_take_below_a_boundary_on_real_threads() -> None:
    stream = Flux.range(100_000).publish_on(schedulers.shared_pool()).take(5)

    assert Recorder.of(stream, first=UNBOUNDED).wait().items == [0, 1, 2, 3, 4]


def test_a_cancel_reaches_the_source_before_the_scheduler_gets_to_it(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().publish_on(clock), first=UNBOUNDED)
    source.emit(1)

    recorder.cancel()
    assert source.cancelled
    clock.run_pending()

    assert (recorder.items, recorder.terminated) == ([], False)


@pytest.mark.parametrize("hops", [1, 3])
def test_order_and_number_survive_any_number_of_hops(hops: int) -> None:
    stream = Flux.range(20_000)
    for _ in range(hops):
        stream = stream.publish_on(schedulers.shared_pool(), prefetch=16).map(lambda x: x)

    assert Recorder.of(stream, first=UNBOUNDED).wait().items == list(range(20_000))


@pytest.mark.parametrize("make", [schedulers.immediate, schedulers.trampoline])
def test_a_scheduler_that_runs_inline_needs_no_deep_stack(make: Any) -> None:
    recorder = Recorder.of(Flux.range(50_000).publish_on(make()).map(lambda x: x), first=UNBOUNDED)

    assert (recorder.check().completed, len(recorder.items)) == (True, 50_000)


def test_one_by_one_demand_across_threads() -> None:
    recorder = Recorder(1, on_element=lambda recorder, _: recorder.request(1))
    Flux.range(3_000).publish_on(schedulers.shared_pool()).subscribe(recorder)

    assert recorder.wait().items == list(range(3_000))


def test_a_scheduler_that_is_closed_during_the_run_fails_the_stream_and_cancels_the_source(
    clock: VirtualTimeScheduler,
) -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().publish_on(clock), first=UNBOUNDED)
    source.emit(1)
    clock.run_pending()
    clock.close()

    source.emit(2)

    assert isinstance(recorder.error, SchedulerClosed)
    assert (recorder.items, source.cancels) == ([1], 1)
    recorder.check()


def test_a_stream_can_be_cancelled_after_its_scheduler_was_closed(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().publish_on(clock), first=1)
    clock.close()

    recorder.cancel()

    assert source.cancelled
    assert not recorder.terminated


def test_a_mono_hops_too() -> None:
    with schedulers.single("below") as below:
        mono = Mono.just(1).publish_on(below).map(lambda _: threading.current_thread().name)
        assert mono.block(20) == "penstock-below"
        assert Mono.empty().publish_on(below).block(20) is None


def test_something_that_is_no_scheduler_is_refused() -> None:
    for operator in ("publish_on", "subscribe_on"):
        for stream in (Flux.just(1), Mono.just(1)):
            with pytest.raises(TypeError, match=rf"{operator}\(\) needs a scheduler"):
                getattr(stream, operator)("pool")


# -------------------------------------------------------------------- subscribe_on
def test_the_source_works_on_the_scheduler() -> None:
    with schedulers.single("above") as above:
        names = Flux.range(1).map(lambda _: threading.current_thread().name).subscribe_on(above)
        assert names.collect_list().block(20) == ["penstock-above"]
        where = Mono.from_callable(lambda: threading.current_thread().name).subscribe_on(above)
        assert where.block(20) == "penstock-above"


def test_requests_travel_to_the_scheduler_and_cancels_do_not_wait(clock: VirtualTimeScheduler) -> None:
    source = Driven()
    recorder = Recorder(2)
    source.flux().subscribe_on(clock).subscribe(recorder)
    assert source.subscriptions == 0

    clock.run_pending()
    assert source.requests == [2]
    recorder.request(3)
    assert source.requests == [2]
    clock.run_pending()
    assert source.requests == [2, 3]
    recorder.cancel()

    assert source.cancels == 1


def test_a_closed_scheduler_fails_the_subscription(clock: VirtualTimeScheduler) -> None:
    clock.close()

    assert isinstance(Recorder.of(Flux.just(1).subscribe_on(clock), first=1).error, SchedulerClosed)
    assert isinstance(Recorder.of(Mono.just(1).subscribe_on(clock), first=1).error, SchedulerClosed)


def test_a_scheduler_closed_during_the_run_fails_the_next_request(clock: VirtualTimeScheduler) -> None:
    source, recorder = Driven(), Recorder(1)
    source.flux().subscribe_on(clock).subscribe(recorder)
    clock.run_pending()
    clock.close()

    recorder.request(1)

    assert isinstance(recorder.error, SchedulerClosed)
    assert source.cancels == 1


def test_a_request_after_the_end_is_harmless_although_the_scheduler_is_closed(
    clock: VirtualTimeScheduler,
) -> None:
    recorder = Recorder(1)
    Flux.just(1).subscribe_on(clock).subscribe(recorder)
    clock.run_pending()
    assert recorder.completed
    clock.close()

    recorder.request(1)

    assert recorder.check().error is None


def test_the_place_of_subscribe_on_makes_no_difference() -> None:
    with schedulers.single("above") as above:
        names = Flux.range(1).map(lambda _: threading.current_thread().name)
        for stream in (names.subscribe_on(above).take(1), names.take(1).subscribe_on(above)):
            assert stream.collect_list().block(20) == ["penstock-above"]


# -------------------------------------------------------------------- limit_rate
def test_the_source_is_asked_for_high_and_then_for_low_each_time() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().limit_rate(10, 4), first=UNBOUNDED)
    assert source.requests == [10]

    source.emit(*range(4))
    assert source.requests == [10, 4]
    source.emit(*range(4, 12))

    assert source.requests == [10, 4, 4, 4]
    assert recorder.check().items == list(range(12))


def test_low_is_three_quarters_by_default() -> None:
    source = Driven()
    Recorder.of(source.flux().limit_rate(100), first=UNBOUNDED)

    source.emit(*range(75))

    assert source.requests == [100, 75]


def test_no_more_than_high_elements_are_ever_outstanding() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().limit_rate(4), first=2)

    source.emit(1, 2, 3, 4)

    assert (recorder.items, source.requests) == ([1, 2], [4])
    recorder.request(1)
    assert (recorder.items, source.requests) == ([1, 2, 3], [4, 3])


@pytest.mark.parametrize(("high", "low"), [(0, None), (4, 5), (4, 0)])
def test_limits_that_make_no_sense_are_refused(high: int, low: int | None) -> None:
    with pytest.raises(ValueError, match=r"limit_rate\(\) needs"):
        Flux.just(1).limit_rate(high, low)


def test_limit_rate_passes_errors_ends_and_cancels_on() -> None:
    error = ValueError("x")
    assert Recorder.of(Flux.error(error).limit_rate(4)).error is error
    assert Recorder.of(Flux.empty().limit_rate(4)).completed
    source = Driven()
    Recorder.of(source.flux().limit_rate(4), first=1).cancel()
    assert source.cancels == 1
