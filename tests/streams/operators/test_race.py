"""``first_with_signal``, ``first_with_value``: one of several streams goes on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, NoElement, on_dropped, schedulers
from penstock.streams.spi import PublisherSource, flux_of
from tests.streams.operators.rigs import Elsewhere, failure, result
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

RACES = [Flux.first_with_signal, Flux.first_with_value]


@pytest.mark.parametrize("race", RACES)
def test_the_first_element_wins_and_the_others_are_cancelled(race: Any) -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(race(a, b), first=9)
    b.emit("x")
    assert (a.cancels, b.cancels) == (1, 0)
    a.emit("too late")
    b.emit("y").complete()

    assert recorder.check().items == ["x", "y"]
    assert recorder.completed


@pytest.mark.parametrize("race", RACES)
def test_only_the_winner_is_asked_for_more_than_one(race: Any) -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(race(a, b), first=5)
    assert (a.requests, b.requests) == ([1], [1])
    recorder.request(2)
    assert (a.requests, b.requests) == ([1], [1])

    b.emit("x")
    recorder.request(3)

    assert a.requests == [1]
    assert b.requests == [1, 6, 3]


@pytest.mark.parametrize("race", RACES)
def test_without_demand_nobody_is_asked(race: Any) -> None:
    a, b = Driven(), Driven()
    Recorder.of(race(a, b))

    assert a.requests == b.requests == []


@pytest.mark.parametrize("race", RACES)
def test_demand_without_a_bound_stays_without_a_bound(race: Any) -> None:
    a = Driven()
    Recorder.of(race(a, Flux.never()), first=UNBOUNDED)
    a.emit(1)

    assert a.requests == [1, UNBOUNDED]


@pytest.mark.parametrize("race", RACES)
def test_a_synchronous_winner_keeps_the_rest_from_starting(race: Any) -> None:
    late = Driven()

    assert result(race(Flux.range(1000), late)) == list(range(1000))
    assert late.subscriptions <= 1
    assert late.cancels == late.subscriptions


@pytest.mark.parametrize("race", RACES)
def test_the_demand_is_exact(race: Any) -> None:
    source = Elsewhere(*range(100))
    recorder = Recorder.of(race(source, Flux.never()))
    for n in (1, 3, 2):
        recorder.request(n)

    assert recorder.check().items == [0, 1, 2, 3, 4, 5]
    assert source.asked == 6


def test_an_end_is_a_signal_too() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Flux.first_with_signal(a, b))
    a.complete()

    assert recorder.check().completed
    assert b.cancelled


def test_an_error_is_a_signal_too() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Flux.first_with_signal(a, b))
    a.fail(ValueError("x"))

    assert isinstance(recorder.wait().error, ValueError)
    assert b.cancelled


class Grudging:
    """Fails when it is cancelled, as §2.8 allows."""

    def subscribe(self, subscriber: Any) -> None:
        self.subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int) -> None: ...

    def cancel(self) -> None:
        self.subscriber.on_error(LATE)


LATE = ValueError("late")


@pytest.mark.parametrize("race", RACES)
def test_the_error_of_a_loser_is_reported(race: Any) -> None:
    winner, dropped = Driven(), []
    # Not from_publisher(): its guard stops such an error.
    recorder = Recorder.of(race(winner, flux_of(PublisherSource(Grudging()))), first=9)
    with on_dropped(error=lambda error, where: dropped.append(error)):
        winner.emit(1)

    assert dropped == [LATE]
    assert recorder.check().items == [1]
    assert not recorder.terminated


def test_empty_and_failed_streams_do_not_win_by_value() -> None:
    a, b, c = Driven(), Driven(), Driven()
    recorder = Recorder.of(Flux.first_with_value(a, b, c), first=9)
    a.complete()
    b.fail(ValueError("x"))
    c.emit(1).complete()

    assert recorder.wait().items == [1]
    assert recorder.completed


def test_an_error_after_the_first_value_is_the_streams() -> None:
    a = Driven()
    recorder = Recorder.of(Flux.first_with_value(a, Flux.never()), first=9)
    a.emit(1).fail(ValueError("x"))

    assert isinstance(recorder.wait().error, ValueError)


def test_without_any_value_the_causes_are_kept() -> None:
    one, two = ValueError("one"), KeyError("two")
    error = failure(Flux.first_with_value(Flux.error(one), Flux.empty(), Flux.error(two)))

    assert isinstance(error, NoElement)
    assert isinstance(error.__cause__, ExceptionGroup)
    assert error.__cause__.exceptions == (one, two)


def test_one_failure_is_the_cause_itself() -> None:
    one = ValueError("one")
    assert failure(Flux.first_with_value(Flux.empty(), Flux.error(one))).__cause__ is one
    assert failure(Flux.first_with_value(Flux.empty())).__cause__ is None


@pytest.mark.parametrize("race", RACES)
def test_a_cancel_reaches_all(race: Any) -> None:
    a, b = Driven(), Driven()
    Recorder.of(race(a, b), first=1).cancel()

    assert (a.cancels, b.cancels) == (1, 1)


@pytest.mark.parametrize("race", RACES)
def test_a_cancel_inside_on_next(race: Any) -> None:
    source = Elsewhere(*range(10))
    recorder = Recorder(9, on_element=lambda me, _: me.cancel())
    race(source, Flux.never()).subscribe(recorder)

    assert recorder.check().items == [0]
    assert source.cancelled


@pytest.mark.parametrize("race", [*RACES, Mono.first_with_signal, Mono.first_with_value])
def test_of_none_none_can_be_first(race: Any) -> None:
    with pytest.raises(ValueError, match="at least one publisher"):
        race()


def test_a_mono_sends_one_element() -> None:
    assert Mono.first_with_signal(Mono.never(), Mono.just(1)).block() == 1
    assert Mono.first_with_signal(Mono.empty(), Mono.just(1)).block() is None
    assert Mono.first_with_value(Mono.empty(), Mono.error(ValueError()), Mono.just(1)).block() == 1
    assert result(Mono.first_with_signal(Flux.just(1, 2))) == [1]  # type: ignore[arg-type]


@pytest.mark.parametrize("race", RACES)
def test_many_threads_have_one_winner(race: Any) -> None:
    pool = schedulers.shared_pool()
    for _ in range(50):
        streams = [Flux.just(n, n, n).subscribe_on(pool) for n in range(8)]
        recorder = Recorder.of(race(*streams), first=UNBOUNDED).wait()
        assert recorder.completed
        assert len(recorder.items) == 3
        assert len(set(recorder.items)) == 1


def test_a_cancel_from_another_thread_meets_a_starting_race() -> None:
    for _ in range(50):
        sources = [Driven() for _ in range(4)]
        recorder = Recorder()
        Flux.first_with_signal(sources[0], sources[1]).subscribe(recorder)
        thread = threading.Thread(target=recorder.cancel)
        thread.start()
        sources[1].emit(1)
        thread.join()
        assert sources[0].cancels == 1
        recorder.check()
