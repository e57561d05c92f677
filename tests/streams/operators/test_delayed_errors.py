"""``…_delay_error``: the other streams run to their end, and the errors wait for that."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, schedulers
from tests.streams.operators.rigs import Counting, Elsewhere, Oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

MAPPING = ["flat_map_delay_error", "flat_map_sequential_delay_error", "concat_map_delay_error"]
ONE, TWO = ValueError("one"), KeyError("two")


def ended(stream: Any) -> tuple[list[Any], BaseException | None]:
    recorder = Recorder.of(stream, first=1000).wait()
    return recorder.items, recorder.error


def broken(*elements: int, error: BaseException = ONE) -> Flux[int]:
    return Flux.concat(Flux.just(*elements), Flux.error(error))


def test_concat_goes_on_after_an_error() -> None:
    assert ended(Flux.concat_delay_error(broken(1), Flux.just(2, 3))) == ([1, 2, 3], ONE)


def test_in_sequence_the_order_is_that_of_the_publishers() -> None:
    later = Flux.just(1).delay_elements(0.001)

    assert ended(Flux.merge_sequential_delay_error(broken(0), later, broken(2, error=TWO)))[0] == [0, 1, 2]
    mapped = Flux.range(3).flat_map_sequential_delay_error(lambda n: [broken(0), later, [2]][n])
    assert ended(mapped) == ([0, 1, 2], ONE)


def test_without_an_error_it_completes() -> None:
    assert ended(Flux.concat_delay_error(Flux.just(1), Flux.just(2))) == ([1, 2], None)
    assert ended(Flux.merge_delay_error(Flux.just(1), Flux.just(2))) == ([1, 2], None)
    assert ended(Flux.concat_delay_error()) == ([], None)
    assert ended(Flux.merge_delay_error()) == ([], None)


@pytest.mark.parametrize(
    "combine", [Flux.concat_delay_error, Flux.merge_delay_error, Flux.merge_sequential_delay_error]
)
def test_several_failures_are_an_exception_group(combine: Any) -> None:
    items, error = ended(combine(broken(1), broken(2, error=TWO), Flux.just(3)))

    assert sorted(items) == [1, 2, 3]
    assert isinstance(error, ExceptionGroup)
    assert error.exceptions == (ONE, TWO)
    assert "2 failures in" in str(error)


@pytest.mark.parametrize("name", MAPPING)
def test_inner_streams_and_the_function_may_fail(name: str) -> None:
    def mapper(n: int) -> Flux[int]:
        if n == 0:
            raise Oops("in the function")
        return broken(n, error=TWO) if n == 1 else Flux.just(n)

    items, error = ended(getattr(Flux.range(4), name)(mapper))

    assert items == [1, 2, 3]
    assert isinstance(error, ExceptionGroup)
    assert isinstance(error.exceptions[0], Oops)
    assert name in error.exceptions[0].__notes__[0]
    assert error.exceptions[1] is TWO


@pytest.mark.parametrize("name", MAPPING)
def test_after_an_error_of_the_source_the_inner_streams_go_on(name: str) -> None:
    source, inner = Driven(), Driven()
    recorder = Recorder.of(getattr(source.flux(), name)(lambda _: inner), first=9)
    source.emit(1).fail(ONE)
    inner.emit("a", "b").complete()

    assert recorder.wait().items == ["a", "b"]
    assert recorder.error is ONE


def test_each_subscriber_has_failures_of_its_own() -> None:
    stream = Flux.concat_delay_error(broken(1), Flux.just(2))

    assert ended(stream) == ended(stream) == ([1, 2], ONE)


@pytest.mark.parametrize("name", MAPPING)
def test_a_cancel_reaches_all(name: str) -> None:
    source, inner = Counting(), Driven()
    recorder = Recorder.of(getattr(Flux.from_iterable(source), name)(lambda _: inner), first=9)
    recorder.cancel()

    assert source.closed
    assert inner.cancels == inner.subscriptions > 0


def test_concat_asks_for_no_more_than_it_is_asked_for() -> None:
    a, b = Elsewhere(1, 2, 3), Elsewhere(4, 5, 6)
    recorder = Recorder.of(Flux.concat_delay_error(a, b), first=4)

    assert recorder.check().items == [1, 2, 3, 4]
    assert (a.asked, b.asked) == (4, 1)


def test_an_interrupt_does_not_wait() -> None:
    stop = KeyboardInterrupt()
    later = Driven()
    recorder = Recorder.of(Flux.concat_delay_error(Flux.error(stop), later), first=9)

    assert recorder.error is stop
    assert later.subscriptions == 0


def test_threads_that_fail_together_lose_no_failure() -> None:
    pool = schedulers.shared_pool()

    def fails(n: int) -> Flux[int]:
        return Flux.concat(Flux.just(n), Flux.error(ValueError(n))).subscribe_on(pool)

    recorder = Recorder.of(Flux.range(200).flat_map_delay_error(fails), first=UNBOUNDED).wait()

    assert sorted(recorder.items) == list(range(200))
    assert isinstance(recorder.error, ExceptionGroup)
    assert sorted(error.args[0] for error in recorder.error.exceptions) == list(range(200))


def test_when_all_have_ended() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Mono.when_delay_error(a, b), first=1)
    a.fail(ONE)
    assert not recorder.terminated
    b.emit(1).fail(TWO)

    assert isinstance(recorder.error, ExceptionGroup)
    assert recorder.error.exceptions == (ONE, TWO)
    assert recorder.items == []
