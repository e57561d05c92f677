"""Signals that nobody can receive: they go to the hooks, and never into a stranger's code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, on_dropped
from penstock.streams.errors import drop_elements, drop_error
from penstock.streams.schedulers import VirtualTimeScheduler
from penstock.streams.source import PublisherSource
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder, logged_here


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


# -------------------------------------------------------------------- errors that come when a reader has left
class Ready(Driven):
    """Has an element for the first request. No guard stands between it and its subscriber."""

    def flux(self) -> Flux[Any]:
        return Flux._of(PublisherSource(self))

    def mono(self) -> Mono[Any]:
        return Mono._of(PublisherSource(self))

    def request(self, n: int, /) -> None:
        super().request(n)
        if len(self.requests) == 1:
            self.emit("first")


def leave_a_for(source: Ready) -> None:
    for _ in source.flux():
        break


def leave_an_async_for(source: Ready) -> None:
    async def main() -> None:
        async for _ in source.flux():
            break

    asyncio.run(main())


def cancel_a_task_that_awaits(source: Ready) -> None:
    async def main() -> None:
        async def wait() -> Any:
            return await source.mono()

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def block_for_too_long(source: Ready) -> None:
    with pytest.raises(TimeoutError):
        source.mono().block(0.001)


def cancel_a_future(source: Ready) -> None:
    assert source.mono().to_future().cancel()


LEAVE = pytest.mark.parametrize(
    "leave",
    [leave_a_for, leave_an_async_for, cancel_a_task_that_awaits, block_for_too_long, cancel_a_future],
)


@LEAVE
def test_an_error_that_comes_after_the_reader_left_is_reported(
    dropped: Dropped, leave: Callable[[Ready], None]
) -> None:
    source, error = Ready(), ValueError("late")

    leave(source)
    assert (source.cancels, dropped.errors) == (1, [])
    source.fail(error)

    assert dropped.errors == [error]


@LEAVE
def test_so_is_one_that_comes_from_inside_the_cancel(
    dropped: Dropped, leave: Callable[[Ready], None]
) -> None:
    error = ValueError("late")

    class Resentful(Ready):
        def cancel(self) -> None:
            super().cancel()
            self.fail(error)

    leave(Resentful())

    assert dropped.errors == [error]


@pytest.mark.parametrize("leave", [leave_a_for, leave_an_async_for])
def test_so_is_one_that_waits_behind_elements_when_the_reader_leaves(
    dropped: Dropped, leave: Callable[[Ready], None]
) -> None:
    error = ValueError("unread")

    class Short(Ready):
        def request(self, n: int, /) -> None:
            super().request(n)
            self.emit("second").fail(error)

    source = Short()
    leave(source)

    assert (source.requests, source.cancels, dropped.errors) == ([256], 0, [error])


def test_so_is_one_that_comes_when_the_event_loop_of_its_reader_is_closed(dropped: Dropped) -> None:
    source, error = Driven(), ValueError("nobody is there")

    async def start_reading() -> Any:
        step = Flux._of(PublisherSource(source)).to_async_iterable().__anext__().__await__()
        next(step)  # as a task would, but nobody goes on with it
        return step

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        waiting = loop.run_until_complete(start_reading())
    with contextlib.closing(waiting), ThreadPoolExecutor() as another:
        another.submit(source.fail, error).result(20)
        assert dropped.errors == [error]


def test_an_error_that_is_raised_is_not_reported_as_well(dropped: Dropped) -> None:
    error = ValueError("x")

    class Failing(Ready):
        def request(self, n: int, /) -> None:
            self.fail(error)

    async def read() -> None:
        async for _ in Failing().flux():
            pass

    async def wait() -> None:
        await Failing().mono()

    for way_out in (
        lambda: list(Failing().flux()),
        lambda: asyncio.run(read()),
        lambda: asyncio.run(wait()),
        lambda: Failing().mono().block(),
        lambda: Failing().mono().to_future().result(20),
    ):
        with pytest.raises(ValueError, match="x") as raised:
            way_out()
        assert raised.value is error

    assert dropped.errors == []


# -------------------------------------------------------------------- the hooks
def test_by_default_both_are_logged_as_warnings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock.streams"):
        drop_error(ValueError("x"), "here")
        drop_elements(["e" * 1000], "there")

    error, element = logged_here(caplog)
    assert [error.levelname, element.levelname] == ["WARNING", "WARNING"]
    assert error.getMessage() == "dropped error from here: ValueError('x')"
    assert element.getMessage().startswith("dropped element from there: 'eee")
    assert len(element.getMessage()) < 300


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
