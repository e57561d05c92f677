"""Operators of a Mono that join it with others."""

from __future__ import annotations

import pytest

from penstock.streams import Flux, Mono
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


def test_zip_of_monos_is_one_row() -> None:
    assert Mono.zip(Mono.just(1), Mono.just("a")).block() == (1, "a")
    assert Mono.zip(Mono.just(1), Mono.just(2), combinator=lambda a, b: a + b).block() == 3
    assert Mono.just(1).zip_with(Mono.just(2)).block() == (1, 2)
    assert Mono.just(1).zip_with(Mono.just(2), lambda a, b: a - b).block() == -1


def test_zip_with_an_empty_mono_is_empty_and_cancels_the_other() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Mono.zip(a.mono(), b.mono()), first=1)

    b.complete()

    assert (recorder.items, recorder.completed, a.cancels) == ([], True, 1)


def test_zip_completes_after_its_row() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Mono.zip(a.mono(), b.mono()), first=1)

    a.emit(1)
    b.emit(2)

    assert (recorder.items, recorder.completed) == ([(1, 2)], True)
    recorder.check()


def test_an_error_in_a_zip_cancels_the_other() -> None:
    a, b, error = Driven(), Driven(), ValueError("x")
    recorder = Recorder.of(a.mono().zip_with(b.mono()), first=1)

    b.fail(error)

    assert (recorder.error, a.cancels) == (error, 1)


def test_when_completes_after_all_and_forgets_the_elements() -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(Mono.when(a, b), first=1)

    a.emit(1).complete()
    assert not recorder.completed
    b.complete()

    assert (recorder.items, recorder.completed) == ([], True)


def test_when_keeps_asking_for_more() -> None:
    assert Mono.when(Flux.range(1000), Flux.range(1000)).block() is None


def test_when_fails_with_the_first_error_and_cancels_the_rest() -> None:
    a, b, error = Driven(), Driven(), ValueError("x")
    recorder = Recorder.of(Mono.when(a, b), first=1)

    a.fail(error)

    assert (recorder.error, b.cancels) == (error, 1)


def test_concat_with_and_merge_with_make_a_flux() -> None:
    assert Mono.just(1).concat_with(Flux.just(2, 3), Mono.just(4)).collect_list().block() == [1, 2, 3, 4]
    assert sorted(Mono.just(1).merge_with(Flux.just(2, 3)).collect_list().block()) == [1, 2, 3]


@pytest.mark.parametrize("operator", ["concat_with", "merge_with"])
def test_a_cancel_reaches_the_streams_that_run(operator: str) -> None:
    a, b = Driven(), Driven()
    recorder = Recorder.of(getattr(a.mono(), operator)(b), first=1)

    recorder.cancel()

    assert a.cancels == 1
    assert b.cancels == b.subscriptions


def test_then_goes_on_after_the_end() -> None:
    assert Mono.just(1).then().block() is None
    assert Mono.just(1).then(Mono.just(2)).block() == 2
    assert Mono.empty().then(Mono.just(2)).block() == 2
    assert Mono.just(1).then_many(Flux.just(2, 3)).collect_list().block() == [2, 3]


def test_then_return_sends_its_value_after_the_end() -> None:
    source = Driven()
    recorder = Recorder.of(source.mono().then_return("done"), first=1)
    assert recorder.items == []

    source.complete()

    assert (recorder.items, recorder.completed) == (["done"], True)
    assert Mono.just("forgotten").then_return("done").block() == "done"
    with pytest.raises(TypeError, match="then_return"):
        Mono.just(1).then_return(None)


@pytest.mark.parametrize(
    "go_on", [lambda m: m.then(Mono.just(2)), lambda m: m.then_many(Flux.just(2)), lambda m: m.then_return(2)]
)
def test_an_error_is_not_followed_by_anything(go_on: object) -> None:
    error = ValueError("x")

    recorder = Recorder.of(go_on(Mono.error(error)), first=5)  # type: ignore[operator]

    assert (recorder.items, recorder.error) == ([], error)
