"""Operators that split, time and share: a function that raises, a cancel at each element, a clock that jumps,
and three threads that emit at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import CircuitBreaker, Emitter, Flux, Mono, on_dropped
from penstock.testing import virtual_time
from tests.streams.recording import Recorder
from tests.streams.rules.test_many_inners import Tap

ELEMENTS = 12
Called = Callable[[int], object]


class Halt(BaseException):
    """What the functions raise: no Exception, so that a handler for those lets it pass."""


class Laden(int):
    """A number that carries bytes through the operators."""

    payload: bytes


def read_all(parts: Flux[Any]) -> Flux[Any]:
    return parts.flat_map(lambda part: part, concurrency=1000)


def calling(function: Called, result: Callable[[int], Any]) -> Callable[[int], Any]:
    """A function that first calls the one of the test."""

    def call(element: int) -> Any:
        function(element)
        return result(element)

    return call


OPERATORS: dict[str, Callable[[Flux[Any], Called], Flux[Any]]] = {
    "group_by": lambda flux, f: read_all(flux.group_by(calling(f, lambda x: x % 3))),
    "window": lambda flux, f: read_all(flux.do_on_next(f).window(3)),
    "window every": lambda flux, f: read_all(flux.do_on_next(f).window(every=1)),
    "window_timeout": lambda flux, f: read_all(flux.do_on_next(f).window_timeout(3, 1)),
    "window_until": lambda flux, f: read_all(flux.window_until(calling(f, lambda x: x % 4 == 0))),
    "window_until_changed": lambda flux, f: read_all(flux.window_until_changed(calling(f, lambda x: x // 4))),
    "buffer_timeout": lambda flux, f: flux.do_on_next(f).buffer_timeout(3, 1).flat_map_iterable(iter),
    "switch_map": lambda flux, f: flux.switch_map(calling(f, Flux.just)),
    "conflate": lambda flux, f: flux.conflate(
        calling(f, lambda x: [x]), lambda seen, x: [*seen, calling(f, lambda y: y)(x)]
    ).flat_map_iterable(iter),
    "rate_limit": lambda flux, f: flux.rate_limit(1_000_000, weight=calling(f, lambda _: 1)),
    "using_when": lambda flux, f: Flux.using_when(
        Mono.just(1), lambda _: flux.do_on_next(f), lambda _: Mono.empty()
    ),
    "circuit_breaker": lambda flux, f: flux.do_on_next(f).circuit_breaker(CircuitBreaker()),
    "replay": lambda flux, f: flux.do_on_next(f).replay(5, ttl=10).ref_count(),
    "ref_count": lambda flux, f: flux.do_on_next(f).publish().ref_count(1, grace=5),
    "merge_priority": lambda flux, f: Flux.merge_priority(flux.do_on_next(f), Flux.empty()),
}
every_operator = pytest.mark.parametrize("name", OPERATORS)


def give(tap: Tap, clock: Any, count: int) -> None:
    """As many elements as are asked for, with a little time for those that wait for a clock."""
    for element in range(count):
        if tap.requested <= element:
            clock.advance_by(0.5)
        if tap.cancelled or tap.requested <= element:
            break
        tap.give(element)
    clock.advance_by(20)


def asking_one_by_one() -> Recorder:
    return Recorder(1, lambda recorder, _: recorder.request(1))


@every_operator
@pytest.mark.parametrize(
    "reader", [lambda: Recorder(UNBOUNDED), asking_one_by_one], ids=["all", "one by one"]
)
def test_a_base_exception_in_a_function_ends_the_stream_and_its_source(
    name: str, reader: Callable[[], Recorder]
) -> None:
    for bad in range(ELEMENTS):

        def raise_at(element: int, bad: int = bad) -> None:
            if element == bad:
                raise Halt(bad)

        tap, recorder = Tap(), reader()
        with virtual_time() as clock:
            OPERATORS[name](Flux.from_publisher(tap), raise_at).subscribe(recorder)
            give(tap, clock, ELEMENTS)

        assert isinstance(recorder.check().error, Halt), f"at {bad}"
        assert tap.cancelled


@every_operator
def test_after_a_cancel_at_any_element_nothing_comes_and_the_source_is_cancelled(name: str) -> None:
    dropped: list[Any] = []
    for last in range(1, ELEMENTS):

        def leave(recorder: Recorder, _: object, last: int = last) -> None:
            if len(recorder.items) == last:
                recorder.cancel()

        tap, recorder = Tap(), Recorder(UNBOUNDED, leave)
        with (
            virtual_time() as clock,
            on_dropped(error=lambda *told: dropped.append(told), element=lambda *told: dropped.append(told)),
        ):
            OPERATORS[name](Flux.from_publisher(tap), lambda _: None).subscribe(recorder)
            give(tap, clock, 3 * ELEMENTS)

        assert len(recorder.check().items) == last
        assert not recorder.terminated
        assert tap.cancelled
        assert dropped == []


@every_operator
def test_a_clock_that_jumps_by_an_hour_loses_nothing(name: str) -> None:
    tap, recorder = Tap(), Recorder(UNBOUNDED)
    with virtual_time() as clock:
        OPERATORS[name](Flux.from_publisher(tap), lambda _: None).subscribe(recorder)
        for element in range(5):
            assert tap.requested > element
            tap.give(element)
            clock.advance_by(3600)
        tap.end()
        clock.advance_by(3600)

    assert recorder.check().completed
    assert sorted(recorder.items) == list(range(5))


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "switch_map"])
@pytest.mark.parametrize("size", [0, 1 << 20], ids=["small", "1 MiB"])
def test_three_threads_that_emit_at_once_lose_nothing(name: str, size: int) -> None:
    count = 30 if size else 300
    left = [3]
    mutex = threading.Lock()

    def start(emitter: Emitter[Laden]) -> None:
        def emit(first: int) -> None:
            for number in range(first, count, 3):
                element = Laden(number)
                element.payload = bytes(size)
                emitter.next(element)
            with mutex:
                left[0] -= 1
                is_last = not left[0]
            if is_last:
                emitter.complete()

        for first in range(3):
            threading.Thread(target=emit, args=(first,), daemon=True).start()

    recorder = asking_one_by_one()
    OPERATORS[name](Flux.create(start, capacity=count), lambda _: None).subscribe(recorder)
    recorder.wait()

    assert recorder.completed
    assert sorted(recorder.items) == list(range(count))
    assert all(len(element.payload) == size for element in recorder.items)
