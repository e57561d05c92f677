"""Event loops: which one to run, how a thread without one waits, and what lives on one until it is closed."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.net.lifecycle import CloseReport
from penstock.streams import Mono
from penstock.streams.schedulers import BackgroundLoopScheduler, ProcessWide

__all__ = ["ClosedByBlocks", "Disposable", "block_on", "new_event_loop", "refuse_on_a_loop", "run"]

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new uvloop if that is installed, or else a new asyncio loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run``, on uvloop if that is installed."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


_background = ProcessWide(lambda: BackgroundLoopScheduler(new_event_loop, "penstock-net"))


def refuse_on_a_loop(instead: str) -> None:
    """Raise if waiting here would block a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        f"this would block the event loop that is running in this thread; await {instead} instead"
    )


def block_on(work: Coroutine[Any, Any, T], seconds: float | None) -> T:
    """Run a coroutine on the background loop and wait for it, in a thread without a loop of its own."""
    try:
        refuse_on_a_loop("bind() or connect()")
    except RuntimeError:
        work.close()
        raise
    future = asyncio.run_coroutine_threadsafe(work, _background.get().loop)
    try:
        return future.result(seconds)
    except TimeoutError:
        future.cancel()
        raise
    except KeyboardInterrupt:
        future.cancel()
        raise


class ClosedByBlocks(ABC):
    """Is closed at the end of an ``async with`` block, or of a ``with`` block on a thread without a loop."""

    @abstractmethod
    async def aclose(self, grace: float = 3.0) -> CloseReport:
        """Close; what is still at work after ``grace`` seconds is cut off."""

    @abstractmethod
    def close_now(self, grace: float = 3.0) -> CloseReport:
        """:meth:`aclose` for a thread that has no event loop."""

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


class Disposable(ClosedByBlocks):
    """Lives on an event loop until it is closed, from that loop or from any thread."""

    loop: asyncio.AbstractEventLoop
    """The event loop that this lives on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._closing: asyncio.Task[CloseReport] | None = None
        self._over = asyncio.Event()

    @abstractmethod
    async def _close_within(self, grace: float) -> CloseReport:
        """Close, and set ``_over`` when that is done."""

    async def aclose(self, grace: float = 3.0) -> CloseReport:
        """Stop receiving, let the handlers finish, and cut off those that take too long.

        ``receive()`` ends after what has already arrived, so that a handler can end by itself. A handler that
        has not ended after ``grace`` seconds is cut off; the report names its connection.
        """
        if asyncio.get_running_loop() is not self.loop:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.aclose(grace), self.loop))
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close_within(grace))
        return await asyncio.shield(self._closing)

    def close_now(self, grace: float = 3.0) -> CloseReport:
        """:meth:`aclose` for a thread that has no event loop."""
        refuse_on_a_loop("aclose()")
        return asyncio.run_coroutine_threadsafe(self.aclose(grace), self.loop).result()

    async def wait_closed(self) -> None:
        """Wait until it is closed, whoever closes it."""
        if asyncio.get_running_loop() is self.loop:
            await self._over.wait()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._over.wait(), self.loop))

    def on_dispose(self) -> Mono[Any]:
        """A Mono that completes when it is closed: ``server.on_dispose().block()``."""
        return Mono.from_callable(self.wait_closed)
