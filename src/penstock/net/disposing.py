"""Things that are open on an event loop: closed by whoever is on it, or by a thread that has none."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from penstock.net.channel.tracking import Closed
from penstock.net.loops import refuse_on_a_loop
from penstock.streams import Mono

__all__ = ["Disposable"]


class Disposable(ABC):
    """Has an end that can be awaited, and one that lets its handlers finish first."""

    loop: asyncio.AbstractEventLoop
    """The loop that it lives on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._closing: asyncio.Task[Closed] | None = None
        self._over = asyncio.Event()

    @abstractmethod
    async def _close_within(self, grace: float) -> Closed:
        """Close; sets ``_over`` when that is done."""

    async def aclose(self, grace: float = 3.0) -> Closed:
        """Take no more, let the handlers finish what has come, and cut off those that are still at it.

        ``receive()`` completes after what has come, which lets a handler end by itself; whoever has not ended
        after ``grace`` seconds is cut off, and named in what this returns.
        """
        if asyncio.get_running_loop() is not self.loop:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.aclose(grace), self.loop))
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close_within(grace))
        return await asyncio.shield(self._closing)

    def close_now(self, grace: float = 3.0) -> Closed:
        """:meth:`aclose` for a thread that has no event loop."""
        refuse_on_a_loop("aclose()")
        return asyncio.run_coroutine_threadsafe(self.aclose(grace), self.loop).result()

    async def wait_closed(self) -> None:
        """Until it is closed, however that comes about."""
        if asyncio.get_running_loop() is self.loop:
            await self._over.wait()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._over.wait(), self.loop))

    def on_dispose(self) -> Mono[Any]:
        """A Mono that completes when it is closed: ``server.on_dispose().block()``."""
        return Mono.from_callable(self.wait_closed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_now()
