"""Sources out of asyncio: asynchronous iterables, coroutines and futures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, on_dropped
from tests.streams.operators.test_map_async import settled
from tests.streams.recording import Recorder


class Steps:
    """An asynchronous iterable that tells how far it was stepped through."""

    def __init__(self, count: int = 100, error: Exception | None = None) -> None:
        self.taken = 0
        self.closed = threading.Event()
        self.cleaned = threading.Event()
        self._count = count
        self._error = error

    async def __call__(self) -> AsyncIterator[int]:
        try:
            for n in range(self._count):
                self.taken += 1
                yield n
            if self._error is not None:
                raise self._error
        finally:
            self.closed.set()
            await asyncio.sleep(0)
            self.cleaned.set()


# -------------------------------------------------------------------- from_async_iterable
def test_one_step_for_each_element_of_demand() -> None:
    async def main() -> None:
        steps = Steps()
        recorder = Recorder.of(Flux.from_async_iterable(steps))
        await settled()
        assert steps.taken == 0
        recorder.request(2)
        await settled()
        assert (steps.taken, recorder.items) == (2, [0, 1])
        recorder.request(1)
        await settled()
        assert (steps.taken, recorder.check().items) == (3, [0, 1, 2])
        recorder.cancel()
        await settled()

    asyncio.run(main())


def test_a_cancel_closes_the_iterator_and_lets_it_clean_up() -> None:
    async def main() -> None:
        steps = Steps()
        recorder = Recorder.of(Flux.from_async_iterable(steps), first=1)
        await settled()
        recorder.cancel()
        await settled()
        assert steps.cleaned.is_set()

    asyncio.run(main())


def test_a_cancel_inside_on_next_takes_no_further_step_and_lets_it_clean_up() -> None:
    async def main() -> None:
        steps = Steps()
        recorder = Recorder(UNBOUNDED, on_element=lambda recorder, _: recorder.cancel())
        Flux.from_async_iterable(steps).subscribe(recorder)
        await settled()
        assert (recorder.items, steps.taken) == ([0], 1)
        assert steps.cleaned.is_set()

    asyncio.run(main())


def test_take_closes_the_iterator() -> None:
    steps = Steps()

    assert Flux.from_async_iterable(steps).take(2).collect_list().block(20) == [0, 1]
    assert steps.cleaned.wait(20)
    assert steps.taken == 2


def test_a_cancel_while_a_step_waits_cancels_the_step() -> None:
    async def main() -> None:
        cancelled = asyncio.Event()

        async def waiting() -> AsyncIterator[int]:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            yield 1

        recorder = Recorder.of(Flux.from_async_iterable(waiting), first=1)
        await settled()
        recorder.cancel()
        await asyncio.wait_for(cancelled.wait(), 20)

    asyncio.run(main())


def test_the_end_and_the_error_of_the_iterator_are_those_of_the_stream() -> None:
    error = ValueError("x")
    completed = Recorder.of(Flux.from_async_iterable(Steps(2)), first=UNBOUNDED).wait()
    failed = Recorder.of(Flux.from_async_iterable(Steps(2, error)), first=UNBOUNDED).wait()

    assert (completed.items, completed.completed) == ([0, 1], True)
    assert (failed.items, failed.error) == ([0, 1], error)


def test_outside_of_an_event_loop_the_package_runs_one() -> None:
    async def where() -> AsyncIterator[str]:
        yield threading.current_thread().name

    assert Flux.from_async_iterable(where).collect_list().block(20) == ["penstock-loop"]
    assert list(Flux.from_async_iterable(where)) == ["penstock-loop"]


def test_inside_of_an_event_loop_that_one_is_used() -> None:
    async def where() -> AsyncIterator[int]:
        yield threading.get_ident()

    async def main() -> None:
        assert await Flux.from_async_iterable(where).collect_list() == [threading.get_ident()]

    asyncio.run(main())


def test_an_asynchronous_generator_itself_may_be_passed() -> None:
    assert Flux.from_async_iterable(Steps(3)()).collect_list().block(20) == [0, 1, 2]


def test_a_factory_that_raises_fails_the_stream() -> None:
    def broken() -> Any:
        raise ValueError("x")

    assert isinstance(Recorder.of(Flux.from_async_iterable(broken), first=1).wait().error, ValueError)


def test_an_iterator_that_never_waits_leaves_room_for_others() -> None:
    async def main() -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await Flux.from_async_iterable(Steps(5_000)).count()
        task.cancel()
        assert turns > 5

    asyncio.run(main())


def test_what_is_no_asynchronous_iterable_is_refused() -> None:
    with pytest.raises(TypeError, match="from_async_iterable"):
        Flux.from_async_iterable([1])  # type: ignore[arg-type]


# -------------------------------------------------------------------- coroutines and futures
def test_a_coroutine_function_is_called_for_each_subscriber() -> None:
    calls: list[int] = []

    async def load() -> int:
        calls.append(1)
        return len(calls)

    mono = Mono.from_callable(load)

    assert [mono.block(20), mono.block(20)] == [1, 2]


def test_a_coroutine_may_be_empty_or_fail() -> None:
    async def nothing() -> None: ...

    async def broken() -> int:
        raise ValueError("x")

    assert Mono.from_callable(nothing).block(20) is None
    with pytest.raises(ValueError, match="x"):
        Mono.from_callable(broken).block(20)


def test_a_future_of_threads_gives_its_result_when_there_is_demand() -> None:
    future: Future[str] = Future()
    recorder = Recorder.of(Mono.from_future(future))
    future.set_result("value")
    assert recorder.items == []

    recorder.request(1)

    assert (recorder.check().items, recorder.completed) == (["value"], True)


def test_futures_that_fail_or_are_cancelled_fail_the_mono() -> None:
    failed, cancelled, error = Future[int](), Future[int](), ValueError("x")
    one, other = Recorder.of(Mono.from_future(failed)), Recorder.of(Mono.from_future(cancelled))
    failed.set_exception(error)
    cancelled.cancel()

    assert one.error is error
    assert "was cancelled" in str(other.error)


def test_cancelling_the_subscription_cancels_the_future_without_noise() -> None:
    future, dropped = Future[int](), []

    with on_dropped(error=lambda error, where: dropped.append(error)):
        Recorder.of(Mono.from_future(future), first=1).cancel()

    assert (future.cancelled(), dropped) == (True, [])


def test_an_asyncio_future_and_a_task_and_a_coroutine() -> None:
    async def value() -> str:
        return "value"

    async def main() -> None:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, "value")
        assert await Mono.from_future(future) == "value"
        assert await Mono.from_future(asyncio.create_task(value())) == "value"
        assert await Mono.from_future(value()) == "value"

    asyncio.run(main())
    assert Mono.from_future(value()).block(20) == "value"


def test_cancelling_the_subscription_cancels_the_task_without_noise() -> None:
    async def main() -> None:
        dropped: list[BaseException] = []
        task = asyncio.create_task(asyncio.Event().wait())
        with on_dropped(error=lambda error, where: dropped.append(error)):
            recorder = Recorder.of(Mono.from_future(task), first=1)
            await settled()
            recorder.cancel()
            await settled()
        assert (task.cancelled(), dropped) == (True, [])

    asyncio.run(main())


def test_a_coroutine_that_was_awaited_already_fails_the_second_subscriber() -> None:
    async def value() -> str:
        return "value"

    mono = Mono.from_future(value())
    assert mono.block(20) == "value"

    assert isinstance(Recorder.of(mono, first=1).wait().error, RuntimeError)


def test_a_future_of_another_threads_loop_is_awaited_there() -> None:
    from penstock.streams import schedulers

    loop = schedulers.background_loop().loop
    future = loop.create_future()
    recorder = Recorder.of(Mono.from_future(future), first=1)
    loop.call_soon_threadsafe(future.set_result, "value")

    assert recorder.wait().items == ["value"]


def test_what_cannot_be_awaited_is_refused() -> None:
    with pytest.raises(TypeError, match="from_future"):
        Mono.from_future(3)  # type: ignore[arg-type]


def test_the_second_reader_of_an_asynchronous_generator_is_told_that_it_is_used_up() -> None:
    async def numbers() -> Any:
        yield 1
        yield 2

    async def main() -> None:
        for flux in (Flux.from_async_iterable(numbers()), Flux.concat(numbers())):
            assert [x async for x in flux] == [1, 2]
            with pytest.raises(RuntimeError, match=r"used up .* pass the function that makes it"):
                [x async for x in flux]
        again = Flux.from_async_iterable(numbers)
        assert [x async for x in again] == [x async for x in again] == [1, 2]

    asyncio.run(main())


class Failing:
    """An asynchronous iterator whose step raises, and whose closing may raise, too."""

    def __init__(self, step: BaseException, closing: BaseException | None = None) -> None:
        self._step = step
        self._closing = closing

    def __aiter__(self) -> Failing:
        return self

    async def __anext__(self) -> Any:
        raise self._step

    async def aclose(self) -> None:
        if self._closing is not None:
            raise self._closing


@pytest.mark.parametrize("closing", [None, GeneratorExit(), asyncio.CancelledError(), OSError()], ids=repr)
@pytest.mark.parametrize("step", [GeneratorExit(), ValueError()], ids=repr)
def test_a_step_that_fails_is_told_however_the_closing_ends(
    step: BaseException, closing: BaseException | None
) -> None:
    dropped: list[BaseException] = []
    with on_dropped(error=lambda error, where: dropped.append(error)):
        recorder = Recorder.of(Flux.from_async_iterable(lambda: Failing(step, closing)), first=1)

        assert recorder.wait().error is step
    assert dropped in ([], [closing])
