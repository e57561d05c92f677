"""Loops without a counter: everything was requested of a collection.

The same chain runs twice. The second time the subscriber requests one element less than everything, and the
loop counts. Nobody must be able to tell the difference.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spec import UNBOUNDED, Subscription
from penstock.streams import Flux
from penstock.streams.fusion import PullDrain

PATIENCE = 20

OPERATORS: dict[str, Callable[[Flux[Any]], Flux[Any]]] = {
    "map": lambda flux: flux.map(lambda x: x + 1),
    "filter": lambda flux: flux.filter(lambda x: x % 3 > 0),
    "index": lambda flux: flux.index().map(lambda pair: pair[0] + pair[1]),
    "scan_with": lambda flux: flux.scan_with(lambda: 0, lambda a, b: a + b),
    "skip": lambda flux: flux.skip(5),
    "skip_while": lambda flux: flux.skip_while(lambda x: x < 7),
    "skip_last": lambda flux: flux.skip_last(3),
    "take": lambda flux: flux.take(25),
    "take_while": lambda flux: flux.take_while(lambda x: x < 30),
    "take_until": lambda flux: flux.take_until(lambda x: x > 30),
    "distinct": lambda flux: flux.distinct(lambda x: x // 2),
    "distinct_until_changed": lambda flux: flux.distinct_until_changed(lambda x: x // 2),
    "start_with": lambda flux: flux.start_with(1, 2),
    "default_if_empty": lambda flux: flux.default_if_empty(0),
    "handle": lambda flux: flux.handle(lambda x, sink: sink.next(x) if x % 5 else None),
    "handle to an end": lambda flux: flux.handle(lambda x, sink: sink.complete() if x > 20 else sink.next(x)),
    "buffer": lambda flux: flux.buffer(4).map(sum),
    "buffer at the end": lambda flux: flux.buffer(4).map_not_none(len),
    "take_last": lambda flux: flux.take_last(4),
    "do_on_complete": lambda flux: flux.do_on_complete(lambda: None),
    "sort": lambda flux: flux.sort(reverse=True),
    "flat": lambda flux: flux.flat_map_iterable(lambda x: (x, x)),
    "fails": lambda flux: flux.map(lambda x: 1 // (x - 19)),
    "ignore": lambda flux: flux.ignore_elements().flux().start_with(1),
    "all": lambda flux: flux.all(lambda x: x < 20).map(int).flux(),
}

COLLECTIONS: list[Callable[[int], Any]] = [range, lambda n: tuple(range(n)), lambda n: list(range(n))]


class Watching:
    """Notes every signal, and leaves after some elements."""

    def __init__(self, demand: int, leaves_after: int | None) -> None:
        self._demand = demand
        self._leaves_after = leaves_after
        self.signals: list[Any] = []
        self.subscription: Any = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.subscription = subscription
        subscription.request(self._demand)

    def on_next(self, element: Any, /) -> None:
        self.signals.append(element)
        if len(self.signals) == self._leaves_after:
            self.subscription.cancel()

    def on_error(self, error: BaseException, /) -> None:
        self.signals.append((type(error), str(error), getattr(error, "__notes__", [])))

    def on_complete(self) -> None:
        self.signals.append("complete")


def observed(flux: Flux[Any], demand: int, leaves_after: int | None = None) -> tuple[list[Any], int]:
    """All signals, and how many elements the stage says that it has sent."""
    watching = Watching(demand, leaves_after)
    flux.subscribe(watching)
    return watching.signals, watching.subscription.emitted


@given(
    names=st.lists(st.sampled_from(sorted(OPERATORS)), max_size=4),
    size=st.integers(0, 60),
    collection=st.sampled_from(COLLECTIONS),
    leaves_after=st.none() | st.integers(1, 40),
)
def test_a_free_loop_does_what_a_counting_one_does(
    names: list[str], size: int, collection: Callable[[int], Any], leaves_after: int | None
) -> None:
    flux: Flux[Any] = Flux.from_iterable(collection(size))
    for name in names:
        flux = OPERATORS[name](flux)

    free, counting = (observed(flux, n, leaves_after) for n in (UNBOUNDED, UNBOUNDED - 1))

    assert free == counting


def text_of_loop(drain: PullDrain) -> str:
    return drain._shape.loops[0].text


@pytest.mark.parametrize(("demand", "counts"), [(UNBOUNDED, False), (UNBOUNDED - 1, True)])
def test_only_a_loop_that_may_send_everything_does_not_count(demand: int, counts: bool) -> None:
    watching = Watching(demand, None)

    Flux.range(100).map(abs).subscribe(watching)

    assert ("e += 1" in text_of_loop(watching.subscription)) is counts


def test_a_stream_of_a_few_elements_has_one_text_for_all() -> None:
    watching = Watching(UNBOUNDED, None)

    Flux.just(1, 2, 3).subscribe(watching)

    assert "e += 1" in text_of_loop(watching.subscription)


def test_a_cancel_on_another_thread_stops_a_free_loop() -> None:
    seen, subscribed = [], threading.Event()

    class Slow(Watching):
        def on_next(self, element: Any, /) -> None:
            seen.append(element)
            if element == 100:
                subscribed.set()
                left.wait(PATIENCE)

    left = threading.Event()
    slow = Slow(UNBOUNDED, None)

    def leave() -> None:
        subscribed.wait(PATIENCE)
        slow.subscription.cancel()
        left.set()

    thread = threading.Thread(target=leave)
    thread.start()
    Flux.range(10**9).subscribe(slow)
    thread.join(PATIENCE)

    assert seen == list(range(101))
    assert slow.signals == []


def test_a_bad_request_inside_of_on_next_ends_a_free_loop() -> None:
    class Asking(Watching):
        def on_next(self, element: Any, /) -> None:
            super().on_next(element)
            if element == 20:
                self.subscription.request(0)

    asking = Asking(UNBOUNDED, None)
    Flux.range(100).subscribe(asking)

    assert asking.signals[:-1] == list(range(21))
    assert "3.9" in asking.signals[-1][1]


def test_a_list_that_grows_while_it_is_read_is_read_to_its_end() -> None:
    elements = list(range(50))

    class Growing(Watching):
        def on_next(self, element: Any, /) -> None:
            super().on_next(element)
            if element == 10:
                elements.extend(range(100, 120))

    growing = Growing(UNBOUNDED, None)
    Flux.from_iterable(elements).subscribe(growing)

    grown = [*range(50), *range(100, 120)]
    assert growing.signals == [*grown, "complete"]
    assert growing.subscription.emitted == len(grown)


def test_a_retry_after_a_failure_in_a_free_loop_sends_everything_again() -> None:
    tries = iter((25, 1000))

    def source() -> Flux[int]:
        bad = next(tries)
        return Flux.range(40).map(lambda x: 1 // (x - bad) * 0 + x)

    signals, emitted = observed(Flux.defer(source).retry(1), UNBOUNDED)

    assert signals == [*range(25), *range(40), "complete"]
    assert emitted == 65
