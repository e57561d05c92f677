"""``buffer_until_changed`` and ``window_until_changed``: neighbours with the same key."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spec import UNBOUNDED
from penstock.streams import Flux
from tests.streams.operators.rigs import Oops, oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


def windows(flux: Flux[Any], key: Any = None) -> Flux[list[Any]]:
    return flux.window_until_changed(key).concat_map(lambda window: window.collect_list())


@given(st.lists(st.integers(0, 3), max_size=20))
def test_the_runs_are_those_of_groupby(elements: list[int]) -> None:
    runs = [list(run) for _, run in groupby(elements)]
    halves = [list(run) for _, run in groupby(elements, lambda x: x // 2)]

    assert list(Flux.from_iterable(elements).buffer_until_changed()) == runs
    assert list(windows(Flux.from_iterable(elements))) == runs
    assert list(Flux.from_iterable(elements).buffer_until_changed(lambda x: x // 2)) == halves
    assert list(windows(Flux.from_iterable(elements), lambda x: x // 2)) == halves


def test_each_subscriber_begins_with_no_key() -> None:
    for flux in (Flux.just(1, 1, 2).buffer_until_changed(), windows(Flux.just(1, 1, 2))):
        assert [list(flux), list(flux)] == [[[1, 1], [2]]] * 2


def test_a_key_may_be_none() -> None:
    flux = Flux.just(1, 2, 3)

    assert list(flux.buffer_until_changed(lambda _: None)) == [[1, 2, 3]]
    assert list(windows(flux, lambda x: None if x < 3 else x)) == [[1, 2], [3]]


def test_lists_are_asked_for_and_sent_one_by_one() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().buffer_until_changed(), 1)
    source.emit(1)
    assert sum(source.requests) == 2
    source.emit(1, 2)
    assert recorder.items == [[1, 1]]
    assert sum(source.requests) == 3
    source.complete()
    assert not recorder.completed
    recorder.request(1)

    assert recorder.items == [[1, 1], [2]]
    assert recorder.completed
    recorder.check()


@pytest.mark.parametrize("operator", ["buffer_until_changed", "window_until_changed"])
def test_a_key_that_raises_cancels_the_source(operator: str) -> None:
    source = Driven()
    recorder = Recorder.of(getattr(source.flux(), operator)(oops), UNBOUNDED)
    source.emit(1)

    assert isinstance(recorder.error, Oops)
    assert source.cancelled


def test_the_key_is_asked_once_for_each_element() -> None:
    asked: list[int] = []
    source = Driven()
    recorder = Recorder.of(source.flux().window_until_changed(lambda x: asked.append(x) or x), 1)
    source.emit(1, 2)  # the second window waits for demand
    recorder.request(1)
    source.emit(2).complete()

    assert asked == [1, 2, 2]
    assert [Recorder.of(window, UNBOUNDED).items for window in recorder.items] == [[1], [2, 2]]
