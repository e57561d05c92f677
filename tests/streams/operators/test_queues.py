"""Queues of asyncio and of threads, as the source and as the target of a stream."""

from __future__ import annotations

import asyncio
import gc
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams import Flux, Mono, on_dropped, schedulers
from tests.streams.recording import Recorder

PATIENCE = 60.0


def filled(*elements: Any, bound: int = 0) -> queue.Queue[Any]:
    made: queue.Queue[Any] = queue.Queue(bound)
    for element in elements:
        made.put_nowait(element)
    return made


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread is about to do."""
    for _ in range(int(PATIENCE * 1000)):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not happen")


# ------------------------------------------------------------------------------ from a queue of threads


def test_elements_come_out_in_order_until_none_ends_the_stream() -> None:
    assert Flux.from_queue(filled(1, 2, 3, None, 4)).collect_list().block(PATIENCE) == [1, 2, 3]


def test_the_end_may_be_any_object_and_is_compared_by_identity() -> None:
    end = object()
    assert Flux.from_queue(filled(0, "", end), end=end).collect_list().block(PATIENCE) == [0, ""]


def test_none_is_an_error_where_something_else_is_the_end() -> None:
    with pytest.raises(TypeError, match="None"):
        Flux.from_queue(filled(1, None), end="end").collect_list().block(PATIENCE)


def test_nothing_is_taken_out_without_demand() -> None:
    numbers = filled(*range(10))
    recorder = Recorder()
    Flux.from_queue(numbers).subscribe(recorder)
    assert numbers.qsize() == 10

    recorder.request(3)
    wait_until(lambda: len(recorder.items) == 3)
    assert recorder.items == [0, 1, 2]
    assert numbers.qsize() == 7
    recorder.cancel()


def test_a_slow_subscriber_holds_back_those_who_put() -> None:
    numbers: queue.Queue[int] = queue.Queue(2)
    recorder = Recorder()
    Flux.from_queue(numbers).subscribe(recorder)
    recorder.request(1)
    for n in range(3):
        numbers.put(n, timeout=PATIENCE)
    with pytest.raises(queue.Full):
        numbers.put_nowait(3)
    recorder.cancel()


def test_it_waits_for_what_another_thread_puts() -> None:
    numbers: queue.Queue[int | None] = queue.Queue(1)

    def put() -> None:
        for n in [*range(1000), None]:
            numbers.put(n, timeout=PATIENCE)

    thread = threading.Thread(target=put)
    thread.start()
    assert Flux.from_queue(numbers).collect_list().block(PATIENCE) == list(range(1000))
    thread.join()


def test_a_subscriber_that_leaves_while_it_waits_leaves_the_queue_to_others() -> None:
    numbers: queue.Queue[int] = queue.Queue()
    recorder = Recorder()
    Flux.from_queue(numbers).subscribe(recorder)
    recorder.request(5)
    wait_until(lambda: bool(numbers.not_empty._waiters))  # type: ignore[attr-defined]
    recorder.cancel()
    wait_until(lambda: not numbers.not_empty._waiters)  # type: ignore[attr-defined]

    numbers.put(1)
    assert numbers.get(timeout=PATIENCE) == 1
    assert recorder.items == []


def test_the_collector_may_cancel_in_the_middle_of_a_put() -> None:
    class Collecting(queue.Queue[Any]):
        collecting = False

        def _put(self, item: Any) -> None:
            if self.collecting:
                gc.collect()  # the lock of the queue is held here
            super()._put(item)

    numbers = Collecting()
    reader: Any = iter(Flux.from_queue(numbers))
    numbers.put(1)
    assert next(reader) == 1
    wait_until(lambda: bool(numbers.not_empty._waiters))  # type: ignore[attr-defined]
    reader = [reader]
    reader.append(reader)  # only the collector can free it
    del reader
    numbers.collecting = True
    numbers.put(2)
    numbers.collecting = False
    wait_until(lambda: not numbers.not_empty._waiters)  # type: ignore[attr-defined]


def test_two_subscribers_share_the_elements() -> None:
    numbers = filled(*range(100), None, None)
    parts = [Flux.from_queue(numbers).collect_list().to_future() for _ in range(2)]
    together = [n for part in parts for n in part.result(PATIENCE) or []]
    assert sorted(together) == list(range(100))


def test_many_queues_are_waited_for_at_once() -> None:
    queues: list[queue.Queue[Any]] = [queue.Queue() for _ in range(60)]
    results = [Flux.from_queue(each).collect_list().to_future() for each in queues]
    wait_until(lambda: all(each.not_empty._waiters for each in queues))  # type: ignore[attr-defined]
    for number, each in enumerate(queues):
        each.put(number)
        each.put(None)
    assert [result.result(PATIENCE) for result in results] == [[n] for n in range(60)]


def test_after_the_end_there_is_nothing_more() -> None:
    flux = Flux.from_queue(filled(1, None, 2))
    assert flux.collect_list().block(PATIENCE) == [1]
    assert flux.collect_list().block(PATIENCE) == []


def test_a_priority_queue_gives_its_order() -> None:
    numbers: queue.PriorityQueue[int] = queue.PriorityQueue()
    for n in (3, 1, 2):
        numbers.put(n)
    assert Flux.from_queue(numbers).take(3).collect_list().block(PATIENCE) == [1, 2, 3]


def test_a_queue_that_raises_is_an_error() -> None:
    class Broken(queue.Queue[Any]):
        def _get(self) -> Any:
            raise OSError("the store behind it is gone")

    broken = Broken()
    broken.put_nowait(1)
    with pytest.raises(OSError, match="store"):
        Flux.from_queue(broken).block_last(PATIENCE)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="queues can be shut down from Python 3.13 on")
def test_a_shutdown_ends_the_stream_after_what_is_left() -> None:
    numbers = filled(1, 2)
    numbers.shutdown()  # type: ignore[attr-defined]
    assert Flux.from_queue(numbers).collect_list().block(PATIENCE) == [1, 2]


# ------------------------------------------------------------------------------ into a queue of threads


def test_the_elements_and_then_the_end_are_put() -> None:
    letters: queue.Queue[Any] = queue.Queue()
    Flux.just("a", "b").to_queue(letters, end="end").block(PATIENCE)
    assert [letters.get_nowait() for _ in range(3)] == ["a", "b", "end"]
    assert letters.empty()


def test_a_full_queue_holds_the_stream_back() -> None:
    made: list[int] = []
    numbers: queue.Queue[Any] = queue.Queue(2)
    done = Flux.range(10).do_on_next(made.append).to_queue(numbers).to_future()
    wait_until(lambda: bool(numbers.not_full._waiters))  # type: ignore[attr-defined]
    assert made == [0, 1, 2]  # two in the queue, one outside
    assert [numbers.get(timeout=PATIENCE) for _ in range(11)] == [*range(10), None]
    assert done.result(PATIENCE) is None


def test_the_end_is_put_after_an_error_too() -> None:
    numbers: queue.Queue[Any] = queue.Queue()
    with pytest.raises(ZeroDivisionError):
        Flux.just(1, 0).map(lambda n: 1 // n).to_queue(numbers).block(PATIENCE)
    assert [numbers.get_nowait(), numbers.get_nowait()] == [1, None]


def test_a_cancel_wakes_the_thread_that_waits_for_room() -> None:
    dropped: list[Any] = []
    cancelled = threading.Event()
    numbers = filled(0, bound=1)
    with on_dropped(element=lambda element, where: dropped.append(element)):
        running = Flux.range(5).do_on_cancel(cancelled.set).to_queue(numbers).subscribe(print)
        wait_until(lambda: bool(numbers.not_full._waiters))  # type: ignore[attr-defined]
        running.cancel()
        wait_until(lambda: not numbers.not_full._waiters and dropped == [0])  # type: ignore[attr-defined]
    assert cancelled.is_set()
    assert [numbers.get_nowait()] == [0]


def test_from_one_queue_to_another() -> None:
    first, second = filled(*range(500), None), filled(bound=3)
    moving = Flux.from_queue(first).map(lambda n: n * 2).to_queue(second).to_future()
    assert Flux.from_queue(second).collect_list().block(PATIENCE) == [n * 2 for n in range(500)]
    moving.result(PATIENCE)


def test_an_element_that_the_target_refuses_is_the_end() -> None:
    dropped: list[Any] = []
    cancelled = threading.Event()
    ranks: queue.Queue[Any] = queue.PriorityQueue()
    ranks.put_nowait((1, "first"))
    with on_dropped(element=lambda element, where: dropped.append(element)), pytest.raises(TypeError):
        Flux.just("no rank", "never").do_on_cancel(cancelled.set).to_queue(ranks).block(PATIENCE)
    assert (dropped, cancelled.is_set()) == (["no rank"], True)


def test_an_end_that_does_not_compare_with_the_elements_is_an_error() -> None:
    with pytest.raises(TypeError):
        Flux.range(3).to_queue(queue.PriorityQueue()).block(PATIENCE)
    with pytest.raises(ExceptionGroup) as both:
        Flux.just(1, 0).map(lambda n: 1 // n).to_queue(queue.PriorityQueue()).block(PATIENCE)
    assert [type(error) for error in both.value.exceptions] == [ZeroDivisionError, TypeError]


def test_a_target_that_refuses_when_it_has_room_again_is_an_error() -> None:
    ranks: queue.Queue[Any] = queue.PriorityQueue(2)
    ranks.put_nowait((1, "first"))
    ranks.put_nowait((2, "second"))
    with on_dropped(element=lambda element, where: None):
        moving = Flux.just("no rank").to_queue(ranks).to_future()
        wait_until(lambda: bool(ranks.not_full._waiters))  # type: ignore[attr-defined]
        ranks.get_nowait()
        with pytest.raises(TypeError):
            moving.result(PATIENCE)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="queues can be shut down from Python 3.13 on")
def test_a_shutdown_of_the_target_cancels_the_stream() -> None:
    cancelled = threading.Event()
    numbers: queue.Queue[Any] = queue.Queue()
    numbers.shutdown()  # type: ignore[attr-defined]
    with on_dropped(element=lambda element, where: None), pytest.raises(queue.ShutDown):  # type: ignore[attr-defined]
        Flux.range(5).do_on_cancel(cancelled.set).to_queue(numbers).block(PATIENCE)
    assert cancelled.is_set()


# ------------------------------------------------------------------------------ asyncio


def test_an_asyncio_queue_is_read_until_none() -> None:
    async def main() -> list[int]:
        numbers: asyncio.Queue[int | None] = asyncio.Queue(2)

        async def put() -> None:
            for n in [*range(50), None]:
                await numbers.put(n)

        putting = asyncio.ensure_future(put())
        result = [n async for n in Flux.from_queue(numbers)]
        await putting
        return result

    assert asyncio.run(main()) == list(range(50))


def test_an_asyncio_queue_is_left_alone_without_demand() -> None:
    async def main() -> None:
        numbers: asyncio.Queue[int] = asyncio.Queue()
        for n in range(10):
            numbers.put_nowait(n)
        recorder = Recorder()
        Flux.from_queue(numbers).subscribe(recorder)
        recorder.request(3)
        while len(recorder.items) < 3:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert numbers.qsize() == 7
        recorder.cancel()

    asyncio.run(main())


def test_a_reader_that_leaves_while_it_waits_takes_no_element_with_it() -> None:
    async def main() -> None:
        numbers: asyncio.Queue[int] = asyncio.Queue()
        numbers.put_nowait(0)
        async with Flux.from_queue(numbers).stream(prefetch=1) as elements:
            async for _ in elements:
                break
        numbers.put_nowait(1)
        assert numbers.get_nowait() == 1

    asyncio.run(main())


def test_an_element_taken_as_the_subscriber_left_is_reported() -> None:
    dropped: list[Any] = []

    async def main() -> None:
        numbers: asyncio.Queue[int] = asyncio.Queue()
        recorder = Recorder()
        Flux.from_queue(numbers).subscribe(recorder)
        recorder.request(1)
        for _ in range(5):
            await asyncio.sleep(0)
        numbers.put_nowait(7)  # wakes the task, which then finds that its subscriber has left
        recorder.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert recorder.items == []
        assert dropped == [7] or numbers.get_nowait() == 7

    with on_dropped(element=lambda element, where: dropped.append(element)):
        asyncio.run(main())


def test_a_thread_reads_the_queue_of_a_loop() -> None:
    async def main() -> Any:
        numbers: asyncio.Queue[int | None] = asyncio.Queue(1)
        reading = asyncio.to_thread(Flux.from_queue(numbers).collect_list().block, PATIENCE)
        task = asyncio.ensure_future(reading)
        for n in (1, 2, 3, None):
            await numbers.put(n)
        return await task

    assert asyncio.run(main()) == [1, 2, 3]


@pytest.mark.parametrize("way", ["from", "to"])
def test_an_asyncio_queue_without_its_loop_is_refused(way: str) -> None:
    numbers: asyncio.Queue[int] = asyncio.Queue()
    stream: Mono[Any] = Flux.from_queue(numbers).first() if way == "from" else Flux.just(1).to_queue(numbers)
    with pytest.raises(RuntimeError, match=f"{way}_queue"):
        stream.block(PATIENCE)


def test_an_asyncio_queue_is_filled_and_holds_the_stream_back() -> None:
    async def main() -> list[Any]:
        made: list[int] = []
        numbers: asyncio.Queue[int | None] = asyncio.Queue(2)
        filling = asyncio.ensure_future(_awaited(Flux.range(10).do_on_next(made.append).to_queue(numbers)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(made) <= 4  # two in the queue, one that waits, one ahead
        result = [await numbers.get() for _ in range(11)]
        await filling
        return result

    assert asyncio.run(main()) == [*range(10), None]


def test_the_end_is_put_into_an_asyncio_queue_after_an_error_too() -> None:
    async def main() -> list[Any]:
        numbers: asyncio.Queue[int | None] = asyncio.Queue()
        with pytest.raises(ZeroDivisionError):
            await Flux.just(1, 0).map(lambda n: 1 // n).to_queue(numbers)
        return [numbers.get_nowait(), numbers.get_nowait()]

    assert asyncio.run(main()) == [1, None]


def test_a_cancelled_filling_cancels_the_stream_and_puts_nothing_more() -> None:
    log: list[str] = []

    async def main() -> None:
        numbers: asyncio.Queue[int | None] = asyncio.Queue(1)
        flux = Flux.range(5).do_on_cancel(lambda: log.append("cancelled")).publish_on(schedulers.immediate())
        filling = asyncio.ensure_future(_awaited(flux.to_queue(numbers)))
        while not numbers.full():
            await asyncio.sleep(0)
        filling.cancel()
        await asyncio.wait([filling])
        for _ in range(5):
            await asyncio.sleep(0)
        assert [numbers.get_nowait(), numbers.empty()] == [0, True]

    asyncio.run(main())


async def _awaited(mono: Mono[Any]) -> Any:
    return await mono


@pytest.mark.parametrize("wrong", [[1, 2], queue.SimpleQueue(), None, "queue"])
def test_anything_else_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"from_queue\(\) needs an asyncio.Queue or a queue.Queue"):
        Flux.from_queue(wrong)
    with pytest.raises(TypeError, match=r"to_queue\(\) needs"):
        Flux.just(1).to_queue(wrong)
