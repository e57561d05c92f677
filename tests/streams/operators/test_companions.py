"""``take_until_other``, ``skip_until_other``, ``with_latest_from`` and ``delay_subscription``."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, on_dropped, schedulers
from penstock.streams.schedulers import SchedulerClosed, VirtualTimeScheduler
from penstock.streams.spi import PublisherSource, flux_of
from tests.streams.operators.rigs import Oops, oops, result
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

OPERATORS = ["take_until_other", "skip_until_other", "with_latest_from", "delay_subscription"]
every_operator = pytest.mark.parametrize("name", OPERATORS)


class Rig:
    """A stream and its companion, both driven by hand."""

    def __init__(self, name: str, first: int = UNBOUNDED, **settings: Any) -> None:
        self.source, self.other = Driven(), Driven()
        stream = getattr(self.source.flux(), name)(self.other.flux(), **settings)
        self.recorder = Recorder.of(stream, first)


# -------------------------------------------------------------------- take_until_other
@pytest.mark.parametrize("end", ["emits", "completes"])
def test_take_until_other_completes_when_the_other_has_something(end: str) -> None:
    rig = Rig("take_until_other", first=5)
    rig.source.emit(1, 2)
    if end == "emits":
        rig.other.emit("stop")
    else:
        rig.other.complete()
    rig.source.emit("late")

    assert (rig.recorder.check().items, rig.recorder.completed) == ([1, 2], True)
    assert rig.source.cancels == 1
    assert rig.other.cancels == (end == "emits")


def test_take_until_other_asks_the_other_for_one_element() -> None:
    rig = Rig("take_until_other", first=3)

    assert (rig.source.requests, rig.other.requests) == ([3], [1])


def test_take_until_other_that_is_over_at_once_does_not_subscribe_to_the_source() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().take_until_other(Mono.just("stop")))

    assert recorder.check().completed
    assert source.subscriptions == 0


def test_take_until_other_lets_folds_below_finish() -> None:
    rig = Driven(), Driven()
    recorder = Recorder.of(rig[0].flux().take_until_other(rig[1].flux()).collect_list(), 1)
    rig[0].emit(1, 2)
    rig[1].emit("stop")

    assert (recorder.check().items, recorder.completed) == ([[1, 2]], True)


def test_take_until_other_race() -> None:
    """The end comes from another thread while elements flow: one end, and nothing after it."""
    for _ in range(50):
        stop = Driven()
        some = threading.Event()
        recorder = Recorder(UNBOUNDED, on_element=lambda *_, some=some: some.set())
        endless = Flux.generate(lambda: 0, lambda n, sink: (sink.next(n), n + 1)[1])
        endless.subscribe_on(schedulers.shared_pool()).take_until_other(stop.flux()).subscribe(recorder)
        assert some.wait(20)
        stop.emit("now")
        recorder.wait()

        assert recorder.completed
        assert recorder.items == list(range(len(recorder.items)))


def test_a_mono_is_empty_if_the_other_is_first() -> None:
    source, other = Driven(), Driven()
    recorder = Recorder.of(source.mono().take_until_other(other.flux()), 1)
    other.emit("stop")

    assert (recorder.check().items, recorder.completed, source.cancels) == ([], True, 1)


# -------------------------------------------------------------------- skip_until_other
@pytest.mark.parametrize("begin", ["emits", "completes"])
def test_skip_until_other_leaves_out_what_comes_before(begin: str) -> None:
    rig = Rig("skip_until_other", first=2)
    rig.source.emit(1)
    assert rig.source.requests == [2, 1]  # what is left out is asked for again
    if begin == "emits":
        rig.other.emit("go")
    else:
        rig.other.complete()
    rig.source.emit(2, 3)

    assert rig.recorder.check().items == [2, 3]
    rig.source.complete()
    assert rig.recorder.completed


def test_skip_until_other_completes_with_a_source_that_was_left_out() -> None:
    rig = Rig("skip_until_other")
    rig.source.emit(1).complete()

    assert (rig.recorder.check().items, rig.recorder.completed, rig.other.cancels) == ([], True, 1)


# -------------------------------------------------------------------- with_latest_from
def test_with_latest_from_pairs_each_element_with_the_newest() -> None:
    rig = Rig("with_latest_from")
    rig.source.emit("left out")
    rig.other.emit("a")
    rig.source.emit(1, 2)
    rig.other.emit("b", "c")
    rig.source.emit(3)
    rig.other.complete()
    rig.source.emit(4).complete()

    assert rig.recorder.check().items == [(1, "a"), (2, "a"), (3, "c"), (4, "c")]
    assert rig.recorder.completed


def test_with_latest_from_keeps_demand_exact() -> None:
    rig = Rig("with_latest_from", first=2)
    rig.source.emit("left out")
    assert (rig.source.requests, rig.other.requests) == ([2, 1], [UNBOUNDED])
    rig.other.emit("a")
    rig.source.emit(1, 2)

    assert rig.recorder.check().items == [(1, "a"), (2, "a")]
    assert rig.source.requests == [2, 1]


def test_with_latest_from_an_empty_stream_completes() -> None:
    rig = Rig("with_latest_from")
    rig.other.complete()

    assert (rig.recorder.check().completed, rig.source.cancels) == (True, 1)


def test_with_latest_from_combines_with_a_function() -> None:
    assert result(Flux.just(1, 2).with_latest_from(Flux.just(10), lambda a, b: a + b)) == [11, 12]


def test_a_combinator_that_raises_fails_the_stream_where_it_was_written() -> None:
    recorder = Recorder.of(Flux.just(1).with_latest_from(Flux.just(1), oops), 1)

    recorder.check()
    assert isinstance(recorder.error, Oops)
    (note,) = [note for note in recorder.error.__notes__ if note.startswith("in stream operator")]
    assert "with_latest_from(oops)" in note
    assert __file__ in note


def test_a_combinator_that_returns_none_fails_the_stream() -> None:
    recorder = Recorder.of(Flux.just(1).with_latest_from(Flux.just(1), lambda a, b: None), 1)

    assert "with_latest_from" in str(recorder.check().error)


# -------------------------------------------------------------------- delay_subscription
@pytest.mark.parametrize("begin", ["emits", "completes"])
def test_delay_subscription_waits_for_the_other(begin: str) -> None:
    rig = Rig("delay_subscription", first=2)
    assert rig.source.subscriptions == 0
    if begin == "emits":
        rig.other.emit("go")
    else:
        rig.other.complete()

    assert (rig.source.subscriptions, rig.source.requests) == (1, [2])
    rig.source.emit(1, 2).complete()
    assert (rig.recorder.check().items, rig.recorder.completed) == ([1, 2], True)


def test_delay_subscription_by_a_clock() -> None:
    clock, source = VirtualTimeScheduler(), Driven()
    recorder = Recorder.of(source.flux().delay_subscription(2, clock))
    clock.advance_by(1.999)
    assert source.subscriptions == 0
    clock.advance_by(0.001)
    assert source.subscriptions == 1
    source.complete()

    assert recorder.check().completed


def test_a_delayed_subscription_can_be_cancelled() -> None:
    clock, source = VirtualTimeScheduler(), Driven()
    recorder = Recorder.of(source.flux().delay_subscription(2, clock), 1)
    recorder.cancel()
    clock.advance_by(5)

    assert (source.subscriptions, clock.pending) == (0, 0)


def test_a_scheduler_that_closes_fails_a_delayed_subscription() -> None:
    clock = VirtualTimeScheduler()
    recorder = Recorder.of(Flux.just(1).delay_subscription(2, clock))
    clock.close()

    assert isinstance(recorder.check().error, SchedulerClosed)


def test_a_source_that_raises_in_subscribe_fails_the_stream() -> None:
    class Broken:
        def subscribe(self, subscriber: Any) -> None:
            raise Oops()

    clock = VirtualTimeScheduler()
    recorder = Recorder.of(flux_of(PublisherSource(Broken())).delay_subscription(2, clock), 1)
    clock.advance_by(2)

    assert isinstance(recorder.check().error, Oops)


def test_a_clock_and_a_publisher_exclude_each_other() -> None:
    with pytest.raises(TypeError, match="scheduler"):
        Flux.just(1).delay_subscription(Flux.just(1), VirtualTimeScheduler())


# -------------------------------------------------------------------- all of them
@every_operator
def test_an_error_of_the_other_fails_the_stream(name: str) -> None:
    rig = Rig(name)
    rig.other.fail(Oops())

    assert isinstance(rig.recorder.check().error, Oops)
    assert rig.source.cancels == rig.source.subscriptions


@every_operator
def test_a_cancel_reaches_both(name: str) -> None:
    rig = Rig(name, first=1)
    rig.recorder.cancel()

    assert rig.other.cancels == 1
    assert rig.source.cancels == rig.source.subscriptions
    assert not rig.recorder.terminated


@pytest.mark.parametrize("name", ["take_until_other", "skip_until_other", "with_latest_from"])
def test_the_end_of_the_source_cancels_the_other(name: str) -> None:
    for end in ("complete", "fail"):
        rig = Rig(name)
        rig.source.complete() if end == "complete" else rig.source.fail(Oops())

        assert rig.recorder.check().terminated
        assert rig.other.cancels == 1


@pytest.mark.parametrize("name", ["take_until_other", "skip_until_other", "with_latest_from"])
def test_an_error_of_the_other_after_the_end_is_reported_as_dropped(name: str) -> None:
    dropped: list[BaseException] = []
    other = Driven()
    recorder = Recorder.of(getattr(Flux.just(1), name)(flux_of(PublisherSource(other))), 1)
    assert recorder.check().completed
    with on_dropped(error=lambda error, where: dropped.append(error)):
        other.fail(Oops())

    assert [type(error) for error in dropped] == [Oops]


@every_operator
def test_both_fail_at_the_same_time_and_one_error_goes_down(name: str) -> None:
    for _ in range(30):
        dropped: list[BaseException] = []
        source, other = Driven(), Driven()
        stream = getattr(flux_of(PublisherSource(source)), name)(flux_of(PublisherSource(other)))
        recorder = Recorder.of(stream, 1)
        if name == "delay_subscription":
            other.emit("go")
        with on_dropped(error=lambda error, where, dropped=dropped: dropped.append(error)):
            start = threading.Barrier(2)

            def fail(driven: Driven, number: int, start: threading.Barrier = start) -> None:
                start.wait(20)
                driven.fail(Oops(number))

            threads = [threading.Thread(target=fail, args=pair) for pair in ((source, 1), (other, 2))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        recorder.check()
        assert isinstance(recorder.error, Oops)
        assert {error.args[0] for error in (recorder.error, *dropped)} == {1, 2}
        assert len(dropped) == 1


@every_operator
def test_a_cancel_inside_on_subscribe_subscribes_to_nothing(name: str) -> None:
    class Leaving(Recorder):
        def on_subscribe(self, subscription: Any, /) -> None:
            super().on_subscribe(subscription)
            subscription.cancel()

    source, other = Driven(), Driven()
    getattr(source.flux(), name)(other.flux()).subscribe(Leaving())

    assert (source.subscriptions, other.subscriptions) == (0, 0)
