"""What is read ahead of a consumer is bounded in bytes where elements can be large, whoever consumes them."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from penstock.net.framing import length_prefixed, lines
from penstock.streams import Flux, schedulers
from penstock.streams.operators.read_ahead import BYTES_AHEAD
from penstock.streams.schedulers import SingleThreadScheduler, Task

LARGE = 1 << 20
MOST_AHEAD = BYTES_AHEAD + 4 * LARGE
"""The bound, the frames with which it may be exceeded, and what the decoder needs for the next one."""


class Sent:
    """Frames as a peer sends them, in chunks that have nothing to do with them; and how much was taken."""

    def __init__(self, sizes: list[int], chunk: int = 1 << 16) -> None:
        data = b"".join(size.to_bytes(4, "big") + bytes(size) for size in sizes)
        self.chunks = [data[at : at + chunk] for at in range(0, len(data), chunk)]
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            self.taken += len(chunk)
            yield chunk

    async def steps(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk
            await asyncio.sleep(0)

    def frames(self) -> Flux[bytes]:
        """Cut on the thread that requests them."""
        return Flux.from_iterable(self).transform(length_prefixed())

    def frames_of_a_loop(self) -> Flux[bytes]:
        """Cut on an event loop."""
        return Flux.from_async_iterable(self.steps).transform(length_prefixed())


def padded(frame: bytes) -> list[int]:
    """Something that has no size in bytes."""
    return [len(frame)]


async def itself(frame: bytes) -> bytes:
    return frame


STREAMS: dict[str, Callable[[Flux[Any]], Flux[Any]]] = {
    "frames": lambda frames: frames,
    "parsed": lambda frames: frames.map(padded),
    "buffered": lambda frames: frames.buffer(2),
    "published": lambda frames: frames.publish_on(schedulers.shared_pool()),
    "published and parsed": lambda frames: frames.publish_on(schedulers.shared_pool()).map(padded),
    "merged": lambda frames: Flux.merge(frames),
    "flattened": lambda frames: Flux.just(1).flat_map(lambda _: frames),
    "in order": lambda frames: Flux.just(1).flat_map_sequential(lambda _: frames),
    "zipped": lambda frames: Flux.zip(frames, Flux.range(10**6)).map(lambda pair: pair[0]),
    "resumed": lambda frames: frames.on_error_resume(lambda error: Flux.empty()),
    "concatenated": lambda frames: Flux.concat(frames, Flux.empty()),
    "shared": lambda frames: frames.share(),
    "cached": lambda frames: frames.cache(history=1),
    "awaited": lambda frames: frames.map_async(itself, concurrency=2),
}
every_stream = pytest.mark.parametrize("way", STREAMS)


def size_of(element: Any) -> int:
    if isinstance(element, bytes):
        return len(element)
    return sum(map(size_of, element)) if isinstance(element[0], bytes) else sum(element)


async def at_rest(number: Callable[[], int]) -> int:
    """A number when it has stopped growing."""
    before, quiet = -1, 0
    while quiet < 5:
        now = number()
        quiet = quiet + 1 if now == before else 0
        before = now
        await asyncio.sleep(0.02)
    return before


@every_stream
@pytest.mark.parametrize("source", ["frames", "frames_of_a_loop"])
def test_a_loop_that_waits_has_few_large_elements_read_ahead(way: str, source: str) -> None:
    """Also after small ones, which let the window grow."""
    sent = Sent([10] * 2000 + [LARGE] * 40)

    async def main() -> None:
        used = large = 0
        async for element in STREAMS[way](getattr(sent, source)()):
            used += size_of(element)
            if size_of(element) >= LARGE:
                large += 1
                if large in (1, 5):
                    assert await at_rest(lambda: sent.taken) - used < MOST_AHEAD
        assert used == 2000 * 10 + 40 * LARGE

    asyncio.run(main())


INNER: dict[str, Callable[[Flux[Any]], Flux[Any]]] = {
    "flattened": STREAMS["flattened"],
    "in order": STREAMS["in order"],
    "mapped": lambda frames: Flux.just(1).concat_map(lambda _: frames),
    "switched": lambda frames: Flux.just(1).switch_map(lambda _: frames),
    "windows": lambda frames: frames.window(2).flat_map(lambda window: window, concurrency=1, prefetch=2),
}


@pytest.mark.parametrize("way", INNER)
def test_a_prefetch_bounds_what_comes_from_inner_streams(way: str) -> None:
    sent = Sent([LARGE] * 40)

    async def main() -> None:
        used = 0
        async for frame in INNER[way](sent.frames_of_a_loop()).to_async_iterable(prefetch=2):
            used += len(frame)
            if used == 2 * LARGE:
                assert await at_rest(lambda: sent.taken) - used < MOST_AHEAD
        assert used == 40 * LARGE

    asyncio.run(main())


@pytest.mark.parametrize("way", ["frames", "parsed", "published", "merged"])
def test_a_plain_loop_that_waits_has_few_large_elements_read_ahead(way: str) -> None:
    sent = Sent([10] * 2000 + [LARGE] * 40)
    used = large = 0
    for element in STREAMS[way](sent.frames_of_a_loop()):
        used += size_of(element)
        if size_of(element) >= LARGE:
            large += 1
            if large in (1, 5):
                assert asyncio.run(at_rest(lambda: sent.taken)) - used < MOST_AHEAD
    assert used == 2000 * 10 + 40 * LARGE


@pytest.mark.parametrize("way", ["frames", "published", "merged"])
def test_small_elements_still_fill_the_window(way: str) -> None:
    given: list[Any] = []

    async def main() -> None:
        frames = Sent([10] * 5000).frames().do_on_next(given.append)
        async for _ in STREAMS[way](frames):
            assert await at_rest(lambda: len(given)) >= (32 if way == "merged" else 256)
            break

    asyncio.run(main())


def test_a_number_that_is_given_means_elements() -> None:
    given: list[Any] = []

    async def main() -> None:
        frames = Sent([LARGE] * 20).frames().do_on_next(given.append)
        async for _ in frames.to_async_iterable(prefetch=12):
            assert await at_rest(lambda: len(given)) == 12
            break

    asyncio.run(main())


@every_stream
@pytest.mark.parametrize("seed", range(3))
def test_everything_arrives_in_order_whatever_its_size(way: str, seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([0, 1, 100, 2_000, 50_000, 300_000]) for _ in range(600)]
    sent = Sent(sizes, chunk=chance.choice([1_000, 30_000, 70_000]))

    async def main() -> list[int]:
        got: list[int] = []
        async for element in STREAMS[way](sent.frames_of_a_loop()):
            got += (
                element
                if isinstance(element, list) and not isinstance(element[0], bytes)
                else map(len, element if isinstance(element, list) else [element])
            )
            if chance.random() < 0.05:
                await asyncio.sleep(0)
        return got

    assert asyncio.run(main()) == sizes


def test_a_reader_on_another_thread_than_the_frames_gets_everything() -> None:
    sizes = [100, 300_000, 5, 1_000_000] * 50
    got: list[list[int]] = []

    def read() -> None:
        got.append([len(frame) for frame in Sent(sizes).frames_of_a_loop()])

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert got == [sizes] * 3


def test_an_error_behind_large_elements_comes_after_them() -> None:
    class Broken(Exception):
        pass

    async def chunks() -> AsyncIterator[bytes]:
        yield b"".join(LARGE.to_bytes(4, "big") + bytes(LARGE) for _ in range(4))
        raise Broken

    async def main() -> None:
        got: list[int] = []

        async def read() -> None:
            async for frame in Flux.from_async_iterable(chunks).transform(length_prefixed()):
                got.append(len(frame))
                await asyncio.sleep(0)

        with pytest.raises(Broken):
            await read()
        assert got == [LARGE] * 4

    asyncio.run(main())


def test_parsed_lines_are_as_large_as_what_they_were_made_of() -> None:
    """So that many small records are read ahead, although nobody can measure a record."""
    given: list[Any] = []
    data = b"".join(json.dumps({"n": n}).encode() + b"\n" for n in range(5000))

    async def main() -> None:
        records = Flux.just(data).transform(lines()).map(json.loads).do_on_next(given.append)
        async for _ in records:
            assert await at_rest(lambda: len(given)) >= 256
            break

    asyncio.run(main())


class Counting(SingleThreadScheduler):
    """Counts its tasks."""

    count = 0

    def submit(self, task: Task) -> None:
        self.count += 1
        super().submit(task)


def test_a_boundary_whose_reader_is_full_does_nothing() -> None:
    """It is paused, with open demand, and must not look again and again whether it may go on."""
    with Counting() as scheduler:
        elements = iter(Sent([LARGE] * 20).frames().publish_on(scheduler))
        next(elements)
        threads = threading.Event()
        scheduler.submit(threads.set)
        assert threads.wait(30)
        before = -1
        while scheduler.count != before:
            before = scheduler.count
            threads.clear()
            SingleThreadScheduler.submit(scheduler, threads.set)  # behind what it has to do
            assert threads.wait(30)
            assert before < 100
        assert len(list(elements)) == 19
