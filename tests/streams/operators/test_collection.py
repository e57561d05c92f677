"""Operators that gather elements."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from penstock.spec import UNBOUNDED, NoneViolation
from penstock.streams import Flux, Mono
from tests.streams.operators.rigs import (
    Counting,
    Oops,
    Operator,
    asked_of_the_source,
    check_that_an_exception_ends_it,
    failure,
    oops,
    result,
)
from tests.streams.recording import Recorder


def add(total: Any, x: Any) -> Any:
    return total + x


def even(x: int) -> bool:
    return x % 2 == 0


FOLDS: dict[str, tuple[Operator, Any, list[Any]]] = {
    # the operator, what it makes of 3 1 2 2, and (as a list) of nothing
    "reduce": (lambda f: f.reduce(add), 8, []),
    "reduce with an initial value": (lambda f: f.reduce(add, 10), 18, [10]),
    "reduce_with": (lambda f: f.reduce_with(lambda: 10, add), 18, [10]),
    "collect": (lambda f: f.collect(deque, deque.append), deque([3, 1, 2, 2]), [deque()]),
    "collect_list": (lambda f: f.collect_list(), [3, 1, 2, 2], [[]]),
    "collect_set": (lambda f: f.collect_set(), {1, 2, 3}, [set()]),
    "collect_dict": (lambda f: f.collect_dict(even), {False: 1, True: 2}, [{}]),
    "collect_dict of values": (lambda f: f.collect_dict(even, str), {False: "1", True: "2"}, [{}]),
    "collect_multimap": (lambda f: f.collect_multimap(even), {False: [3, 1], True: [2, 2]}, [{}]),
    "collect_multimap of values": (
        lambda f: f.collect_multimap(even, str),
        {False: ["3", "1"], True: ["2", "2"]},
        [{}],
    ),
    "count": (lambda f: f.count(), 4, [0]),
    "any": (lambda f: f.any(even), True, [False]),
    "all": (lambda f: f.all(even), False, [True]),
    "has_element": (lambda f: f.has_element(2), True, [False]),
    "has_elements": (lambda f: f.has_elements(), True, [False]),
}
FAILING: dict[str, Operator] = {
    "reduce": lambda f: f.reduce(oops),
    "reduce_with": lambda f: f.reduce_with(int, oops),
    "collect": lambda f: f.collect(list, oops),
    "collect_dict": lambda f: f.collect_dict(oops),
    "collect_multimap": lambda f: f.collect_multimap(even, oops),
    "any": lambda f: f.any(oops),
    "all": lambda f: f.all(oops),
    "sort": lambda f: f.sort(oops),
}


@pytest.mark.parametrize("name", FOLDS)
def test_it_gathers_everything_into_a_mono(name: str) -> None:
    mono = FOLDS[name][0](Flux.just(3, 1, 2, 2))

    assert isinstance(mono, Mono)
    assert result(mono) == [FOLDS[name][1]]


@pytest.mark.parametrize("name", FOLDS)
def test_an_empty_source_has_an_answer_too(name: str) -> None:
    assert result(FOLDS[name][0](Flux.empty())) == FOLDS[name][2]


@pytest.mark.parametrize("name", FOLDS)
def test_nothing_is_taken_before_somebody_asks_and_one_request_brings_answer_and_end(name: str) -> None:
    source = Counting()
    recorder = Recorder()
    FOLDS[name][0](Flux.from_iterable(source)).subscribe(recorder)
    assert source.taken == 0

    recorder.request(1)

    recorder.check()
    assert len(recorder.items) == 1
    assert recorder.completed
    assert source.closed


@pytest.mark.parametrize("name", FOLDS)
def test_the_answer_passes_through_the_operators_below(name: str) -> None:
    recorder = Recorder(1)
    FOLDS[name][0](Flux.just(3, 1, 2, 2)).map(lambda x: (x,)).subscribe(recorder)

    recorder.check()
    assert recorder.items == [(FOLDS[name][1],)]
    assert recorder.completed


@pytest.mark.parametrize("name", FOLDS)
def test_each_subscriber_gets_an_answer_of_its_own(name: str) -> None:
    mono = FOLDS[name][0](Flux.just(3, 1, 2, 2))

    assert result(mono) == result(mono)


@pytest.mark.parametrize("name", [name for name in FOLDS if name != "has_elements"])
def test_the_source_is_asked_for_everything_once(name: str) -> None:
    assert asked_of_the_source(FOLDS[name][0], 1) == [UNBOUNDED]


def test_has_elements_asks_for_one() -> None:
    assert asked_of_the_source(lambda f: f.has_elements(), UNBOUNDED) == [1]


@pytest.mark.parametrize("name", FOLDS)
def test_a_cancel_in_the_middle_cancels_the_source_and_nothing_is_answered(name: str) -> None:
    cancelled: list[str] = []
    recorder = Recorder(1)
    FOLDS[name][0](Flux.never().do_on_cancel(lambda: cancelled.append(name))).subscribe(recorder)

    recorder.cancel()

    recorder.check()
    assert cancelled == [name]
    assert recorder.items == []
    assert not recorder.terminated


@pytest.mark.parametrize("name", FAILING)
def test_an_exception_ends_the_stream_and_the_note_names_the_operator(name: str) -> None:
    check_that_an_exception_ends_it(FAILING[name], name, __file__)


@pytest.mark.parametrize("name", FAILING)
def test_something_that_is_no_function_is_refused_where_it_is_written(name: str) -> None:
    arguments = [7, 7] if name in ("reduce_with", "collect") else [7]

    with pytest.raises(TypeError, match=rf"{name}\(\) needs a function, not 7"):
        getattr(Flux.just(1), name)(*arguments)


@pytest.mark.parametrize("name", ["collect_dict", "collect_multimap"])
def test_a_value_that_is_no_function_is_refused_where_it_is_written(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) needs a function, not 7"):
        getattr(Flux.just(1), name)(even, 7)


@pytest.mark.parametrize("name", FOLDS)
def test_an_error_of_the_source_is_passed_on_and_nothing_is_answered(name: str) -> None:
    recorder = Recorder(1)
    FOLDS[name][0](Flux.just(5).map(oops)).subscribe(recorder)

    assert isinstance(recorder.error, Oops)
    assert recorder.items == []


@pytest.mark.parametrize(
    "add_operator",
    [
        pytest.param(lambda f: f.reduce(lambda total, x: None), id="reduce"),
        pytest.param(lambda f: f.reduce_with(int, lambda total, x: None), id="reduce_with"),
        pytest.param(lambda f: f.collect(lambda: None, lambda into, x: None), id="collect"),
    ],
)
def test_none_as_a_result_is_an_error(add_operator: Operator) -> None:
    assert isinstance(failure(add_operator(Flux.just(1, 2))), NoneViolation)


def test_an_initial_value_of_none_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"reduce\(\): None cannot be an element"):
        Flux.just(1).reduce(add, None)


@pytest.mark.parametrize(
    "add_operator",
    [
        pytest.param(lambda f: f.reduce_with(oops, add), id="reduce_with"),
        pytest.param(lambda f: f.collect(oops, add), id="collect"),
    ],
)
def test_an_exception_in_the_factory_is_the_error_of_the_stream(add_operator: Operator) -> None:
    assert isinstance(failure(add_operator(Flux.just(1))), Oops)


def test_a_container_is_not_shared_between_subscribers() -> None:
    gathered = Flux.just(1, 2).collect_list()

    assert result(gathered)[0] is not result(gathered)[0]


def test_any_and_all_and_has_element_stop_as_soon_as_they_know() -> None:
    for ask in (
        lambda f: f.any(lambda x: x == 3),
        lambda f: f.all(lambda x: x < 3),
        lambda f: f.has_element(3),
    ):
        source = Counting()
        result(ask(Flux.from_iterable(source)))
        assert source.taken == 3
        assert source.closed


def test_has_elements_takes_one() -> None:
    source = Counting()

    assert result(Flux.from_iterable(source).has_elements()) == [True]
    assert source.taken == 1


def test_collect_set_needs_elements_with_a_hash() -> None:
    error = failure(Flux.just([1]).collect_set())

    assert isinstance(error, TypeError)
    assert " collect_set(" in error.__notes__[0]


def test_sort_puts_in_order() -> None:
    words = Flux.just("pear", "fig", "apple", "kiwi")

    assert result(words.sort()) == ["apple", "fig", "kiwi", "pear"]
    assert result(words.sort(reverse=True)) == ["pear", "kiwi", "fig", "apple"]
    assert result(words.sort(len)) == ["fig", "pear", "kiwi", "apple"]
    assert result(words.sort(len, reverse=True)) == ["apple", "pear", "kiwi", "fig"]
    assert result(Flux.empty().sort()) == []


def test_sort_sends_as_far_as_there_is_demand_and_ends_with_the_last() -> None:
    recorder = Recorder(1)
    Flux.just(3, 1, 2).sort().subscribe(recorder)
    assert recorder.items == [1]

    recorder.request(1)
    assert recorder.items == [1, 2]
    assert not recorder.completed

    recorder.request(1)
    recorder.check()
    assert recorder.items == [1, 2, 3]
    assert recorder.completed


def test_sort_fails_on_what_cannot_be_compared() -> None:
    error = failure(Flux.just(1, "two").sort())

    assert isinstance(error, TypeError)
    assert " sort(" in error.__notes__[0]


def test_a_default_stands_in_for_nothing() -> None:
    assert result(Flux.empty().default_if_empty(7)) == [7]
    assert result(Flux.just(1, 2).default_if_empty(7)) == [1, 2]
    assert result(Flux.just(1, 2).filter(lambda x: x > 2).default_if_empty(7)) == [7]
    assert result(Mono.empty().default_if_empty(7)) == [7]
    assert result(Mono.just(1).default_if_empty(7)) == [1]


def test_a_default_waits_for_demand() -> None:
    recorder = Recorder()
    Flux.empty().default_if_empty(7).subscribe(recorder)
    assert recorder.items == []
    assert not recorder.terminated

    recorder.request(1)

    recorder.check()
    assert recorder.items == [7]
    assert recorder.completed


def test_a_default_does_not_stand_in_for_an_error() -> None:
    assert isinstance(failure(Flux.just(1).map(oops).default_if_empty(7)), Oops)


def test_a_default_of_none_is_refused_where_it_is_written() -> None:
    for stream in (Flux.just(1), Mono.just(1)):
        with pytest.raises(TypeError, match=r"default_if_empty\(\): None cannot be an element"):
            stream.default_if_empty(None)


def test_a_mono_tells_whether_it_has_an_element() -> None:
    assert result(Mono.just(1).has_element()) == [True]
    assert result(Mono.empty().has_element()) == [False]
