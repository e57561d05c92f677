"""Streams as Observables: a slow observer slows the stream down, and disposing cancels it."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest
import reactivex
from reactivex import operators
from reactivex.scheduler import NewThreadScheduler, VirtualTimeScheduler

from penstock.interop.reactivex_bridge import from_observable, to_observable
from penstock.streams import Flux, Mono, Overflow, schedulers
from tests.streams.operators.rigs import Counting, Elsewhere, Oops


class Observer:
    """Writes down what it gets."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.error: BaseException | None = None
        self.completed = False
        self.finished = threading.Event()
        self.threads: set[str] = set()

    def on_next(self, element: Any) -> None:
        self.threads.add(threading.current_thread().name)
        self.items.append(element)

    def on_error(self, error: BaseException) -> None:
        self.error = error
        self.finished.set()

    def on_completed(self) -> None:
        self.completed = True
        self.finished.set()


def observed(publisher: Any, **options: Any) -> Observer:
    observer = Observer()
    to_observable(publisher, **options).subscribe(observer)  # type: ignore[arg-type]
    return observer


class TestSignals:
    def test_elements_and_the_end_come_in_order(self) -> None:
        observer = observed(Flux.range(1_000))

        assert observer.items == list(range(1_000))
        assert observer.completed

    def test_an_error_comes_after_the_elements(self) -> None:
        error = Oops("in the stream")

        observer = observed(Flux.just(1, 2).concat_with(Flux.error(error)))

        assert observer.items == [1, 2]
        assert observer.error is error
        assert not observer.completed

    def test_an_empty_stream_completes(self) -> None:
        assert observed(Flux.empty()).completed

    def test_a_mono_is_a_publisher_too(self) -> None:
        assert observed(Mono.just("only")).items == ["only"]

    def test_a_foreign_publisher_is(self) -> None:
        assert observed(Elsewhere("a", "b")).items == ["a", "b"]

    def test_each_observer_gets_a_run_of_its_own(self) -> None:
        observable = to_observable(Flux.range(3))

        runs = [observable.pipe(operators.to_list()).run() for _ in range(2)]

        assert runs == [[0, 1, 2], [0, 1, 2]]

    def test_it_joins_chains_of_reactivex(self) -> None:
        zipped = reactivex.zip(to_observable(Flux.range(3)), to_observable(Flux.just("a", "b", "c")))

        assert zipped.pipe(operators.to_list()).run() == [(0, "a"), (1, "b"), (2, "c")]

    def test_there_and_back_again(self) -> None:
        observable = to_observable(Flux.range(10)).pipe(operators.map(lambda n: n * n))

        flux = from_observable(observable, overflow=Overflow.ERROR)

        assert flux.collect_list().block() == [n * n for n in range(10)]


class TestWindow:
    @pytest.mark.parametrize("prefetch", [1, 2, 3, 4, 16, 100, 1_000])
    def test_never_more_is_asked_for_than_the_window_ahead_of_what_is_done(self, prefetch: int) -> None:
        source = Elsewhere(*range(250))
        observer, ahead = Observer(), []

        def on_next(element: int) -> None:
            ahead.append(source.asked - len(observer.items))
            observer.on_next(element)
            ahead.append(source.asked - len(observer.items))

        to_observable(source, prefetch=prefetch).subscribe(on_next, observer.on_error, observer.on_completed)

        assert observer.items == list(range(250))
        assert observer.completed
        assert source.requests[0] == prefetch
        assert max(ahead) == prefetch

    def test_the_next_are_asked_for_when_three_quarters_are_done(self) -> None:
        requests: list[int] = []

        observed(Flux.range(20).do_on_request(requests.append), prefetch=8)

        assert requests == [8, 6, 6, 6]

    def test_a_slow_observer_holds_a_thread_back(self) -> None:
        source = Counting(10_000)
        go_on = threading.Event()
        observer = Observer()

        def on_next(element: int) -> None:
            observer.on_next(element)
            if element == 5:
                go_on.wait(10)

        with schedulers.single("source") as pulling, schedulers.single("observer") as observing:
            flux = Flux.from_iterable(source).subscribe_on(pulling).publish_on(observing, prefetch=16)
            to_observable(flux, prefetch=4).subscribe(on_next, observer.on_error, observer.on_completed)
            while len(observer.items) < 5:
                time.sleep(0.001)
            time.sleep(0.05)
            taken = source.taken
            go_on.set()
            assert observer.finished.wait(20)

        assert taken <= 5 + 16
        assert observer.items == list(range(1, 10_001))

    @pytest.mark.parametrize("prefetch", [0, -1])
    def test_a_window_is_at_least_one(self, prefetch: int) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            to_observable(Flux.range(3), prefetch=prefetch)

    def test_an_observable_is_no_publisher_of_ours(self) -> None:
        with pytest.raises(TypeError):
            to_observable(42)  # type: ignore[arg-type]


class TestDispose:
    def test_it_cancels(self) -> None:
        source = Counting(100)
        observer = Observer()
        subscription = to_observable(Flux.from_iterable(source).concat_with(Flux.never())).subscribe(
            observer.on_next, observer.on_error, observer.on_completed
        )
        assert len(observer.items) == 100

        subscription.dispose()
        subscription.dispose()

        assert not observer.finished.is_set()

    def test_a_publisher_that_waits_is_told(self) -> None:
        source = Elsewhere(1)
        source._left = []
        source.request = lambda n: None  # type: ignore[method-assign]

        subscription = to_observable(source).subscribe()
        assert not source.cancelled
        subscription.dispose()

        assert source.cancelled

    def test_inside_an_element_it_stops_a_stream_that_never_ends(self) -> None:
        taken = []
        flux = Flux.from_iterable(itertools.count()).do_on_next(taken.append)

        assert to_observable(flux).pipe(operators.take(3), operators.to_list()).run() == [0, 1, 2]
        assert taken == [0, 1, 2]

    def test_before_the_scheduler_gets_to_it_nothing_is_subscribed_to(self) -> None:
        source = Elsewhere(1, 2)
        scheduler = VirtualTimeScheduler()

        to_observable(source).subscribe(scheduler=scheduler).dispose()
        scheduler.start()

        assert source.requests == []


class TestObserverThatRaises:
    def test_the_stream_is_cancelled_and_the_observer_hears_of_it(self) -> None:
        source = Counting(100)
        observer = Observer()

        def on_next(element: int) -> None:
            observer.on_next(element)
            if element == 3:
                raise Oops("in the observer")

        to_observable(Flux.from_iterable(source)).subscribe(on_next, observer.on_error, observer.on_completed)

        assert observer.items == [1, 2, 3]
        assert isinstance(observer.error, Oops)
        assert not observer.completed
        assert source.closed


class TestThreads:
    def test_elements_may_come_from_another_thread(self) -> None:
        with schedulers.single("elsewhere") as elsewhere:
            observer = observed(Flux.range(5_000).publish_on(elsewhere), prefetch=64)
            assert observer.finished.wait(20)

        assert observer.items == list(range(5_000))
        assert observer.threads == {"penstock-elsewhere"}

    def test_the_stream_is_started_on_the_scheduler_of_the_subscription(self) -> None:
        observer = Observer()

        to_observable(Flux.range(100)).subscribe(observer, scheduler=NewThreadScheduler())  # type: ignore[arg-type]

        assert observer.finished.wait(20)
        assert observer.items == list(range(100))
        assert threading.current_thread().name not in observer.threads
