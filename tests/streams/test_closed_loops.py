"""An ``async for`` whose event loop is closed without waiting for asynchronous generators to end."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator

import pytest

from penstock.spec import Publisher, Subscriber
from penstock.streams import Flux


class OpenSource(Publisher[int]):
    """Gives one element and stays open; holds its subscriber as a thread with a socket does."""

    def __init__(self) -> None:
        self.subscriber: Subscriber[int] | None = None
        self.cancelled = False

    def subscribe(self, subscriber: Subscriber[int], /) -> None:
        self.subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        assert self.subscriber is not None
        self.subscriber.on_next(n)

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.parametrize("kept", [True, False], ids=["its iterator goes later", "its iterator goes before"])
def test_a_source_is_cancelled_when_nobody_is_left_who_could_read_it(kept: bool) -> None:
    source = OpenSource()
    keep: list[AsyncIterator[int]] = []

    async def main() -> None:
        elements = aiter(Flux.from_publisher(source))
        if kept:
            keep.append(elements)
        async for _ in elements:
            break

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # It complains of the task that would close the generator.
    loop.run_until_complete(main())
    loop.close()
    keep.clear()
    gc.collect()
    assert source.cancelled


def test_a_source_is_cancelled_at_its_next_element_if_somebody_still_waits_for_it() -> None:
    source = OpenSource()

    async def read() -> None:
        async for _ in Flux.from_publisher(source):
            pass

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    waiting = loop.create_task(read())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert not source.cancelled
    thread = threading.Thread(target=source.request, args=(1,))
    thread.start()
    thread.join()
    assert source.cancelled
    assert not waiting.done()
