"""``window(size, skip)``: windows that overlap, or that leave elements out between them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, schedulers
from tests.streams.operators.rigs import Counting, Oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


def lists(flux: Flux[Any], size: int, skip: int) -> list[list[Any]]:
    """The windows as lists, read one after the other."""
    windows = flux.window(size, skip).concat_map(lambda window: window.collect_list())
    return windows.collect_list().block(20) or []


@given(st.integers(0, 20), st.integers(1, 7), st.integers(1, 7))
def test_the_windows_are_the_lists_of_buffer(total: int, size: int, skip: int) -> None:
    expected = Flux.range(total).buffer(size, skip).collect_list().block()

    assert lists(Flux.range(total), size, skip) == expected
    windows = Flux.range(total).window(size, skip).collect_list().block()
    assert windows is not None
    assert [window.collect_list().block() for window in windows] == expected


def test_an_element_reaches_all_windows_that_it_belongs_to_at_once() -> None:
    source = Driven()
    windows = Recorder.of(source.flux().window(3, skip=1), UNBOUNDED)
    source.emit(1)
    first = Recorder.of(windows.items[0], UNBOUNDED)
    source.emit(2)
    second = Recorder.of(windows.items[1], UNBOUNDED)
    source.emit(3)

    assert (first.items, second.items) == ([1, 2, 3], [2, 3])
    assert first.completed
    assert not second.terminated


@pytest.mark.parametrize(("size", "skip", "first", "second"), [(3, 2, 3, 2), (2, 3, 2, 3), (4, 1, 4, 1)])
def test_the_first_window_takes_its_size_and_each_later_one_the_skip(
    size: int, skip: int, first: int, second: int
) -> None:
    source = Driven()
    windows = Recorder.of(source.flux().window(size, skip))
    assert source.requests == []
    windows.request(1)
    assert source.requests == [first]
    source.emit(*range(first))
    assert len(windows.items) == 1
    windows.request(2)

    assert source.requests == [first, 2 * second]
    windows.check()


def test_a_window_that_was_not_asked_for_waits_for_demand() -> None:
    source = Driven()
    windows = Recorder.of(source.flux().window(2, skip=1), 1)
    source.emit(1, 2).complete()
    assert len(windows.items) == 1
    assert not windows.completed

    windows.request(1)

    assert [Recorder.of(window, UNBOUNDED).items for window in windows.items] == [[1, 2], [2]]
    assert windows.completed
    windows.check()


def test_overlapping_windows_that_are_read_one_after_the_other_do_not_wait_for_each_other() -> None:
    assert lists(Flux.range(50), 10, 1) == [list(range(x, min(x + 10, 50))) for x in range(50)]


def test_windows_that_nobody_reads_do_not_stop_the_source() -> None:
    source = Counting(10_000)

    assert Flux.from_iterable(source).window(4, skip=2).count().block(20) == 5000
    assert source.taken == 10_000


def test_take_takes_the_elements_of_its_windows_and_no_more() -> None:
    source = Counting(1000)
    taken = Flux.from_iterable(source).window(3, skip=2).take(2).flat_map(lambda w: w.collect_list())

    assert sorted(taken.collect_list().block()) == [[1, 2, 3], [3, 4, 5]]
    assert source.taken == 5
    assert source.closed


def test_open_windows_go_on_when_the_stream_of_windows_is_cancelled() -> None:
    source = Driven()
    windows = Recorder.of(source.flux().window(3, skip=1), 2)
    source.emit(1, 2)
    first, second = (Recorder.of(window, UNBOUNDED) for window in windows.items)
    windows.cancel()
    assert not source.cancelled
    source.emit(3)
    assert first.completed
    assert not source.cancelled
    source.emit(4)

    assert second.items == [2, 3, 4]
    assert second.completed
    assert source.cancelled
    windows.check()


def test_the_source_is_cancelled_when_all_open_windows_are() -> None:
    source = Driven()
    windows = Recorder.of(source.flux().window(3, skip=1), 1)
    source.emit(1, 2)  # opens a second one, which was not asked for
    window = Recorder.of(windows.items[0], UNBOUNDED)
    windows.cancel()
    assert not source.cancelled
    window.cancel()

    assert source.cancelled


def test_a_cancel_returns_although_the_source_is_endless_and_synchronous() -> None:
    for skip in (1, 3):
        seen = Recorder.of(Flux.range(1 << 40).window(2, skip).concat_map(lambda window: window))
        seen.on_element = lambda *_, recorder=seen: recorder.cancel()
        seen.request(1)

        assert len(seen.items) == 1


def test_an_error_ends_all_open_windows_and_the_stream_of_windows() -> None:
    source = Driven()
    windows = Recorder.of(source.flux().window(3, skip=1), UNBOUNDED)
    source.emit(1, 2)
    open_ones = [Recorder.of(window, UNBOUNDED) for window in windows.items]
    source.fail(Oops("gone"))

    assert [type(each.error) for each in (windows, *open_ones)] == [Oops, Oops, Oops]
    assert [each.items for each in open_ones] == [[1, 2], [2]]


@pytest.mark.parametrize("skip", [1, 2, 5])
def test_on_threads_nothing_is_lost(skip: int) -> None:
    with schedulers.pool(3, "windows") as pool:
        found = (
            Flux.range(1000)
            .publish_on(pool)
            .window(3, skip)
            .publish_on(pool, prefetch=2)
            .concat_map(lambda window: window.publish_on(pool, prefetch=2).collect_list())
            .collect_list()
            .block(30)
        )

    assert found == Flux.range(1000).buffer(3, skip).collect_list().block()


def test_a_span_has_no_skip() -> None:
    with pytest.raises(TypeError, match="no skip"):
        Flux.just(1).window(skip=2, every=1)  # type: ignore[call-overload]
    with pytest.raises((TypeError, ValueError), match="window"):
        Flux.just(1).window(2, 0)
