"""What "Coming from reactivex" says is different is different: the same questions to both libraries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reactivex
from reactivex import operators as ops
from reactivex.internal.exceptions import ArgumentOutOfRangeException, SequenceContainsNoElementsError
from reactivex.subject import Subject

from penstock.spec import NoneViolation
from penstock.streams import EmitResult, Flux, Mono, Sink, Sinks, on_dropped


def theirs(observable: Any) -> list[Any]:
    """The elements of an Observable, then its error, if it fails."""
    seen: list[Any] = []
    observable.subscribe(seen.append, lambda error: seen.append(type(error)))
    return seen


def ours(stream: Flux[Any] | Mono[Any]) -> list[Any]:
    """The elements of a stream, then its error, if it fails."""
    seen: list[Any] = []
    stream.subscribe(seen.append, on_error=lambda error: seen.append(type(error)))
    return seen


def add(total: int, n: int) -> int:
    return total + n


def nothing_left(_: object) -> object:
    return next(iter(()))


DIFFERENCES: dict[str, tuple[Any, list[Any], Any, list[Any]]] = {
    "None as an element": (
        reactivex.of(1, 2).pipe(ops.map(lambda _: None)),
        [None, None],
        Flux.just(1, 2).map(lambda _: None),
        [NoneViolation],
    ),
    "a function that returns None": (
        reactivex.from_callable(lambda: None),
        [None],
        Mono.from_callable(lambda: None),
        [],
    ),
    "scan with a seed": (
        reactivex.of(1, 2).pipe(ops.scan(add, 10)),
        [11, 13],
        Flux.just(1, 2).scan(add, 10),
        [10, 11, 13],
    ),
    "reduce of nothing": (
        reactivex.empty().pipe(ops.reduce(add)),
        [SequenceContainsNoElementsError],
        Flux.empty().reduce(add),
        [],
    ),
    "first of nothing": (
        reactivex.empty().pipe(ops.first()),
        [SequenceContainsNoElementsError],
        Flux.empty().first(),
        [],
    ),
    "last of nothing": (
        reactivex.empty().pipe(ops.last()),
        [SequenceContainsNoElementsError],
        Flux.empty().last(),
        [],
    ),
    "element_at beyond the end": (
        reactivex.of(1).pipe(ops.element_at(5)),
        [ArgumentOutOfRangeException],
        Flux.just(1).element_at(5),
        [IndexError],
    ),
    "repeat(2)": (
        reactivex.of(1).pipe(ops.repeat(2)),
        [1, 1],
        Flux.just(1).repeat(2),
        [1, 1, 1],
    ),
    "range(2, 5)": (reactivex.range(2, 5), [2, 3, 4], Flux.range(2, 5), [2, 3, 4, 5, 6]),
    "distinct of lists": (
        reactivex.of([1], [1]).pipe(ops.distinct()),
        [[1]],
        Flux.just([1], [1]).distinct(),
        [TypeError],
    ),
    "StopIteration in a function": (
        reactivex.of(1).pipe(ops.map(nothing_left)),
        [StopIteration],
        Flux.just(1).map(nothing_left),
        [RuntimeError],
    ),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_what_an_operator_sends(difference: str) -> None:
    observable, seen_there, stream, seen_here = DIFFERENCES[difference]

    assert theirs(observable) == seen_there
    assert ours(stream) == seen_here


def test_retry_counts_attempts_there_and_further_attempts_here() -> None:
    attempts: list[str] = []

    def failing(kind: str, fail: Callable[[], Any]) -> Any:
        attempts.append(kind)
        return fail()

    theirs(
        reactivex.defer(lambda _: failing("theirs", lambda: reactivex.throw(OSError()))).pipe(ops.retry(3))
    )
    ours(Flux.defer(lambda: failing("ours", lambda: Flux.error(OSError()))).retry(3))

    assert (attempts.count("theirs"), attempts.count("ours")) == (3, 4)


def test_zip_reads_ahead_without_a_bound_there() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for n in range(10_000):
            taken.append(n)
            yield n

    assert len(theirs(reactivex.zip(reactivex.from_iterable(numbers()), reactivex.of(1, 2, 3)))) == 3
    assert len(taken) == 10_000

    taken.clear()
    assert len(ours(Flux.zip(numbers(), [1, 2, 3]))) == 3
    assert len(taken) <= 64


def test_take_closes_a_generator_here_alone() -> None:
    log: list[str] = []

    def numbers(name: str) -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            log.append(name)

    there, here = numbers("theirs"), numbers("ours")
    assert theirs(reactivex.from_iterable(there).pipe(ops.take(2))) == [0, 1]
    assert ours(Flux.from_iterable(here).take(2)) == [0, 1]
    assert log == ["ours"]


def test_a_subject_loses_what_a_sink_keeps_for_its_first_subscriber() -> None:
    subject: Subject[int] = Subject()
    sink: Sink[int] = Sinks.multicast(2)
    subject.on_next(1)
    assert sink.try_emit(1) is EmitResult.OK
    assert sink.try_emit(2) is EmitResult.OK
    assert sink.try_emit(3) is EmitResult.OVERFLOW

    assert theirs(subject) == []
    assert ours(sink.flux()) == [1, 2]


def test_an_error_without_on_error_is_raised_there_and_reported_here() -> None:
    with pytest.raises(OSError, match="there"):
        reactivex.throw(OSError("there")).subscribe(print)

    dropped: list[BaseException] = []
    with on_dropped(error=lambda error, where: dropped.append(error)):
        Flux.error(OSError("here")).subscribe(print)
    assert [str(error) for error in dropped] == ["here"]


def test_await_of_nothing_fails_there_and_is_none_here() -> None:
    async def there() -> Any:
        return await reactivex.empty()

    async def here() -> Any:
        return await Flux.empty().last()

    with pytest.raises(SequenceContainsNoElementsError):
        asyncio.run(there())
    assert asyncio.run(here()) is None


def test_a_coroutine_function_in_map_is_refused_here() -> None:
    async def double(n: int) -> int:
        return 2 * n

    (coroutine,) = theirs(reactivex.of(1).pipe(ops.map(double)))
    assert asyncio.run(coroutine) == 2

    with pytest.raises(TypeError, match="map_async"):
        Flux.just(1).map(double)
