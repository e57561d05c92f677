"""Ten thousand inner streams at once: work and memory grow with their number, not with its square."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono
from tests.streams.recording import Recorder

FEW, MANY = 100, 1000
CONCURRENT = 10_000


class Tap:
    """A publisher for one subscriber, which gets its element and its end when the test says so."""

    __slots__ = ("cancelled", "requested", "subscriber")

    def __init__(self) -> None:
        self.subscriber: Any = None
        self.requested = 0
        self.cancelled = False

    def subscribe(self, subscriber: Any, /) -> None:
        self.subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        self.requested = min(UNBOUNDED, self.requested + n)

    def cancel(self) -> None:
        self.cancelled = True

    def give(self, element: Any) -> None:
        self.subscriber.on_next(element)

    def end(self) -> None:
        self.subscriber.on_complete()


Joined = Callable[[list[Tap]], Flux[Any]]

AT_ONCE: dict[str, Joined] = {
    "flat_map": lambda taps: Flux.from_iterable(taps).flat_map(Flux.from_publisher, concurrency=CONCURRENT),
    "flat_map_sequential": lambda taps: Flux.from_iterable(taps).flat_map_sequential(
        Flux.from_publisher, concurrency=CONCURRENT
    ),
    "flat_map_delay_error": lambda taps: Flux.from_iterable(taps).flat_map_delay_error(
        Flux.from_publisher, concurrency=CONCURRENT
    ),
    "merge": lambda taps: Flux.merge(*map(Flux.from_publisher, taps)),
    "merge_delay_error": lambda taps: Flux.merge_delay_error(*map(Flux.from_publisher, taps)),
    "merge_sequential": lambda taps: Flux.merge_sequential(*map(Flux.from_publisher, taps)),
    "merge_ordered": lambda taps: Flux.merge_ordered(*map(Flux.from_publisher, taps)),
    "merge_priority": lambda taps: Flux.merge_priority(*map(Flux.from_publisher, taps)),
    "merge_priority by key": lambda taps: Flux.merge_priority(
        *map(Flux.from_publisher, taps), key=lambda x: -x
    ),
    "zip": lambda taps: Flux.zip(*map(Flux.from_publisher, taps)).flat_map_iterable(lambda row: row),
    "group_by": lambda taps: (
        Flux.range(len(taps))
        .group_by(lambda x: x, max_groups=CONCURRENT, prefetch=CONCURRENT)
        .flat_map(
            lambda group: group.take(1).concat_map(lambda x: Flux.from_publisher(taps[x])),
            concurrency=CONCURRENT,
        )
    ),
    "flat_map of flat_map": lambda taps: (
        Flux.from_iterable(taps)
        .buffer(10)
        .flat_map(lambda ten: Flux.from_iterable(ten).flat_map(Flux.from_publisher), concurrency=CONCURRENT)
    ),
}
every_join = pytest.mark.parametrize("name", AT_ONCE)


class Calls:
    """Counts the calls of functions, in Python and in C, on this thread and on those that it starts."""

    def __init__(self) -> None:
        self.count = 0

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1

    def __enter__(self) -> Calls:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def through(name: str, number: int) -> tuple[list[Tap], Recorder]:
    """Everything is subscribed to, each stream sends an element, and all end."""
    taps = [Tap() for _ in range(number)]
    recorder = Recorder.of(AT_ONCE[name](taps), UNBOUNDED)
    assert all(0 < tap.requested <= 32 for tap in taps)
    for element, tap in enumerate(taps):
        tap.give(element)
    for tap in taps:
        tap.end()
    return taps, recorder


@every_join
def test_the_work_of_many_streams_at_once_is_not_quadratic(name: str) -> None:
    def calls(number: int) -> int:
        with Calls() as counted:
            _, recorder = through(name, number)
        assert sorted(recorder.check().items) == list(range(number))
        assert recorder.completed
        return counted.count

    calls(FEW)  # compiles
    few, many = calls(FEW), calls(MANY)

    assert many / few < 1.5 * MANY / FEW, (
        f"{few / FEW:.0f} calls for each of {FEW}, {many / MANY:.0f} of {MANY}"
    )


@every_join
def test_the_work_of_a_cancel_of_many_streams_is_not_quadratic(name: str) -> None:
    def calls(number: int) -> int:
        taps = [Tap() for _ in range(number)]
        recorder = Recorder.of(AT_ONCE[name](taps), UNBOUNDED)
        with Calls() as counted:
            recorder.cancel()
        assert all(tap.cancelled for tap in taps)
        return counted.count

    calls(FEW)
    few, many = calls(FEW), calls(MANY)

    assert many / few < 1.5 * MANY / FEW, (
        f"{few / FEW:.0f} calls for each of {FEW}, {many / MANY:.0f} of {MANY}"
    )


@pytest.mark.slow
@pytest.mark.rare(3, kind="ten thousand streams")
@every_join
def test_memory_of_ten_thousand_streams_at_once(name: str) -> None:
    """What a stream costs is the same whether there are a thousand or ten thousand, and is given back."""

    def blocks(number: int) -> tuple[int, int]:
        gc.collect()
        before = sys.getallocatedblocks()
        taps = [Tap() for _ in range(number)]
        recorder = Recorder.of(AT_ONCE[name](taps), UNBOUNDED)
        held = sys.getallocatedblocks() - before
        for element, tap in enumerate(taps):
            tap.give(element)
            tap.end()
        assert recorder.check().completed
        assert sorted(recorder.items) == list(range(number))
        del taps, tap, recorder
        gc.collect()
        return held, sys.getallocatedblocks() - before

    seen: list[tuple[int, int, int]] = []

    def is_as_it_should_be() -> bool:
        held, _ = blocks(1000)
        ten_times, left = blocks(CONCURRENT)
        seen.append((held, ten_times, left))
        return ten_times < 11 * held and ten_times / CONCURRENT < 100 and left < CONCURRENT / 10

    blocks(100)

    # The blocks of other threads of the process count as well, but what they do happens once.
    assert is_as_it_should_be() or is_as_it_should_be(), seen


@pytest.mark.slow
def test_memory_of_ten_thousand_switches() -> None:
    """A stream that was switched away from is let go of."""
    taps: list[Tap] = []
    most = 0

    def next_tap(_: int) -> Flux[Any]:
        nonlocal most
        taps.append(Tap())
        if len(taps) > 2:
            assert taps.pop(0).cancelled
        if len(taps) == 2:
            most = max(most, sys.getallocatedblocks())
        return Flux.from_publisher(taps[-1])

    source = Tap()
    recorder = Recorder.of(Flux.from_publisher(source).switch_map(next_tap), UNBOUNDED)
    for number in range(100):
        source.give(number)
    gc.collect()
    before, most = sys.getallocatedblocks(), 0
    for number in range(CONCURRENT):
        source.give(number)

    assert most - before < 5000  # between two runs of the garbage collector
    taps[-1].give("newest")
    source.end()
    taps[-1].end()
    assert recorder.check().items == ["newest"]
    assert recorder.completed


@pytest.mark.parametrize("key", [None, lambda x: -x], ids=["by place", "by key"])
def test_an_element_of_the_last_of_many_streams_costs_no_look_at_all_the_others(
    key: Callable[[int], int] | None,
) -> None:
    """Lines are counted, because a look at a queue is no call."""

    def lines(number: int) -> int:
        taps = [Tap() for _ in range(number)]
        recorder = Recorder.of(Flux.merge_priority(*map(Flux.from_publisher, taps), key=key), UNBOUNDED)
        count = 0

        def traced(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal count
            count += 1
            return traced

        before = sys.gettrace()
        gc.collect()
        gc.disable()  # The lines of what it may call are not ours.
        sys.settrace(traced)
        try:
            for element in range(30):
                taps[-1].give(element)
        finally:
            sys.settrace(before)
            gc.enable()
        assert recorder.check().items == list(range(30))
        return count

    lines(FEW)

    assert lines(MANY) == lines(FEW)


def test_monos_side_by_side_are_not_quadratic_either() -> None:
    def calls(number: int) -> int:
        taps = [Tap() for _ in range(number)]
        with Calls() as counted:
            recorder = Recorder.of(Mono.zip(*map(Mono.from_publisher, taps)), 1)
            for tap in taps:
                tap.give(1)
        assert recorder.check().items == [(1,) * number]
        return counted.count

    calls(FEW)
    few, many = calls(FEW), calls(MANY)

    assert many / few < 1.5 * MANY / FEW
