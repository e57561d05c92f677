"""``map_async``: coroutines for elements, as many at once as was said."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, on_dropped
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


class Workshop:
    """Coroutines that finish when the test says so."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.cancelled: list[Any] = []
        self.running = self.most = 0
        self._orders: dict[Any, asyncio.Future[Any]] = {}

    async def work(self, element: Any) -> Any:
        self.begun.append(element)
        self.running += 1
        self.most = max(self.most, self.running)
        self._orders[element] = asyncio.get_running_loop().create_future()
        try:
            return await self._orders[element]
        except asyncio.CancelledError:
            self.cancelled.append(element)
            raise
        finally:
            self.running -= 1

    async def finish(self, element: Any, result: Any) -> None:
        if isinstance(result, BaseException):
            self._orders[element].set_exception(result)
        else:
            self._orders[element].set_result(result)
        await settled()


async def settled() -> None:
    """Let everything that is ready on the loop run."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_results_come_in_the_order_of_the_elements() -> None:
    async def main() -> None:
        shop = Workshop()
        recorder = Recorder.of(Flux.just(1, 2).map_async(shop.work), first=UNBOUNDED)
        await settled()
        await shop.finish(2, "two")
        assert recorder.items == []
        await shop.finish(1, "one")
        assert (recorder.items, recorder.completed) == (["one", "two"], True)
        recorder.check()

    asyncio.run(main())


def test_unordered_results_come_as_they_finish() -> None:
    async def main() -> None:
        shop = Workshop()
        recorder = Recorder.of(Flux.just(1, 2).map_async(shop.work, ordered=False), first=UNBOUNDED)
        await settled()
        await shop.finish(2, "two")
        assert recorder.items == ["two"]
        await shop.finish(1, "one")
        assert (recorder.items, recorder.completed) == (["two", "one"], True)

    asyncio.run(main())


@pytest.mark.parametrize("ordered", [True, False])
def test_never_more_than_concurrency_coroutines_run(ordered: bool) -> None:
    async def main() -> None:
        shop, source = Workshop(), Driven()
        stream = source.flux().map_async(shop.work, concurrency=2, ordered=ordered)
        recorder = Recorder.of(stream, first=UNBOUNDED)
        assert source.requests == [2]
        source.emit(1, 2)
        await settled()
        assert (shop.begun, source.requests) == ([1, 2], [2])
        await shop.finish(1, "one")
        assert (recorder.items, source.requests) == (["one"], [2, 1])

    asyncio.run(main())


def test_many_elements_stay_within_the_bound() -> None:
    running = most = 0

    async def work(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return n

    assert Flux.range(300).map_async(work, concurrency=5).collect_list().block(20) == list(range(300))
    assert most == 5


def test_results_wait_for_demand_and_nothing_new_is_begun() -> None:
    async def main() -> None:
        shop, source = Workshop(), Driven()
        recorder = Recorder.of(source.flux().map_async(shop.work, concurrency=1), first=0)
        source.emit(1)
        await settled()
        await shop.finish(1, "one")
        assert (recorder.items, source.requests) == ([], [1])
        recorder.request(1)
        assert (recorder.items, source.requests) == (["one"], [1, 1])

    asyncio.run(main())


def test_a_cancel_cancels_the_source_and_the_coroutines() -> None:
    async def main() -> None:
        shop, source = Workshop(), Driven()
        recorder = Recorder.of(source.flux().map_async(shop.work), first=9)
        source.emit(1, 2)
        await settled()
        recorder.cancel()
        await settled()
        assert (sorted(shop.cancelled), source.cancels) == ([1, 2], 1)

    asyncio.run(main())


def test_a_cancel_before_the_first_step_of_a_coroutine_leaves_nothing_behind() -> None:
    async def work() -> int:
        return 1

    def leave(_: int) -> Any:
        recorder.cancel()
        return work()

    async def main() -> None:
        Flux.just(1).map_async(leave).subscribe(recorder)
        await settled()

    recorder = Recorder(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()

    assert not recorder.terminated


def test_a_failed_coroutine_cancels_the_others() -> None:
    async def main() -> None:
        shop, source, error = Workshop(), Driven(), ValueError("x")
        recorder = Recorder.of(source.flux().map_async(shop.work), first=9)
        source.emit(1, 2)
        await settled()
        await shop.finish(2, error)
        assert (recorder.error, shop.cancelled, source.cancels) == (error, [1], 1)
        assert any("map_async" in note for note in error.__notes__)

    asyncio.run(main())


def test_an_error_of_the_source_cancels_the_coroutines() -> None:
    async def main() -> None:
        shop, source, error = Workshop(), Driven(), ValueError("x")
        recorder = Recorder.of(source.flux().map_async(shop.work), first=9)
        source.emit(1)
        await settled()
        source.fail(error)
        await settled()
        assert (recorder.error, shop.cancelled) == (error, [1])

    asyncio.run(main())


def test_a_coroutine_that_fails_after_the_cancel_goes_to_the_hook() -> None:
    async def main() -> None:
        late, dropped = ValueError("late"), []

        async def stubborn(element: int) -> int:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                raise late from None
            return element

        with on_dropped(error=lambda error, where: dropped.append(error)):
            recorder = Recorder.of(Flux.just(1).map_async(stubborn), first=1)
            await settled()
            recorder.cancel()
            await settled()
        assert (dropped, recorder.error) == ([late], None)

    asyncio.run(main())


def test_an_empty_stream_stays_empty() -> None:
    assert Flux.empty().map_async(asyncio.sleep).collect_list().block(20) == []


def test_none_as_a_result_breaks_rule_2_13() -> None:
    async def nothing(_: object) -> None: ...

    recorder = Recorder.of(Flux.just(1).map_async(nothing), first=1).wait()

    assert "§2.13" in str(recorder.error)
    assert "map_async(nothing)" in str(recorder.error)


def test_a_plain_function_is_told_to_use_map() -> None:
    recorder = Recorder.of(Flux.just(1).map_async(str), first=1).wait()  # type: ignore[arg-type]

    assert isinstance(recorder.error, TypeError)
    assert "use map()" in str(recorder.error)


def test_a_function_that_raises_before_its_first_await_fails_the_stream() -> None:
    def broken(_: object) -> Any:
        raise ValueError("x")

    assert isinstance(Recorder.of(Flux.just(1).map_async(broken), first=1).wait().error, ValueError)


def test_a_coroutine_that_cancels_itself_fails_the_stream() -> None:
    async def suicidal(_: object) -> int:
        raise asyncio.CancelledError

    error = Recorder.of(Flux.just(1).map_async(suicidal), first=1).wait().error

    assert isinstance(error, RuntimeError)
    assert "was cancelled" in str(error)


def test_coroutines_run_on_the_loop_of_the_subscriber() -> None:
    async def where(_: object) -> int:
        return threading.get_ident()

    async def main() -> None:
        assert await Flux.just(1).map_async(where).collect_list() == [threading.get_ident()]

    asyncio.run(main())


def test_without_a_loop_they_run_on_the_one_of_the_package() -> None:
    async def where(_: object) -> str:
        return threading.current_thread().name

    assert Flux.just(1).map_async(where).collect_list().block(20) == ["penstock-loop"]


def test_a_mono_awaits_its_one_element() -> None:
    async def double(n: int) -> int:
        return n * 2

    assert Mono.just(4).map_async(double).block(20) == 8
    assert Mono.empty().map_async(double).block(20) is None


def test_cancelling_a_mono_cancels_its_coroutine() -> None:
    async def main() -> None:
        shop = Workshop()
        recorder = Recorder.of(Mono.just(1).map_async(shop.work), first=1)
        await settled()
        recorder.cancel()
        await settled()
        assert shop.cancelled == [1]

    asyncio.run(main())
