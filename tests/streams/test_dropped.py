"""Signals that nobody can receive: they go to the hooks, and never into a stranger's code."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, on_dropped
from penstock.streams.dropped import drop_elements, drop_error
from penstock.streams.schedulers import VirtualTimeScheduler
from tests.streams.operators.test_creating_from_publisher import Driven
from tests.streams.recording import Recorder


class Dropped:
    """What came to the hooks."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.elements: list[Any] = []
        self.places: list[str] = []

    def error(self, error: BaseException, where: str) -> None:
        self.errors.append(error)
        self.places.append(where)

    def element(self, element: Any, where: str) -> None:
        self.elements.append(element)
        self.places.append(where)


@pytest.fixture
def dropped() -> Any:
    hooks = Dropped()
    with on_dropped(error=hooks.error, element=hooks.element):
        yield hooks


def test_a_subscriber_that_raises_is_cancelled_and_reported(dropped: Dropped) -> None:
    source, error = Driven(), ValueError("x")

    def broken(*_: object) -> None:
        raise error

    recorder = Recorder(9, on_element=broken)
    source.flux().map(str).subscribe(recorder)
    source.emit(1, 2)

    assert (dropped.errors, source.cancels, recorder.items) == ([error], 1, ["1"])
    assert "§2.13" in dropped.places[0]


@pytest.mark.parametrize("signal", ["on_subscribe", "on_error", "on_complete"])
def test_so_is_one_that_raises_in_another_signal(dropped: Dropped, signal: str) -> None:
    error = ValueError("x")

    def broken(*_: object) -> None:
        raise error

    recorder = Recorder(9)
    setattr(recorder, signal, broken)
    (Flux.error(KeyError("y")) if signal == "on_error" else Flux.just(1)).subscribe(recorder)

    assert error in dropped.errors


def test_errors_of_two_sources_at_once_the_second_is_reported(dropped: Dropped) -> None:
    first, second = ValueError("first"), ValueError("second")

    def both(*_: object) -> None:
        b.fail(first)
        c.fail(second)

    a, b, c = Driven(), Driven(), Driven()
    recorder = Recorder(9, on_element=both)
    Flux.merge(a, b, c).subscribe(recorder)
    a.emit("go")

    assert recorder.error is first
    assert dropped.errors == [second]


def test_elements_that_wait_behind_an_error_and_are_cancelled_are_reported(dropped: Dropped) -> None:
    clock, source = VirtualTimeScheduler(), Driven()
    recorder = Recorder.of(source.flux().publish_on(clock))
    source.emit(1, 2).fail(ValueError("x"))

    recorder.cancel()
    clock.run_pending()

    assert dropped.elements == [1, 2]


def test_what_a_closing_source_raises_is_reported_not_raised(dropped: Dropped) -> None:
    error = ValueError("closing")

    def numbers() -> Any:
        try:
            yield 1
            yield 2
        finally:
            raise error

    recorder = Recorder.of(Flux.from_iterable(numbers()), first=1)
    recorder.cancel()

    assert dropped.errors == [error]


def test_a_cancelled_stream_is_quiet(dropped: Dropped) -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().map(str).limit_rate(4), first=UNBOUNDED)
    source.emit(1)
    recorder.cancel()
    source.emit(2)

    assert (dropped.errors, dropped.elements) == ([], [])


def test_by_default_both_are_logged_as_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock.streams"):
        drop_error(ValueError("x"), "here")
        drop_elements(["e" * 1000], "there")

    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert caplog.messages[0] == "dropped error from here: ValueError('x')"
    assert caplog.messages[1].startswith("dropped element from there: 'eee")
    assert len(caplog.messages[1]) < 300


def test_a_hook_that_fails_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> None:
        raise KeyError("hook")

    with on_dropped(error=broken), caplog.at_level(logging.WARNING, "penstock.streams"):
        drop_error(ValueError("x"), "here")

    assert "the hook for dropped signals failed" in caplog.text


def test_after_the_block_the_hooks_of_before_are_back(dropped: Dropped) -> None:
    other = Dropped()
    with on_dropped(error=other.error):
        drop_error(ValueError("inner"), "here")
        drop_elements([1], "here")
    drop_error(ValueError("outer"), "here")

    assert [str(error) for error in other.errors] == ["inner"]
    assert ([str(error) for error in dropped.errors], dropped.elements) == (["outer"], [1])
