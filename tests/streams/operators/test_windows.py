"""Windows: streams that follow each other, by number, by clock and by predicate."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, schedulers
from penstock.streams.operators import splitter
from tests.streams.operators.rigs import Counting, Oops, oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.operators.test_group_by import Warned
from tests.streams.recording import Recorder


def lists(windows: Flux[Flux[Any]]) -> list[list[Any]]:
    """The windows as lists, read one after the other."""
    return windows.concat_map(lambda window: window.collect_list()).collect_list().block(20) or []


KINDS: dict[str, Callable[[Flux[Any]], Flux[Flux[Any]]]] = {
    "window": lambda f: f.window(3),
    "window every": lambda f: f.window(every=1000),
    "window_timeout": lambda f: f.window_timeout(3, 1000),
    "window_until": lambda f: f.window_until(lambda x: x % 3 == 2),
    "window_until_changed": lambda f: f.window_until_changed(lambda x: x // 4),
    "window_while": lambda f: f.window_while(lambda x: x % 4),
}
EACH = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (lambda f: f.window(2), [[1, 2], [3, 4], [5]]),
        (lambda f: f.window(5), [[1, 2, 3, 4, 5]]),
        (lambda f: f.window(9), [[1, 2, 3, 4, 5]]),
        (lambda f: f.window(1), [[1], [2], [3], [4], [5]]),
        (lambda f: f.window(every=60), [[1, 2, 3, 4, 5]]),
        (lambda f: f.window_timeout(2, 60), [[1, 2], [3, 4], [5]]),
        (lambda f: f.window_until(lambda x: x % 2 == 0), [[1, 2], [3, 4], [5]]),
        (lambda f: f.window_until(lambda x: x == 5), [[1, 2, 3, 4, 5]]),
        (lambda f: f.window_until(lambda x: x % 2 == 0, cut_before=True), [[1], [2, 3], [4, 5]]),
        (lambda f: f.window_until(lambda x: x == 1, cut_before=True), [[1, 2, 3, 4, 5]]),
        (lambda f: f.window_while(lambda x: x != 3), [[1, 2], [4, 5]]),
        (lambda f: f.window_while(lambda x: x == 3), [[3]]),
        (lambda f: f.window_while(lambda x: False), []),
    ],
)
def test_the_windows_of_a_list(windows: Callable[[Flux[int]], Flux[Flux[int]]], expected: Any) -> None:
    assert lists(windows(Flux.range(1, 5))) == expected


@EACH
def test_an_empty_source_has_no_window(kind: str) -> None:
    windows = Recorder.of(KINDS[kind](Flux.empty()))

    assert (windows.items, windows.completed) == ([], True)


@EACH
def test_a_window_is_read_while_it_is_open(kind: str) -> None:
    source = Driven()
    windows = Recorder.of(KINDS[kind](source.flux()), 1)
    source.emit(1)
    window = Recorder.of(windows.items[0], UNBOUNDED)
    assert window.items == [1]

    source.emit(2)

    assert window.items == [1, 2]
    window.check()
    windows.check()


@EACH
def test_window_that_nobody_reads_does_not_hang_the_source(kind: str) -> None:
    source = Counting(10_000)

    assert KINDS[kind](Flux.from_iterable(source)).map(lambda _: 1).block_last(20) == 1
    assert source.taken == 10_000


@pytest.mark.parametrize("kind", ["window", "window_timeout"])
def test_a_window_with_a_size_keeps_its_elements_for_a_late_reader(kind: str) -> None:
    windows = KINDS[kind](Flux.range(7)).collect_list().block(20)

    assert windows is not None
    assert [window.collect_list().block() for window in windows] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_window_that_is_held_and_not_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitter, "UNREAD_AFTER", 0.001)
    with Warned() as warned:
        windows = Recorder.of(Flux.range(100).window_until(lambda x: False, prefetch=8), UNBOUNDED)
        assert warned.there.wait(20)

    assert "8 elements wait for window 1 of window_until(λ)" in warned.texts[0]
    assert Recorder.of(windows.items[0], UNBOUNDED).wait().items == list(range(100))


def test_a_window_by_the_clock_that_is_held_and_not_read_ends_in_time() -> None:
    clock = schedulers.virtual_time()
    source = Driven()
    windows = Recorder.of(source.flux().window(every=1, prefetch=4, scheduler=clock), UNBOUNDED)
    source.emit(1, 2, 3, 4)
    assert source.requests == [4]

    clock.advance_by(1)

    assert sum(source.requests) == 8
    source.emit(5)
    assert len(windows.items) == 2
    assert Recorder.of(windows.items[0], UNBOUNDED).wait().items == [1, 2, 3, 4]


def test_spans_are_counted_from_the_subscription_and_quiet_ones_have_no_window() -> None:
    clock = schedulers.virtual_time()
    source = Driven()
    seen: list[Any] = []
    windows = source.flux().window(every=1, scheduler=clock)
    windows.concat_map(lambda window: window.collect_list()).subscribe(
        lambda window: seen.append((clock.now(), window))
    )
    clock.advance_by(0.5)
    source.emit("a")
    clock.advance_by(0.75)
    source.emit("b")
    clock.advance_by(3)
    source.emit("c", "d").complete()

    assert seen == [(1.0, ["a"]), (2.0, ["b"]), (4.25, ["c", "d"])]
    assert clock.pending == 0


def test_a_window_with_a_time_limit_closes_at_its_size_or_its_time() -> None:
    clock = schedulers.virtual_time()
    source = Driven()
    seen: list[Any] = []
    windows = source.flux().window_timeout(2, 1, clock)
    windows.concat_map(lambda window: window.collect_list()).subscribe(
        lambda window: seen.append((clock.now(), window))
    )
    source.emit(1, 2, 3)
    clock.advance_by(0.75)
    assert seen == [(0.0, [1, 2])]
    clock.advance_by(0.75)
    source.emit(4)
    clock.advance_by(0.75)
    source.emit(5)

    assert seen == [(0.0, [1, 2]), (1.0, [3]), (2.25, [4, 5])]


@pytest.mark.parametrize("kind", ["window", "window_timeout"])
def test_a_size_is_asked_for_as_often_as_windows_are(kind: str) -> None:
    source = Driven()
    windows = Recorder.of(KINDS[kind](source.flux()))
    assert source.requests == []

    windows.request(2)
    assert sum(source.requests) == 6
    source.emit(1, 2, 3, 4)
    windows.request(1)

    assert sum(source.requests) == 9
    assert len(windows.items) == 2
    windows.check()


@pytest.mark.parametrize("kind", ["window every", "window_until", "window_while"])
def test_no_window_opens_without_demand_for_it(kind: str) -> None:
    source = Driven()
    windows = Recorder.of(KINDS[kind](source.flux()), 1)
    source.emit(1, 2, 3)
    first = Recorder.of(windows.items[0], UNBOUNDED)
    source.emit(4, 5)
    source.complete()
    assert len(windows.items) == 1

    windows.request(5)

    assert windows.completed
    seen = [first.items, *(Recorder.of(window, UNBOUNDED).items for window in windows.items[1:])]
    expected = [[1, 2, 3, 4, 5]] if kind == "window every" else None
    assert seen == (expected or lists(KINDS[kind](Flux.range(1, 5))))
    windows.check()


def test_the_predicate_is_asked_once_for_each_element() -> None:
    asked: list[int] = []
    source = Driven()
    windows = Recorder.of(source.flux().window_until(lambda x: asked.append(x) or x == 2), 1)
    source.emit(1, 2, 3)
    windows.request(1)
    source.emit(4)

    assert asked == [1, 2, 3, 4]


@EACH
def test_the_open_window_goes_on_when_the_stream_of_windows_is_cancelled(kind: str) -> None:
    source = Driven()
    parts: list[Recorder] = []
    KINDS[kind](source.flux()).take(1).subscribe(lambda w: parts.append(Recorder.of(w, UNBOUNDED)))
    source.emit(1)
    assert not source.cancelled

    source.emit(2, 3, 4) if kind != "window every" else source.emit(2).complete()

    assert parts[0].completed
    assert parts[0].items[:2] == [1, 2]
    assert source.cancelled or kind == "window every"


@EACH
def test_the_source_is_cancelled_when_the_window_is_too(kind: str) -> None:
    source = Driven()
    windows = Recorder.of(KINDS[kind](source.flux()), UNBOUNDED)
    source.emit(1)
    window = Recorder.of(windows.items[0], UNBOUNDED)

    window.cancel()
    assert not source.cancelled
    windows.cancel()

    assert source.cancelled


@EACH
def test_a_cancel_returns_although_the_source_is_endless_and_synchronous(kind: str) -> None:
    seen = Recorder.of(KINDS[kind](Flux.range(1 << 40).filter(lambda x: x % 4)).concat_map(lambda w: w))
    seen.on_element = lambda *_: seen.cancel()

    seen.request(1)

    assert len(seen.items) == 1


def test_a_window_left_early_does_not_end_the_others() -> None:
    firsts = Flux.range(9).window(3).concat_map(lambda window: window.take(1))

    assert firsts.collect_list().block() == [0, 3, 6]


@EACH
def test_an_error_of_the_source_ends_the_window_and_the_stream_of_windows(kind: str) -> None:
    source = Driven()
    windows = Recorder.of(KINDS[kind](source.flux()), UNBOUNDED)
    source.emit(1)
    window = Recorder.of(windows.items[0], UNBOUNDED)

    source.fail(Oops("gone"))

    assert (type(windows.error), type(window.error), window.items) == (Oops, Oops, [1])


@pytest.mark.parametrize("operator", ["window_until", "window_while"])
def test_an_error_in_the_predicate_cancels_the_source(operator: str) -> None:
    source = Driven()
    windows = Recorder.of(getattr(source.flux(), operator)(oops), UNBOUNDED)

    source.emit(1)

    assert isinstance(windows.error, Oops)
    assert source.cancelled


def test_a_closed_scheduler_is_an_error_and_not_a_window_without_end() -> None:
    scheduler = schedulers.single("closing")
    source = Driven()
    windows = Recorder.of(source.flux().window_timeout(5, 1000, scheduler), UNBOUNDED)
    source.emit(1)
    scheduler.close()

    with pytest.raises(schedulers.SchedulerClosed):
        raise windows.wait().error or AssertionError("no error")
    assert source.cancelled


def test_large_windows_are_bounded_by_what_is_read() -> None:
    source = Driven()
    windows = Recorder.of(source.flux().window_until(lambda x: False, prefetch=4), 1)
    source.emit(1, 2, 3, 4)
    assert source.requests == [4]
    window = Recorder.of(windows.items[0])
    assert source.requests == [4]

    window.request(2)

    assert (window.items, source.requests) == ([1, 2], [4, 2])


def test_a_window_let_go_of_while_the_source_waits_sets_it_going() -> None:
    source = Counting(1000)
    windows = Recorder.of(Flux.from_iterable(source).window_until(lambda x: x == 997, prefetch=4), UNBOUNDED)
    assert source.taken == 4

    windows.items.clear()
    gc.collect()

    windows.wait()
    assert Recorder.of(windows.items[-1], UNBOUNDED).wait().items == [998, 999, 1000]


@EACH
def test_windows_read_on_other_threads_lose_nothing(kind: str) -> None:
    with schedulers.pool(3, "windows") as pool:
        elements = (
            KINDS[kind](Flux.range(2000).publish_on(pool))
            .publish_on(pool, prefetch=2)
            .concat_map(lambda window: window.publish_on(pool, prefetch=2))
            .collect_list()
            .block(30)
        )

    assert elements == [x for x in range(2000) if kind != "window_while" or x % 4]


def test_real_time_windows_under_load() -> None:
    ends = threading.Event()
    with schedulers.pool(2, "windows") as pool:
        elements = (
            Flux.range(20_000)
            .publish_on(pool)
            .window(every=0.001)
            .concat_map(lambda window: window)
            .do_finally(lambda _: ends.set())
            .collect_list()
            .block(30)
        )

    assert elements == list(range(20_000))
    assert ends.is_set()


def test_either_a_size_or_a_span() -> None:
    with pytest.raises(TypeError, match="either a size or every=seconds"):
        Flux.just(1).window()  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="either a size or every=seconds"):
        Flux.just(1).window(1, every=2)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="more than 0 seconds"):
        Flux.just(1).window(every=0)
