"""Event loops: which one to run, how a thread without one waits, and what lives on one until it is closed."""

from __future__ import annotations

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from penstock.net.errors import NetError
from penstock.net.lifecycle import CloseReport
from penstock.net.transport import call_on
from penstock.streams import Mono
from penstock.streams.schedulers import BackgroundLoopScheduler, ProcessWide

__all__ = [
    "ClosedByBlocks",
    "Disposable",
    "Landlord",
    "Opening",
    "SupportsClosing",
    "block_on",
    "new_event_loop",
    "refuse_on_a_loop",
    "run",
    "run_in_background",
    "uncancelled",
]

T = TypeVar("T")
L = TypeVar("L", contravariant=True)
C = TypeVar("C", bound="SupportsClosing")


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


class SupportsClosing(Protocol):
    """What can be opened: a server, a connection, a channel."""

    async def aclose(self) -> Any:
        """Close it."""
        ...


class Opening(Generic[C]):
    """Runs ``open_one`` on ``loop``. What it opens belongs to the caller, or is closed if there is none.

    A caller is cancelled, or its time is over, at any moment. So the last step is decided under a lock: the
    caller has taken what was opened, or has left, and then nobody else would close it.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, open_one: Callable[[], Coroutine[Any, Any, C]]
    ) -> None:
        self._open_one = open_one
        self._lock = threading.Lock()
        self._left = False
        self._opened: C | None = None
        self._loop = loop
        running = self._run()
        try:
            self.future: Future[C] = asyncio.run_coroutine_threadsafe(running, loop)
            """Ends with what was opened, or with the error."""
        except RuntimeError:
            running.close()  # The loop is closed.
            raise

    async def _run(self) -> C:
        opened = await self._open_one()
        with self._lock:
            self._opened = opened
            left = self._left
        if left:
            await opened.aclose()
        return opened

    def leave(self) -> None:
        """The caller gives up."""
        with self._lock:
            self._left = True
            opened = self._opened
        self.future.cancel()
        if opened is not None:
            asyncio.run_coroutine_threadsafe(_closed(opened), self._loop)


async def _closed(opened: SupportsClosing) -> None:
    await opened.aclose()


def block_on(
    open_one: Callable[[], Coroutine[Any, Any, C]],
    seconds: float | None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> C:
    """Open something on ``loop``, or on the background loop, from a thread that has no loop of its own."""
    refuse_on_a_loop("bind() or connect()")
    opening = Opening(_background.get().loop if loop is None else loop, open_one)
    try:
        return opening.future.result(seconds)
    except BaseException:
        opening.leave()
        raise


def run_in_background(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for it, in a thread without a loop of its own."""
    return asyncio.run_coroutine_threadsafe(work, _background.get().loop).result()


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


class Landlord(Protocol[L]):
    """Has event loops, and closes what lives there before it closes them."""

    def add(self, tenant: L) -> bool:
        """Close this before the loops are closed. False if they are closed already."""
        ...

    def remove(self, tenant: L) -> None:
        """This has been closed."""
        ...


class Disposable(ClosedByBlocks):
    """Lives on an event loop until it is closed, from that loop or from any thread.

    It belongs to the process that opened it. A forked child cannot close it, and need not.
    """

    loop: asyncio.AbstractEventLoop
    """The event loop that this lives on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._closing: asyncio.Task[CloseReport] | None = None
        self._over = asyncio.Event()
        self._report = uncancelled(Future[CloseReport]())
        self._ended = uncancelled(Future[None]())
        self._process = os.getpid()
        self._landlord: Landlord[Disposable] | None = None

    @abstractmethod
    async def _close_within(self, grace: float) -> CloseReport:
        """Close, and call ``_is_over()`` when that is done."""

    def _is_over(self) -> None:
        """It is closed: wake everything that waits for that, on this loop and on others."""
        self._over.set()
        if not self._ended.done():
            self._ended.set_result(None)
        if self._landlord is not None:
            self._landlord.remove(self)

    def _move_in(self, landlord: Landlord[Disposable]) -> bool:
        """Be closed before the loops of the landlord are. False if they are closed already."""
        self._landlord = landlord
        if self._over.is_set():
            return True
        return landlord.add(self)

    async def aclose(self, grace: float = 3.0) -> CloseReport:
        """Stop receiving, let the handlers finish, and cut off those that take too long.

        ``receive()`` ends after what has already arrived, so that a handler can end by itself. A handler that
        has not ended after ``grace`` seconds is cut off; the report names its connection.
        """
        if asyncio.get_running_loop() is self.loop and not self._is_of_parent:
            return await asyncio.shield(self._begin_closing(grace))
        if not self._is_closing_elsewhere(grace):
            return CloseReport(0, ())
        return await asyncio.wrap_future(self._report)

    def close_now(self, grace: float = 3.0) -> CloseReport:
        """:meth:`aclose` for a thread that has no event loop."""
        refuse_on_a_loop("aclose()")
        return self._report.result() if self._is_closing_elsewhere(grace) else CloseReport(0, ())

    @property
    def _is_of_parent(self) -> bool:
        return os.getpid() != self._process

    def _is_closing_elsewhere(self, grace: float) -> bool:
        """Begin to close on the loop. Returns whether there will be a report: not from a closed loop."""
        if self._is_of_parent:
            return False
        return self._report.done() or call_on(self.loop, self._begin_closing, grace) or self._report.done()

    def _begin_closing(self, grace: float) -> asyncio.Task[CloseReport]:
        if self._closing is None:
            self._closing = self.loop.create_task(self._close_within(grace))
            self._closing.add_done_callback(self._tell_report)
        return self._closing

    def _tell_report(self, closing: asyncio.Task[CloseReport]) -> None:
        if closing.cancelled():
            self._report.set_exception(NetError("its event loop ended before it was closed"))
        elif (error := closing.exception()) is not None:
            self._report.set_exception(error)
        else:
            self._report.set_result(closing.result())

    async def wait_closed(self) -> None:
        """Wait until it is closed, whoever closes it."""
        if self._is_of_parent or self.loop.is_closed():
            return
        if asyncio.get_running_loop() is self.loop:
            await self._over.wait()
        else:
            await asyncio.wrap_future(self._ended)

    def on_dispose(self) -> Mono[Any]:
        """A Mono that completes when it is closed: ``server.on_dispose().block()``."""
        return Mono.from_callable(self.wait_closed)


def uncancelled(future: Future[T]) -> Future[T]:
    """A caller that is cancelled while it waits for this must not cancel the others' wait."""
    future.set_running_or_notify_cancel()
    return future
