"""Operators that gather neighbouring elements into lists."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spec import UNBOUNDED, NoneViolation
from penstock.streams import Flux
from tests.streams.operators.rigs import (
    Oops,
    Operator,
    asked_of_the_source,
    check_that_a_cancel_stops_it,
    check_that_an_exception_ends_it,
    failure,
    oops,
    result,
)
from tests.streams.recording import Recorder


def third(x: int) -> bool:
    return x % 3 == 0


NORMAL: dict[str, tuple[Operator, list[list[int]]]] = {
    # the operator, and what it makes of 1 to 7
    "buffer(3)": (lambda f: f.buffer(3), [[1, 2, 3], [4, 5, 6], [7]]),
    "buffer(7)": (lambda f: f.buffer(7), [[1, 2, 3, 4, 5, 6, 7]]),
    "buffer(1)": (lambda f: f.buffer(1), [[x] for x in range(1, 8)]),
    "buffer(3, skip=3)": (lambda f: f.buffer(3, skip=3), [[1, 2, 3], [4, 5, 6], [7]]),
    "buffer(3, skip=2)": (lambda f: f.buffer(3, skip=2), [[1, 2, 3], [3, 4, 5], [5, 6, 7], [7]]),
    "buffer(2, skip=3)": (lambda f: f.buffer(2, skip=3), [[1, 2], [4, 5], [7]]),
    "buffer_until": (lambda f: f.buffer_until(third), [[1, 2, 3], [4, 5, 6], [7]]),
    "buffer_until(cut_before)": (
        lambda f: f.buffer_until(third, cut_before=True),
        [[1, 2], [3, 4, 5], [6, 7]],
    ),
    "buffer_while": (lambda f: f.buffer_while(lambda x: not third(x)), [[1, 2], [4, 5], [7]]),
}
FAILING: dict[str, Operator] = {
    "buffer_until": lambda f: f.buffer_until(oops),
    "buffer_while": lambda f: f.buffer_while(oops),
}


@pytest.mark.parametrize("name", NORMAL)
def test_it_cuts_the_stream_into_lists(name: str) -> None:
    assert result(NORMAL[name][0](Flux.range(1, 7))) == NORMAL[name][1]


@pytest.mark.parametrize("name", NORMAL)
def test_an_empty_source_gives_no_list(name: str) -> None:
    assert result(NORMAL[name][0](Flux.empty())) == []


@pytest.mark.parametrize("name", NORMAL)
def test_one_request_brings_one_list(name: str) -> None:
    add_operator, expected = NORMAL[name]
    recorder = Recorder()
    add_operator(Flux.range(1, 7)).subscribe(recorder)

    for number in range(1, len(expected) + 1):
        recorder.request(1)
        assert recorder.items == expected[:number]

    recorder.request(1)
    recorder.check()
    assert recorder.completed


@pytest.mark.parametrize("name", NORMAL)
def test_a_cancel_in_the_middle_closes_the_source(name: str) -> None:
    check_that_a_cancel_stops_it(NORMAL[name][0])


@pytest.mark.parametrize("name", NORMAL)
def test_each_subscriber_gets_lists_of_its_own(name: str) -> None:
    lists = NORMAL[name][0](Flux.range(1, 7))
    for each in result(lists):
        each.clear()

    assert result(lists) == NORMAL[name][1]


@pytest.mark.parametrize("name", NORMAL)
def test_a_subscriber_may_change_a_list_that_it_got(name: str) -> None:
    seen: list[list[int]] = []

    def spoil(_: Recorder, piece: Any) -> None:
        seen.append(list(piece))
        piece.clear()

    recorder = Recorder(100, on_element=spoil)
    NORMAL[name][0](Flux.range(1, 7)).subscribe(recorder)

    assert seen == NORMAL[name][1]


@pytest.mark.parametrize("name", NORMAL)
def test_what_is_gathered_when_the_source_fails_is_given_up(name: str) -> None:
    recorder = Recorder(100)
    NORMAL[name][0](Flux.just(1, 2, 0, 4).map(lambda x: x if x else oops())).subscribe(recorder)

    assert isinstance(recorder.error, Oops)
    assert all(len(piece) < 3 and 0 not in piece for piece in recorder.items)


@pytest.mark.parametrize("name", FAILING)
def test_an_exception_ends_the_stream_and_the_note_names_the_operator(name: str) -> None:
    check_that_an_exception_ends_it(FAILING[name], name, __file__)


@pytest.mark.parametrize("name", FAILING)
def test_something_that_is_no_function_is_refused_where_it_is_written(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) needs a function, not 7"):
        getattr(Flux.just(1), name)(7)


@pytest.mark.parametrize("arguments", [(0,), (-1,), (2, 0)])
def test_a_size_below_one_is_refused_where_it_is_written(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"buffer\(\) needs a number of at least 1"):
        Flux.just(1).buffer(*arguments)


@pytest.mark.parametrize(
    ("add_operator", "requests", "expected"),
    [
        pytest.param(lambda f: f.buffer(3), (1, 2), [3, 9], id="buffer"),
        pytest.param(lambda f: f.buffer(3), (UNBOUNDED,), [UNBOUNDED], id="buffer of everything"),
        pytest.param(lambda f: f.buffer(3, skip=1), (1, 1, 2), [3, 4, 6], id="overlap"),
        pytest.param(lambda f: f.buffer(1, skip=3), (1, 1, 2), [1, 4, 10], id="gap"),
        pytest.param(lambda f: f.buffer(2).buffer(3), (1, 1), [6, 12], id="buffer of buffers"),
        pytest.param(lambda f: f.buffer(3).take(2), (9,), [6], id="take"),
        pytest.param(lambda f: f.buffer_until(third), (1, 1), [3, 6], id="buffer_until"),
    ],
)
def test_the_source_is_asked_for_what_is_wanted_and_no_more(
    add_operator: Operator, requests: tuple[int, ...], expected: list[int]
) -> None:
    assert asked_of_the_source(add_operator, *requests) == expected


def test_the_rest_passes_through_the_operators_below() -> None:
    assert result(Flux.range(1, 5).buffer(2).map(sum).buffer(2).map(sum)) == [10, 5]


def test_none_in_the_source_does_not_hide_in_a_list() -> None:
    error = failure(Flux.from_iterable([1, None]).buffer(5))

    assert isinstance(error, NoneViolation)
    assert " from_iterable(" in error.__notes__[0]
