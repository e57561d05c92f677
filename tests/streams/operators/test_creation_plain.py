"""Sources without a thread or a loop: ``just``, ``from_iterable``, ``range``, ``generate``, ``defer`` …"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono
from tests.streams.recording import Recorder

BOTH = pytest.mark.parametrize("kind", [Flux, Mono])


def test_just_range_and_empty() -> None:
    assert Flux.just("a", "b").collect_list().block() == ["a", "b"]
    assert Flux.just().collect_list().block() == []
    assert Flux.range(3).collect_list().block() == [0, 1, 2]
    assert Flux.range(5, 2).collect_list().block() == [5, 6]
    assert Mono.just("a").block() == "a"
    assert Mono.just_or_empty(None).block() is None
    assert Mono.just_or_empty(0).block() == 0


@BOTH
def test_none_is_no_element(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"just\(\): None cannot be an element \(§2.13\)"):
        kind.just(None)


@BOTH
def test_empty_completes_without_demand_and_never_does_not(kind: Any) -> None:
    assert Recorder.of(kind.empty()).completed
    assert not Recorder.of(kind.never(), first=1).terminated


@BOTH
def test_an_error_comes_without_demand_and_a_function_makes_a_new_one_each_time(kind: Any) -> None:
    error = ValueError("x")
    assert Recorder.of(kind.error(error)).error is error

    fresh = kind.error(lambda: ValueError("new"))
    assert Recorder.of(fresh).error is not Recorder.of(fresh).error

    def broken() -> BaseException:
        raise KeyError("y")

    assert isinstance(Recorder.of(kind.error(broken)).error, KeyError)
    with pytest.raises(TypeError, match=r"error\(\) needs an exception"):
        kind.error("text")


@BOTH
def test_defer_asks_for_the_stream_at_each_subscription(kind: Any) -> None:
    calls: list[int] = []

    def factory() -> Any:
        calls.append(1)
        return kind.just(len(calls))

    deferred = kind.defer(factory)
    assert calls == []

    assert [Recorder.of(deferred, first=1).items for _ in range(2)] == [[1], [2]]


@BOTH
def test_a_factory_that_raises_fails_the_stream(kind: Any) -> None:
    def factory() -> Any:
        raise ValueError("x")

    recorder = Recorder.of(kind.defer(factory).map(str))

    assert isinstance(recorder.error, ValueError)
    assert any("defer(factory)" in note for note in recorder.error.__notes__)


# -------------------------------------------------------------------- from_iterable
def test_an_iterable_is_read_only_as_far_as_there_is_demand_and_closed_by_a_cancel() -> None:
    read: list[Any] = []

    def numbers() -> Iterator[int]:
        try:
            for n in range(100):
                read.append(n)
                yield n
        finally:
            read.append("closed")

    recorder = Recorder.of(Flux.from_iterable(numbers()), first=2)
    assert read == [0, 1]
    recorder.cancel()

    assert read == [0, 1, "closed"]


def test_a_second_subscriber_of_a_generator_is_told_what_to_do() -> None:
    flux = Flux.from_iterable(n for n in range(3))
    assert flux.collect_list().block() == [0, 1, 2]

    recorder = Recorder.of(flux, first=1)

    assert isinstance(recorder.error, RuntimeError)
    assert "this generator was used up by an earlier subscriber" in str(recorder.error)
    assert "defer" in str(recorder.error)


def test_a_list_can_be_subscribed_to_many_times() -> None:
    flux = Flux.from_iterable([1, 2])

    assert [flux.collect_list().block() for _ in range(2)] == [[1, 2], [1, 2]]


def test_an_iterable_that_fails_fails_the_stream_after_its_elements() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise ValueError("x")

    recorder = Recorder.of(Flux.from_iterable(numbers()), first=9)

    assert recorder.items == [1]
    assert isinstance(recorder.error, ValueError)


def test_an_iterable_whose_iter_fails_fails_the_stream() -> None:
    class Broken:
        def __iter__(self) -> Iterator[int]:
            raise ValueError("x")

    assert isinstance(Recorder.of(Flux.from_iterable(Broken()), first=1).error, ValueError)


def test_none_in_an_iterable_breaks_rule_2_13() -> None:
    recorder = Recorder.of(Flux.from_iterable([1, None]), first=9)

    assert recorder.items == [1]
    assert "§2.13" in str(recorder.error)


def test_what_cannot_be_iterated_over_is_refused() -> None:
    with pytest.raises(TypeError, match="from_iterable"):
        Flux.from_iterable(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"range\(\) needs a number of at least 0"):
        Flux.range(-1)


# -------------------------------------------------------------------- generate
def test_generate_runs_a_step_only_when_an_element_is_asked_for() -> None:
    steps: list[int] = []

    def step(n: int, sink: Any) -> int:
        steps.append(n)
        sink.next(n)
        return n + 1

    recorder = Recorder.of(Flux.generate(lambda: 0, step), first=3)

    assert (recorder.items, steps) == ([0, 1, 2], [0, 1, 2])


def test_generate_completes_when_the_step_says_so_also_with_its_last_element() -> None:
    def countdown(n: int, sink: Any) -> int:
        sink.next(n)
        if n == 0:
            sink.complete()
        return n - 1

    assert Flux.generate(lambda: 2, countdown).collect_list().block() == [2, 1, 0]
    assert Flux.generate(lambda: 0, lambda n, sink: sink.complete()).collect_list().block() == []


def test_each_subscriber_of_generate_has_a_state_of_its_own() -> None:
    def step(seen: list[int], sink: Any) -> list[int]:
        seen.append(len(seen))
        sink.next(seen[-1])
        return seen

    flux = Flux.generate(list, step).take(2)

    assert [flux.collect_list().block() for _ in range(2)] == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda state, sink: (sink.next(1), sink.next(2)), "one element in each step"),
        (lambda state, sink: state, "called neither next"),
        (lambda state, sink: 1 // 0, "zero"),
        (lambda state, sink: sink.next(None), "2.13"),
    ],
)
def test_a_step_that_goes_wrong_fails_the_stream(step: Any, message: str) -> None:
    recorder = Recorder.of(Flux.generate(lambda: 0, step), first=9)

    assert message in str(recorder.error)


def test_a_state_that_cannot_be_made_fails_the_stream() -> None:
    recorder = Recorder.of(Flux.generate(lambda: 1 // 0, lambda state, sink: state), first=1)

    assert isinstance(recorder.error, ZeroDivisionError)


# -------------------------------------------------------------------- from_callable
def test_a_function_is_called_for_each_subscriber_and_only_with_demand() -> None:
    calls: list[int] = []
    mono = Mono.from_callable(lambda: calls.append(1) or len(calls))
    recorder = Recorder.of(mono)
    assert calls == []
    recorder.request(1)

    assert (recorder.items, recorder.completed, mono.block()) == ([1], True, 2)


def test_a_function_that_returns_none_gives_an_empty_mono() -> None:
    recorder = Recorder.of(Mono.from_callable(lambda: None), first=1)

    assert (recorder.items, recorder.completed) == ([], True)


@pytest.mark.parametrize("error", [ValueError("x"), StopIteration("x")])
def test_a_function_that_raises_fails_the_mono(error: Exception) -> None:
    def broken() -> int:
        raise error

    recorder = Recorder.of(Mono.from_callable(broken), first=UNBOUNDED)

    assert recorder.error is error or recorder.error.__cause__ is error  # type: ignore[union-attr]
    assert not recorder.completed
