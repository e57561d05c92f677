"""Operators that turn elements into others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.spec import NoneViolation
from penstock.streams import Flux, Mono
from tests.streams.operators.rigs import (
    Counting,
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


def add(total: Any, x: Any) -> Any:
    return total + x


def send(x: Any, sink: Any) -> None:
    sink.next(x)


NORMAL: dict[str, tuple[Operator, list[Any], list[Any]]] = {
    # the operator, what it makes of 1 2 3, and of nothing
    "map": (lambda f: f.map(lambda x: -x), [-1, -2, -3], []),
    "map_not_none": (lambda f: f.map_not_none(lambda x: None if x == 2 else -x), [-1, -3], []),
    "flat_map_iterable": (lambda f: f.flat_map_iterable(lambda x: [x] * (x - 1)), [2, 3, 3], []),
    "handle": (lambda f: f.handle(send), [1, 2, 3], []),
    "scan": (lambda f: f.scan(add), [1, 3, 6], []),
    "scan with a seed": (lambda f: f.scan(add, 10), [10, 11, 13, 16], [10]),
    "scan_with": (lambda f: f.scan_with(lambda: 10, add), [10, 11, 13, 16], [10]),
    "index": (lambda f: f.index(), [(0, 1), (1, 2), (2, 3)], []),
    "cast": (lambda f: f.cast(int), [1, 2, 3], []),
}
FAILING: dict[str, Operator] = {
    "map": lambda f: f.map(oops),
    "map_not_none": lambda f: f.map_not_none(oops),
    "flat_map_iterable": lambda f: f.flat_map_iterable(oops),
    "handle": lambda f: f.handle(oops),
    "scan": lambda f: f.scan(oops),
    "scan_with": lambda f: f.scan_with(lambda: 0, oops),
}
GIVING_NONE: dict[str, Operator] = {
    "map": lambda f: f.map(lambda x: None),
    "flat_map_iterable": lambda f: f.flat_map_iterable(lambda x: [None]),
    "handle": lambda f: f.handle(lambda x, sink: sink.next(None)),
    "scan": lambda f: f.scan(lambda total, x: None),
    "scan_with": lambda f: f.scan_with(lambda: 0, lambda total, x: None),
}


@pytest.mark.parametrize("name", NORMAL)
def test_it_turns_elements_into_others(name: str) -> None:
    add_operator, expected, _ = NORMAL[name]

    assert result(add_operator(Flux.just(1, 2, 3))) == expected


@pytest.mark.parametrize("name", NORMAL)
def test_an_empty_source_gives_nothing_but_a_seed(name: str) -> None:
    add_operator, _, expected = NORMAL[name]

    assert result(add_operator(Flux.empty())) == expected


@pytest.mark.parametrize("name", NORMAL)
def test_one_request_brings_one_element(name: str) -> None:
    add_operator, expected, _ = NORMAL[name]
    recorder = Recorder()
    add_operator(Flux.just(1, 2, 3)).subscribe(recorder)
    assert recorder.items == []

    for number in range(1, len(expected) + 1):
        recorder.request(1)
        assert recorder.items == expected[:number]

    recorder.request(1)
    recorder.check()
    assert recorder.completed


@pytest.mark.parametrize("name", NORMAL)
def test_a_cancel_in_the_middle_closes_the_source(name: str) -> None:
    add_operator, _, _ = NORMAL[name]
    if name.startswith("scan") and name != "scan":
        check_that_a_cancel_stops_it(lambda f: add_operator(f).skip(1))
    else:
        check_that_a_cancel_stops_it(add_operator)


@pytest.mark.parametrize("name", FAILING)
def test_an_exception_ends_the_stream_and_the_note_names_the_operator(name: str) -> None:
    check_that_an_exception_ends_it(FAILING[name], name, __file__)


@pytest.mark.parametrize("name", GIVING_NONE)
def test_none_as_a_result_is_an_error_that_names_the_operator(name: str) -> None:
    source = Counting()

    error = failure(GIVING_NONE[name](Flux.from_iterable(source)))

    assert isinstance(error, NoneViolation)
    assert f" {name}(" in error.__notes__[0]
    assert source.closed


@pytest.mark.parametrize("name", GIVING_NONE)
def test_none_as_a_result_reaches_no_operator_below(name: str) -> None:
    error = failure(GIVING_NONE[name](Flux.just(1, 2)).map(lambda x: str(x)))

    assert isinstance(error, NoneViolation)
    assert f" {name}(" in error.__notes__[0]


@pytest.mark.parametrize("name", FAILING)
def test_something_that_is_no_function_is_refused_where_it_is_written(name: str) -> None:
    arguments = [7, 7] if name == "scan_with" else [7]

    with pytest.raises(TypeError, match=rf"{name}\(\) needs a function, not 7"):
        getattr(Flux.just(1), name)(*arguments)


@pytest.mark.parametrize("name", ["map", "map_not_none", "flat_map_iterable", "handle"])
def test_a_mono_refuses_what_is_no_function(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) needs a function, not 7"):
        getattr(Mono.just(1), name)(7)


@pytest.mark.parametrize("name", ["map", "handle", "scan", "index", "cast"])
def test_the_source_is_asked_for_what_is_wanted_and_no_more(name: str) -> None:
    assert asked_of_the_source(NORMAL[name][0], 2, 3) == [2, 5]


@pytest.mark.parametrize("name", ["scan with a seed", "scan_with"])
def test_no_element_is_asked_for_in_place_of_the_seed(name: str) -> None:
    assert asked_of_the_source(NORMAL[name][0], 2, 3) == [1, 4]


def test_map_not_none_asks_again_for_what_dropped_out() -> None:
    def odd(f: Any) -> Any:
        return f.map_not_none(lambda x: x if x % 2 else None)

    assert asked_of_the_source(odd, 1, 1, 1) == [1, 3, 5]


def test_flat_map_iterable_walks_an_endless_iterable_as_far_as_there_is_demand() -> None:
    walked: list[int] = []

    def endless(start: int) -> Iterator[int]:
        while True:
            walked.append(start)
            yield start
            start += 1

    recorder = Recorder(2)
    Flux.just(5, 100).flat_map_iterable(endless).subscribe(recorder)
    recorder.request(1)

    assert recorder.items == [5, 6, 7]
    assert walked == [5, 6, 7]


def test_flat_map_iterable_closes_the_inner_generator_when_it_is_cancelled() -> None:
    inner = Counting()
    recorder = Recorder(2)
    Flux.just(1).flat_map_iterable(lambda _: iter(inner)).subscribe(recorder)

    recorder.cancel()

    assert recorder.items == [1, 2]
    assert inner.closed


def test_flat_map_iterable_fails_with_an_iterable_that_raises() -> None:
    def broken(x: int) -> Iterator[int]:
        yield x
        raise Oops

    check_that_an_exception_ends_it(lambda f: f.flat_map_iterable(broken), "flat_map_iterable", __file__)


def test_flat_map_iterable_of_flat_map_iterable_keeps_the_order() -> None:
    nested = Flux.range(1, 3).flat_map_iterable(lambda x: range(x)).flat_map_iterable(lambda y: [y, -y])

    assert result(nested) == [0, 0, 0, 0, 1, -1, 0, 0, 1, -1, 2, -2]


def test_handle_may_leave_out_and_complete() -> None:
    source = Counting()

    def handler(x: int, sink: Any) -> None:
        if x == 4:
            sink.next("last")
            sink.complete()
        elif x != 2:
            sink.next(x)

    assert result(Flux.from_iterable(source).handle(handler)) == [1, 3, "last"]
    assert source.taken == 4
    assert source.closed


def test_handle_may_complete_without_an_element() -> None:
    assert result(Flux.just(1, 2).handle(lambda _, sink: sink.complete())) == []


def test_handle_may_emit_only_once_per_element() -> None:
    def twice(x: int, sink: Any) -> None:
        sink.next(x)
        sink.next(x)

    assert "flat_map_iterable" in str(failure(Flux.just(1).handle(twice)))


def test_each_subscriber_of_scan_with_gets_a_seed_of_its_own() -> None:
    gathered = Flux.just(1, 2).scan_with(list, lambda seen, x: [*seen, x])

    assert result(gathered) == result(gathered) == [[], [1], [1, 2]]


def test_an_exception_in_the_factory_of_the_seed_is_the_error_of_the_stream() -> None:
    error = failure(Flux.just(1).scan_with(oops, add))

    assert isinstance(error, Oops)
    assert " scan_with(" in error.__notes__[0]


def test_a_seed_of_none_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"scan\(\): None cannot be an element"):
        Flux.just(1).scan(add, None)


def test_each_subscriber_of_index_counts_from_zero() -> None:
    indexed = Flux.just("a", "b").index()

    assert result(indexed) == result(indexed) == [(0, "a"), (1, "b")]


def test_cast_ends_with_a_type_error_that_says_what_it_met() -> None:
    error = failure(Flux.just(1, "two").cast(int))

    assert isinstance(error, TypeError)
    assert str(error) == "cast(int) met 'two', a str"


@pytest.mark.parametrize("stream", [Flux.just(1), Mono.just(1)], ids=["Flux", "Mono"])
def test_cast_needs_a_class(stream: Any) -> None:
    with pytest.raises(TypeError, match=r"cast\(\) needs a class, not 'int'"):
        stream.cast("int")


def test_a_mono_is_mapped() -> None:
    assert Mono.just(20).map(lambda x: x + 1).block() == 21
    assert result(Mono.empty().map(oops)) == []


def test_a_mono_becomes_empty_where_map_not_none_finds_nothing() -> None:
    assert result(Mono.just(1).map_not_none({1: "one"}.get)) == ["one"]
    assert result(Mono.just(2).map_not_none({1: "one"}.get)) == []


def test_a_mono_is_opened_into_a_flux() -> None:
    opened = Mono.just("to be").flat_map_iterable(str.split)

    assert isinstance(opened, Flux)
    assert result(opened) == ["to", "be"]


def test_a_mono_is_handled() -> None:
    assert result(Mono.just(1).handle(send)) == [1]
    assert result(Mono.just(1).handle(lambda x, sink: None)) == []


def test_a_mono_is_cast() -> None:
    assert Mono.just("yes").cast(str).block() == "yes"
    assert isinstance(failure(Mono.just("yes").cast(int)), TypeError)


def test_an_exception_fails_a_mono() -> None:
    error = failure(Mono.just(1).map(oops))

    assert isinstance(error, Oops)
    assert " map(" in error.__notes__[0]


def test_a_stop_iteration_of_the_mapper_is_an_error_and_not_the_end() -> None:
    def exhausted(_: int) -> int:
        return next(iter(()))

    error = failure(Flux.just(1).map(exhausted))

    assert isinstance(error, RuntimeError)
    assert " map(" in error.__notes__[0]
