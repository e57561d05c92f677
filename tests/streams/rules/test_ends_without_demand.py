"""An end, or an error, needs no demand (§2.9, §2.10), also where a chain is cut into several loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams import Flux, Sinks
from tests.streams.recording import Recorder

CUT: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "buffer, map": (lambda f: f.buffer(2).map(len), [2, 2]),
    "buffer, buffer, map": (lambda f: f.buffer(2).buffer(2).map(len), [2]),
    "fold, map": (lambda f: f.collect_list().map(len), [4]),
    "start_with, map": (lambda f: f.start_with(0).map(str), ["0", "1", "2", "3", "4"]),
    "default_if_empty, map": (lambda f: f.default_if_empty(7).map(str), ["1", "2", "3", "4"]),
    "scan with a seed, map": (lambda f: f.scan(lambda a, b: a + b, 0).map(str), ["0", "1", "3", "6", "10"]),
    "take_last, map": (lambda f: f.take_last(2).map(str), ["3", "4"]),
}


@pytest.mark.parametrize("name", CUT)
def test_a_chain_completes_with_exactly_the_demand_it_needs(name: str) -> None:
    add, expected = CUT[name]

    recorder = Recorder.of(add(Flux.just(1, 2, 3, 4)), first=len(expected))

    assert recorder.check().items == expected
    assert recorder.completed


@pytest.mark.parametrize("name", CUT)
def test_one_less_and_it_waits(name: str) -> None:
    add, expected = CUT[name]

    recorder = Recorder.of(add(Flux.just(1, 2, 3, 4)), first=len(expected) - 1 or 1)

    if len(expected) > 1:
        assert recorder.check().items == expected[:-1]
        assert not recorder.completed


@pytest.mark.parametrize(
    "add", [lambda f: f.buffer(2).map(len), lambda f: f.start_with(0).buffer(3).map(len)]
)
def test_an_error_behind_the_last_element_comes_at_once(add: Callable[[Any], Any]) -> None:
    sink = Sinks.unicast()
    recorder = Recorder.of(add(sink.flux()), first=1)

    sink.try_emit(1)
    sink.try_emit(2)
    sink.try_error(OSError("unplugged"))

    assert len(recorder.check().items) == 1
    assert isinstance(recorder.error, OSError)


def test_an_empty_source_completes_through_a_cut_chain_without_any_demand() -> None:
    assert Recorder.of(Flux.empty().buffer(2).map(len)).check().completed


def test_a_generator_is_not_asked_for_an_element_just_to_find_its_end() -> None:
    asked: list[int] = []

    def numbers() -> Any:
        for number in (1, 2):
            asked.append(number)
            yield number
        asked.append(-1)

    recorder = Recorder.of(Flux.from_iterable(numbers()).buffer(2).map(len), first=1)

    assert recorder.check().items == [2]
    assert asked == [1, 2]
    assert not recorder.completed
    recorder.request(1)
    assert recorder.completed


def test_a_lead_in_a_lower_loop_uses_up_the_demand_of_the_loops_above() -> None:
    source = Flux.from_iterable(iter([1, 2])).buffer(1).scan(lambda sum_, window: sum_ + len(window), 0)
    recorder = Recorder.of(source, first=1)

    assert recorder.check().items == [0]
    assert recorder.request(1).check().items == [0, 1]
