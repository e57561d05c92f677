"""Operators that let some elements through and not others."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono
from penstock.streams.api.filters import NoElement, TooManyElements
from tests.streams.operators.rigs import (
    Counting,
    Elsewhere,
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


def even(x: int) -> bool:
    return x % 2 == 0


def small(x: int) -> bool:
    return x < 3


NORMAL: dict[str, tuple[Operator, list[Any]]] = {
    # the operator, and what it leaves of 1 2 3 4 4 1
    "filter": (lambda f: f.filter(even), [2, 4, 4]),
    "of_type": (lambda f: f.of_type(int), [1, 2, 3, 4, 4, 1]),
    "take": (lambda f: f.take(2), [1, 2]),
    "take more than there are": (lambda f: f.take(100), [1, 2, 3, 4, 4, 1]),
    "take none": (lambda f: f.take(0), []),
    "take_while": (lambda f: f.take_while(small), [1, 2]),
    "take_until": (lambda f: f.take_until(even), [1, 2]),
    "take_last": (lambda f: f.take_last(2), [4, 1]),
    "take_last more than there are": (lambda f: f.take_last(100), [1, 2, 3, 4, 4, 1]),
    "take_last none": (lambda f: f.take_last(0), []),
    "skip": (lambda f: f.skip(4), [4, 1]),
    "skip none": (lambda f: f.skip(0), [1, 2, 3, 4, 4, 1]),
    "skip_while": (lambda f: f.skip_while(small), [3, 4, 4, 1]),
    "distinct": (lambda f: f.distinct(), [1, 2, 3, 4]),
    "distinct by a key": (lambda f: f.distinct(even), [1, 2]),
    "distinct_until_changed": (lambda f: f.distinct_until_changed(), [1, 2, 3, 4, 1]),
    "distinct_until_changed by a key": (lambda f: f.distinct_until_changed(small), [1, 3, 1]),
    "first": (lambda f: f.first(), [1]),
    "last": (lambda f: f.last(), [1]),
    "element_at": (lambda f: f.element_at(3), [4]),
    "ignore_elements": (lambda f: f.ignore_elements(), []),
}
FAILING: dict[str, Operator] = {
    "filter": lambda f: f.filter(oops),
    "take_while": lambda f: f.take_while(oops),
    "take_until": lambda f: f.take_until(oops),
    "skip_while": lambda f: f.skip_while(oops),
    "distinct": lambda f: f.distinct(oops),
    "distinct_until_changed": lambda f: f.distinct_until_changed(oops),
}


@pytest.mark.parametrize("name", NORMAL)
def test_it_lets_some_through(name: str) -> None:
    add_operator, expected = NORMAL[name]

    assert result(add_operator(Flux.just(1, 2, 3, 4, 4, 1))) == expected


@pytest.mark.parametrize("name", [name for name in NORMAL if name != "element_at"])
def test_an_empty_source_gives_nothing(name: str) -> None:
    assert result(NORMAL[name][0](Flux.empty())) == []


@pytest.mark.parametrize("name", NORMAL)
def test_one_request_brings_one_element(name: str) -> None:
    add_operator, expected = NORMAL[name]
    recorder = Recorder()
    add_operator(Flux.just(1, 2, 3, 4, 4, 1)).subscribe(recorder)

    for number in range(1, len(expected) + 1):
        recorder.request(1)
        assert recorder.items == expected[:number]

    recorder.request(1)
    recorder.check()
    assert recorder.completed


@pytest.mark.parametrize(
    "name", ["filter", "of_type", "take", "take_while", "skip", "skip_while", "distinct", "take_last"]
)
def test_a_cancel_in_the_middle_closes_the_source(name: str) -> None:
    check_that_a_cancel_stops_it(NORMAL[name][0])


@pytest.mark.parametrize("name", FAILING)
def test_an_exception_ends_the_stream_and_the_note_names_the_operator(name: str) -> None:
    check_that_an_exception_ends_it(FAILING[name], name, __file__)


@pytest.mark.parametrize("name", FAILING)
def test_something_that_is_no_function_is_refused_where_it_is_written(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) needs a function, not 7"):
        getattr(Flux.just(1), name)(7)


@pytest.mark.parametrize("name", ["take", "take_last", "skip", "element_at"])
def test_a_number_below_zero_is_refused_where_it_is_written(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}\(\) needs a number of at least 0, not -1"):
        getattr(Flux.just(1), name)(-1)
    with pytest.raises(TypeError, match=rf"{name}\(\) needs a whole number, not '3'"):
        getattr(Flux.just(1), name)("3")


@pytest.mark.parametrize(
    ("add_operator", "requests", "expected"),
    [
        pytest.param(lambda f: f.filter(even), (1, 2), [2, 6], id="filter"),
        pytest.param(lambda f: f.take(3), (2, 5), [2, 3], id="take"),
        pytest.param(lambda f: f.take(3), (UNBOUNDED,), [3], id="take of everything"),
        pytest.param(lambda f: f.skip(3), (1, 2), [4, 6], id="skip"),
        pytest.param(lambda f: f.skip(3).take(2), (9,), [5], id="skip take"),
        pytest.param(lambda f: f.skip_while(small), (1, 2), [3, 5], id="skip_while"),
        pytest.param(lambda f: f.first(), (UNBOUNDED,), [1], id="first"),
        pytest.param(lambda f: f.element_at(4), (UNBOUNDED,), [5], id="element_at"),
        pytest.param(lambda f: f.take_last(2), (1, 1), [UNBOUNDED, UNBOUNDED], id="take_last"),
        pytest.param(lambda f: f.last(), (1,), [UNBOUNDED], id="last"),
        pytest.param(lambda f: f.ignore_elements(), (1,), [UNBOUNDED], id="ignore_elements"),
    ],
)
def test_the_source_is_asked_for_what_is_wanted_and_no_more(
    add_operator: Operator, requests: tuple[int, ...], expected: list[int]
) -> None:
    assert asked_of_the_source(add_operator, *requests) == expected


def test_skip_asks_for_what_it_drops_at_once() -> None:
    source = Elsewhere(*range(100))
    Flux.from_publisher(source).skip(50).subscribe(Recorder(10))

    assert source.requests == [60]


@pytest.mark.parametrize("n", [1, 3])
def test_take_cancels_the_source_as_soon_as_it_has_enough(n: int) -> None:
    source = Elsewhere(*range(100))
    recorder = Recorder(n)
    Flux.from_publisher(source).take(n).subscribe(recorder)

    assert recorder.completed
    assert source.cancelled


def test_take_takes_no_element_beyond_the_last() -> None:
    source = Counting()

    assert result(Flux.from_iterable(source).take(3)) == [1, 2, 3]
    assert source.taken == 3
    assert source.closed


def test_take_zero_does_not_subscribe() -> None:
    recorder = Recorder()
    Flux.from_iterable(Counting()).do_on_subscribe(oops).take(0).subscribe(recorder)

    assert recorder.completed


def test_take_while_does_not_look_beyond_the_first_that_fails() -> None:
    source = Counting()

    assert result(Flux.from_iterable(source).take_while(small)) == [1, 2]
    assert source.taken == 3


def test_a_take_that_is_met_inside_a_nested_iterable_ends_everything() -> None:
    source = Counting()
    taken = Flux.from_iterable(source).flat_map_iterable(lambda x: [x] * 3).take(4).count()

    assert result(taken) == [4]
    assert source.taken == 2


def test_two_takes_end_at_the_smaller() -> None:
    assert result(Flux.range(1, 9).take(2).take(5)) == [1, 2]
    assert result(Flux.range(1, 9).take(5).take(2)) == [1, 2]


def test_each_subscriber_counts_for_itself() -> None:
    some = Flux.just(1, 1, 2, 3).distinct().skip(1).take(1)

    assert result(some) == result(some) == [2]


def test_of_type_lets_subclasses_through() -> None:
    assert result(Flux.just(1, "two", True, 3.0).of_type(int)) == [1, True]


def test_of_type_needs_a_class() -> None:
    with pytest.raises(TypeError, match=r"of_type\(\) needs a class, not 'int'"):
        Flux.just(1).of_type("int")


def test_distinct_without_a_key_needs_elements_with_a_hash() -> None:
    error = failure(Flux.just([1]).distinct())

    assert isinstance(error, TypeError)
    assert " distinct(" in error.__notes__[0]


def test_distinct_until_changed_compares_only_elements() -> None:
    class Touchy:
        def __init__(self, number: int) -> None:
            self.number = number

        def __eq__(self, other: Any) -> bool:
            return bool(self.number == other.number)  # fails on anything else

        __hash__ = None

    first, same, other = Touchy(1), Touchy(1), Touchy(2)

    kept = result(Flux.just(first, same, other).distinct_until_changed())

    assert [id(x) for x in kept] == [id(first), id(other)]


def test_first_and_last_of_nothing_are_empty_monos() -> None:
    for mono in (Flux.empty().first(), Flux.empty().last()):
        assert isinstance(mono, Mono)
        assert result(mono) == []


def test_single_is_the_only_element() -> None:
    assert result(Flux.just(7).single()) == [7]


def test_single_of_none_is_a_lookup_error() -> None:
    error = failure(Flux.empty().single())

    assert isinstance(error, NoElement)
    assert isinstance(error, LookupError)
    assert "default_if_empty" in str(error)


def test_single_of_several_is_a_value_error_and_closes_the_source() -> None:
    source = Counting()

    error = failure(Flux.from_iterable(source).single())

    assert isinstance(error, TooManyElements)
    assert isinstance(error, ValueError)
    assert "first()" in str(error)
    assert source.taken == 2
    assert source.closed


def test_element_at_says_how_short_the_stream_was() -> None:
    error = failure(Flux.just("a", "b").element_at(5))

    assert isinstance(error, IndexError)
    assert str(error).startswith("element_at(5) met the end after 2 elements")


def test_element_at_gives_its_default() -> None:
    assert result(Flux.just("a").element_at(0, "-")) == ["a"]
    assert result(Flux.just("a").element_at(1, "-")) == ["-"]
    with pytest.raises(TypeError, match=r"element_at\(\): None cannot be an element"):
        Flux.just("a").element_at(1, None)


def test_element_at_takes_no_element_beyond_its_own() -> None:
    source = Counting()

    assert result(Flux.from_iterable(source).element_at(3)) == [4]
    assert source.taken == 4
    assert source.closed


def test_ignore_elements_runs_the_source_to_its_end() -> None:
    source = Counting()

    assert result(Flux.from_iterable(source).ignore_elements()) == []
    assert source.taken == 10


def test_ignore_elements_lets_an_error_through() -> None:
    assert isinstance(failure(Flux.just(1).map(oops).ignore_elements()), Oops)


def test_a_mono_is_filtered() -> None:
    assert result(Mono.just(2).filter(even)) == [2]
    assert result(Mono.just(1).filter(even)) == []
    assert result(Mono.just(1).of_type(int)) == [1]
    assert result(Mono.just(1).of_type(str)) == []
    assert result(Mono.just(1).ignore_element()) == []
    assert isinstance(failure(Mono.just(1).filter(oops)), Oops)


def test_a_mono_that_must_not_be_empty() -> None:
    assert result(Mono.just(1).single()) == [1]
    assert isinstance(failure(Mono.empty().single()), NoElement)
