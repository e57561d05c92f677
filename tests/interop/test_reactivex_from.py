"""Observables as streams: they cannot be slowed down, so what is given up is named, and counted here."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import reactivex
from reactivex import operators
from reactivex.scheduler import NewThreadScheduler
from reactivex.subject import Subject

from penstock.interop.reactivex_bridge import from_observable
from penstock.streams import BufferOverflow, Flux, Overflow
from tests.streams.recording import Recorder

ERROR, DROP_NEWEST, DROP_OLDEST = Overflow.ERROR, Overflow.DROP_NEWEST, Overflow.DROP_OLDEST


def unbounded(observable: Any) -> Flux[Any]:
    """For an Observable that is short enough."""
    return from_observable(observable, overflow=ERROR, capacity=1_000)


def failing_with(error: Any) -> Any:
    return reactivex.create(lambda observer, scheduler: observer.on_error(error))


class TestSignals:
    def test_elements_and_the_end_come_in_order(self) -> None:
        recorder = Recorder.of(unbounded(reactivex.range(0, 5)), 10)

        assert recorder.check().items == [0, 1, 2, 3, 4]
        assert recorder.completed

    def test_an_error_comes_after_the_elements(self) -> None:
        error = ValueError("broken")
        recorder = Recorder.of(
            unbounded(reactivex.range(0, 2).pipe(operators.concat(reactivex.throw(error))))
        )

        recorder.request(10)

        assert recorder.check().items == [0, 1]
        assert recorder.error is error

    def test_the_end_of_an_empty_observable_needs_no_demand(self) -> None:
        assert Recorder.of(unbounded(reactivex.empty())).check().completed

    @pytest.mark.parametrize("error", ["out of paper", None, 404])
    def test_an_error_that_is_no_exception_becomes_one(self, error: Any) -> None:
        recorder = Recorder.of(unbounded(failing_with(error)))

        assert isinstance(recorder.check().error, RuntimeError)
        assert repr(error) in str(recorder.error)

    def test_none_ends_the_stream_and_stops_the_observable(self) -> None:
        subject: Subject[Any] = Subject()
        recorder = Recorder.of(unbounded(subject), 10)

        for element in (1, None, 2):
            subject.on_next(element)

        assert recorder.check().items == [1]
        assert isinstance(recorder.error, TypeError)
        assert "None" in str(recorder.error)
        assert not subject.observers

    def test_an_observable_that_cannot_be_subscribed_to_is_an_error(self) -> None:
        def refuse(observer: Any, scheduler: Any) -> Any:
            raise OSError("no such device")

        recorder = Recorder.of(unbounded(reactivex.create(refuse)))

        assert isinstance(recorder.check().error, OSError)

    def test_each_subscriber_subscribes_to_the_observable(self) -> None:
        flux = unbounded(reactivex.range(0, 3))

        assert [flux.collect_list().block() for _ in range(2)] == [[0, 1, 2], [0, 1, 2]]


class TestOverflow:
    """Ten elements for a subscriber that asked for two; three more may wait."""

    def push_ten(
        self, overflow: Overflow, on_dropped: Callable[[int], object] | None
    ) -> tuple[Subject[int], Recorder]:
        subject: Subject[int] = Subject()
        flux = from_observable(subject, overflow=overflow, capacity=3, on_dropped=on_dropped)
        recorder = Recorder.of(flux, 2)
        for element in range(10):
            subject.on_next(element)
        return subject, recorder

    @pytest.mark.parametrize(
        ("overflow", "kept", "given_up"),
        [(DROP_NEWEST, [2, 3, 4], [5, 6, 7, 8, 9]), (DROP_OLDEST, [7, 8, 9], [2, 3, 4, 5, 6])],
    )
    @pytest.mark.parametrize("told", [True, False])
    def test_what_has_no_room_is_given_up(
        self, overflow: Overflow, kept: list[int], given_up: list[int], told: bool
    ) -> None:
        dropped: list[int] = []
        subject, recorder = self.push_ten(overflow, dropped.append if told else None)
        assert recorder.items == [0, 1]

        subject.on_completed()
        recorder.request(100)

        assert recorder.check().items == [0, 1, *kept]
        assert recorder.completed
        assert dropped == (given_up if told else [])

    @pytest.mark.parametrize("told", [True, False])
    def test_or_the_stream_fails(self, told: bool) -> None:
        dropped: list[int] = []
        subject, recorder = self.push_ten(ERROR, dropped.append if told else None)
        assert not subject.observers, "the Observable has nobody left to send to"

        recorder.request(100)

        assert recorder.check().items == [0, 1, 2, 3, 4]
        assert isinstance(recorder.error, BufferOverflow)
        assert dropped == []

    def test_an_observable_that_sends_all_at_once_needs_room_for_it(self) -> None:
        flux = from_observable(reactivex.range(0, 100), overflow=ERROR, capacity=16)

        assert Recorder.of(flux, 84).request(16).check().completed
        assert isinstance(Recorder.of(flux, 83).request(17).check().error, BufferOverflow)

    @pytest.mark.parametrize("overflow", [DROP_NEWEST, DROP_OLDEST])
    def test_a_fast_thread_and_a_slow_subscriber_lose_nothing_uncounted(self, overflow: Overflow) -> None:
        total, capacity = 20_000, 32
        dropped: list[int] = []
        observable = reactivex.from_iterable(range(total), scheduler=NewThreadScheduler())
        flux = from_observable(observable, overflow=overflow, capacity=capacity, on_dropped=dropped.append)
        recorder = Recorder(8, lambda recorder, element: element % 7 or recorder.request(9))

        flux.subscribe(recorder)
        while len(recorder.items) + len(dropped) < total - capacity and not recorder.terminated:
            time.sleep(0.001)
        if not recorder.terminated:
            recorder.request(total)
        recorder.wait()

        assert recorder.completed
        assert sorted(recorder.items + dropped) == list(range(total))
        assert recorder.items == sorted(recorder.items)


class TestCancel:
    def test_it_disposes(self) -> None:
        subject: Subject[int] = Subject()
        recorder = Recorder.of(unbounded(subject), 10)
        assert len(subject.observers) == 1

        recorder.cancel()
        subject.on_next(1)

        assert not subject.observers
        assert recorder.items == []

    def test_inside_an_element_it_stops_an_observable_that_never_ends(self) -> None:
        taken = []

        def count() -> Any:
            for number in itertools.count():
                taken.append(number)
                yield number

        elements = unbounded(reactivex.from_iterable(count())).take(3).collect_list().block()

        assert elements == [0, 1, 2]
        assert taken == [0, 1, 2]

    def test_on_another_thread_it_stops_one_that_is_still_sending(self) -> None:
        stopped = threading.Event()
        endless = reactivex.from_iterable(itertools.count()).pipe(operators.finally_action(stopped.set))
        flux = from_observable(endless, overflow=DROP_NEWEST, capacity=1)

        recorder = Recorder(5)
        sending = threading.Thread(target=flux.subscribe, args=[recorder])
        sending.start()
        while len(recorder.items) < 5:
            time.sleep(0.001)
        recorder.cancel()
        sending.join(10)

        assert not sending.is_alive()
        assert stopped.is_set()
        assert len(recorder.check().items) == 5
        assert not recorder.terminated

    def test_before_the_first_element_nothing_is_subscribed_to(self) -> None:
        subscribed = []
        observable = reactivex.defer(lambda scheduler: subscribed.append(1) or reactivex.never())
        recorder = Recorder()
        recorder.on_subscribe = lambda subscription: subscription.cancel()  # type: ignore[method-assign]

        unbounded(observable).subscribe(recorder)

        assert subscribed == []


class TestArguments:
    def test_the_scheduler_is_that_of_the_subscription(self) -> None:
        flux = from_observable(reactivex.range(0, 3), overflow=ERROR, scheduler=NewThreadScheduler())

        recorder = Recorder.of(flux, 10).wait()

        assert recorder.items == [0, 1, 2]
        assert threading.current_thread().name in recorder.threads, "where it subscribed"
        assert len(recorder.threads) > 1

    def test_an_overflow_has_to_be_named(self) -> None:
        with pytest.raises(TypeError, match="overflow"):
            from_observable(reactivex.never())  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"Overflow\.DROP_OLDEST"):
            from_observable(reactivex.never(), overflow="drop")  # type: ignore[arg-type]

    def test_a_capacity_is_at_least_one(self) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            from_observable(reactivex.never(), overflow=ERROR, capacity=0)

    def test_a_publisher_is_no_observable(self) -> None:
        with pytest.raises(TypeError, match=r"Flux\.from_publisher"):
            from_observable(Flux.range(3), overflow=ERROR)  # type: ignore[arg-type]

    def test_explain_tells_of_the_queue(self) -> None:
        drawn = from_observable(reactivex.never(), overflow=ERROR, capacity=17).map(str).explain()

        assert "create(from_observable)" in drawn
        assert "17" in drawn
