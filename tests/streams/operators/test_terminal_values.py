"""``await``, ``block``, ``to_future``, ``subscribe`` with functions, ``Running``."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from penstock.streams import Flux, Mono, Sinks, on_dropped, schedulers
from penstock.testing import race
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.operators.test_map_async import settled


# -------------------------------------------------------------------- await
def test_awaiting_gives_the_value_nothing_or_the_error() -> None:
    async def main() -> None:
        assert await Mono.just(1) == 1
        assert await Mono.empty() is None
        assert await Mono.just(2).publish_on(schedulers.shared_pool()) == 2
        with pytest.raises(ValueError, match="x"):
            await Mono.error(ValueError("x"))

    asyncio.run(main())


def test_a_task_that_is_cancelled_while_it_waits_cancels_the_stream() -> None:
    async def main() -> None:
        source = Driven()

        async def wait() -> Any:
            return await source.mono()

        task = asyncio.create_task(wait())
        await settled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.cancels == 1

    asyncio.run(main())


# -------------------------------------------------------------------- block
def test_block_gives_the_value_nothing_or_the_error() -> None:
    assert Mono.just(1).block() == 1
    assert Mono.empty().block() is None
    with pytest.raises(ValueError, match="x"):
        Mono.error(ValueError("x")).block()


def test_block_waits_for_another_thread() -> None:
    assert Mono.just(1).publish_on(schedulers.shared_pool()).block(20) == 1


def test_a_block_that_takes_too_long_cancels_the_stream() -> None:
    source = Driven()

    with pytest.raises(TimeoutError, match=r"no result within 0\.001 s; the stream was cancelled"):
        source.mono().block(0.001)

    assert source.cancels == 1


def test_on_an_event_loop_a_block_that_would_wait_says_so_and_cancels() -> None:
    source = Driven()

    async def main() -> None:
        assert Mono.just(1).block() == 1
        with pytest.raises(RuntimeError, match="use 'await'"):
            source.mono().block()

    asyncio.run(main())
    assert source.cancels == 1


def test_block_first_cancels_after_it_and_block_last_waits_for_the_end() -> None:
    taken: list[int] = []

    assert Flux.range(5).do_on_next(taken.append).block_first() == 0
    assert taken == [0]
    assert Flux.range(5).block_last() == 4
    assert Flux.empty().block_first() is Flux.empty().block_last() is None
    with pytest.raises(TimeoutError):
        Flux.never().block_first(0.001)
    with pytest.raises(ValueError, match="x"):
        Flux.just(1).concat_with(Flux.error(ValueError("x"))).block_last()


# -------------------------------------------------------------------- to_future
def test_a_future_gets_the_value_nothing_or_the_error() -> None:
    error = ValueError("x")

    assert Mono.just(1).to_future().result(20) == 1
    assert Mono.empty().to_future().result(20) is None
    assert Mono.error(error).to_future().exception(20) is error


def test_cancelling_the_future_cancels_the_stream_and_late_signals_harm_nobody() -> None:
    source = Driven()
    future = source.mono().to_future()

    assert future.cancel()
    assert source.cancels == 1
    source.emit(1).complete()

    assert future.cancelled()


def test_the_future_is_one_of_threads() -> None:
    assert isinstance(Mono.just(1).to_future(), Future)


# -------------------------------------------------------------------- subscribe
def test_functions_are_called_for_elements_and_the_end() -> None:
    seen: list[Any] = []

    running = Flux.just(1, 2).subscribe(seen.append, on_complete=lambda: seen.append("end"))

    assert (seen, running.done, running.error) == ([1, 2, "end"], True, None)


def test_the_error_goes_to_its_function_or_to_the_hook() -> None:
    error, seen, dropped = ValueError("x"), [], []

    running = Flux.error(error).subscribe(on_error=seen.append)
    assert (seen, running.error, running.done) == ([error], error, True)

    with on_dropped(error=lambda error, where: dropped.append((error, where))):
        Flux.error(error).subscribe(print)
    assert dropped == [(error, "a subscription without on_error")]


def test_an_on_next_that_raises_cancels_the_stream_and_goes_to_on_error() -> None:
    source, errors, error = Driven(), [], ValueError("x")

    def broken(_: object) -> None:
        raise error

    running = source.flux().subscribe(broken, on_error=errors.append)
    source.emit(1, 2)

    assert (source.cancels, errors, running.error, running.done) == (1, [error], error, True)


@pytest.mark.parametrize("which", ["on_error", "on_complete"])
def test_another_function_that_raises_goes_to_the_hook(which: str) -> None:
    dropped: list[str] = []

    def broken(*_: object) -> None:
        raise ValueError("x")

    source = Flux.error(KeyError()) if which == "on_error" else Flux.empty()
    with on_dropped(error=lambda error, where: dropped.append(where)):
        running = source.subscribe(print, **{which: broken})  # type: ignore[call-overload]

    assert running.done
    assert dropped == [f"the {which} function of a subscription"]


def test_functions_ask_for_their_prefetch_and_then_three_quarters() -> None:
    source = Driven()
    source.flux().subscribe(lambda _: None, prefetch=4)
    source.emit(1, 2)
    assert source.requests == [4]

    source.emit(3)

    assert source.requests == [4, 3]


def test_subscribing_without_anything_runs_the_stream() -> None:
    seen: list[int] = []

    assert Flux.range(1000).do_on_next(seen.append).subscribe().wait(20)
    assert len(seen) == 1000


def test_none_and_half_a_subscriber_are_refused() -> None:
    with pytest.raises(TypeError, match=r"§1\.9"):
        Flux.just(1).subscribe(None)  # type: ignore[call-overload]

    class Half:
        def on_subscribe(self, subscription: object) -> None: ...

    with pytest.raises(TypeError, match="lacks on_next"):
        Flux.just(1).subscribe(Half())  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="subscribe"):
        Flux.just(1).subscribe(print, on_error="log")  # type: ignore[call-overload]


# -------------------------------------------------------------------- Running
def test_cancel_stops_the_stream_any_number_of_times() -> None:
    source, seen = Driven(), []
    running = source.flux().subscribe(seen.append)
    source.emit(1)
    assert not running.done
    assert not running.wait(0)

    running.cancel()
    running.cancel()
    source.emit(2)

    assert (source.cancels, seen, running.done, running.wait(0)) == (1, [1], True, True)


def test_a_cancel_inside_on_next_is_the_last_element() -> None:
    seen: list[int] = []
    source = Driven()

    def once(element: int) -> None:
        seen.append(element)
        running.cancel()

    running = source.flux().subscribe(once)
    source.emit(1, 2, 3)

    assert seen == [1]


def test_wait_returns_when_another_thread_ends_the_stream() -> None:
    gate = threading.Event()
    running = Mono.from_callable(gate.wait).subscribe_on(schedulers.shared_pool()).subscribe(lambda _: None)

    gate.set()

    assert running.wait(20)
    assert running.done


def test_scan_shows_the_stages() -> None:
    source = Driven()
    running = source.flux().limit_rate(4).map(str).subscribe(print)

    assert [state.name for state in running.scan()] == ["limit_rate(4) map(str)"]
    running.cancel()


def test_a_mono_is_a_flux_too_and_transform_applies_a_function() -> None:
    assert Mono.just(1).flux().collect_list().block() == [1]
    assert Flux.just(1, 2).transform(lambda flux: flux.map(str)).collect_list().block() == ["1", "2"]
    assert Mono.just(1).transform(lambda mono: mono.block()) == 1


def test_those_who_wait_for_a_future_hear_that_it_was_cancelled() -> None:
    future = Mono.never().to_future()
    waiting = concurrent.futures.ThreadPoolExecutor(1)
    heard = waiting.submit(concurrent.futures.wait, [future], 30)
    assert future.cancel()
    assert heard.result(30).done == {future}
    assert list(concurrent.futures.as_completed([future], 30)) == [future]
    waiting.shutdown()


def test_a_future_that_is_cancelled_as_the_stream_ends_has_one_outcome() -> None:
    for _ in range(200):
        sink: Any = Sinks.one()
        future = sink.mono().to_future()
        race(lambda sink=sink: sink.try_value(1), lambda future=future: future.cancel())
        assert future.cancelled() or future.result(30) == 1
        assert concurrent.futures.wait([future], 30).done == {future}
