"""Event loops that several servers and clients share."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

from penstock.arguments import a_count
from penstock.net.errors import LoopsClosed
from penstock.net.lifecycle import CloseReport
from penstock.net.loops import (
    ClosedByBlocks,
    Opening,
    SupportsClosing,
    block_on,
    new_event_loop,
    refuse_on_a_loop,
    uncancelled,
)
from penstock.streams.schedulers import LoopThread
from penstock.streams.spi import renew_after_fork

__all__ = ["LoopResources", "Tenant"]

_log = logging.getLogger("penstock.net")

T = TypeVar("T", bound=SupportsClosing)

_STUCK: Final = 10.0
"""Seconds that a close waits for a thread whose event loop does not respond."""

_EXIT_PATIENCE: Final = 3.0
"""The same when the interpreter exits."""

_EXIT_GRACE: Final = 1.0
"""Seconds that handlers have to finish when the interpreter exits."""


class Tenant(Protocol):
    """Lives on these loops, and is closed before they are."""

    async def aclose(self, grace: float = 3.0) -> CloseReport:
        """Close; what is still at work after ``grace`` seconds is cut off. On any event loop."""
        ...


class LoopResources(ClosedByBlocks):
    """A fixed number of event loops, each on a thread of its own, for any number of servers and clients.

    ::

        with LoopResources(2, name="prices") as loops:
            server = TcpServer.create().port(7000).handle(handler).run_on(loops).bind_now()
            client = TcpClient.create().port(7000).run_on(loops)

    The connections of a server are dealt out to all loops in turn, and so are clients. What a handler opens
    stays on its loop. The threads are daemons with the names ``prices-1`` and ``prices-2``; they start when
    they are needed. A handler that blocks holds up the connections of its own loop, and new ones go to the
    others; only if that loop is the one that accepts, they wait.

    Closing closes the servers and connections first, and then ends the threads and waits for them. A forked
    child begins with new loops.
    """

    def __init__(self, loops: int | None = None, *, name: str = "penstock-net") -> None:
        """So many ``loops`` (one for each processor that this process may use)."""
        self.size = a_count(_processors() if loops is None else loops, "loops of LoopResources()")
        """How many loops there are."""
        if not isinstance(name, str) or not name:
            raise ValueError(f"name={name!r}: pass a name for the threads of LoopResources() as text")
        self.name = name
        """What the names of the threads begin with."""
        self._begin()
        renew_after_fork(self)
        atexit.register(self._end_at_exit)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[LoopThread | None] = [None] * self.size
        self._turns = itertools.count()
        self._closed = False
        self._tenants: set[Tenant] = set()
        self._report = uncancelled(Future[CloseReport]())

    # ---------------------------------------------------------------- the loops
    @property
    def closed(self) -> bool:
        """Whether nothing more can be opened on these loops."""
        return self._closed

    @property
    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """All loops. Those that nobody has used yet are started."""
        return [self._loop(index) for index in range(self.size)]

    def next_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that is next in turn; if this is called on one of the loops, that one."""
        here = self._loop_here()
        return self._loop(next(self._turns) % self.size) if here is None else here

    def _loop_here(self) -> asyncio.AbstractEventLoop | None:
        return next((thread.loop for thread in self._started if thread.is_here), None)

    def _loop(self, index: int) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                raise self.is_closed()
            thread = self._threads[index]
            if thread is None:
                thread = self._threads[index] = LoopThread(
                    new_event_loop, f"{self.name}-{index + 1}", self._failed
                )
            return thread.loop

    def _failed(self, error: BaseException) -> None:
        _log.error("%r: an event loop raised %r, and goes on", self, error, exc_info=error)

    # ---------------------------------------------------------------- what lives on them
    async def open(self, open_one: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run ``open_one`` on one of the loops. If the caller is cancelled, what it opens is closed."""
        loop = self.next_loop()
        if asyncio.get_running_loop() is loop:
            return await open_one()
        opening = Opening(loop, open_one)
        try:
            return await asyncio.wrap_future(opening.future)
        except BaseException:
            opening.leave()
            raise

    def open_now(self, open_one: Callable[[], Coroutine[Any, Any, T]], seconds: float | None) -> T:
        """:meth:`open` for a thread that has no event loop."""
        refuse_on_a_loop("bind() or connect()")
        return block_on(open_one, seconds, self.next_loop())

    def add(self, tenant: Tenant) -> bool:
        """Close this before the loops are closed. False if they are closed already."""
        with self._lock:
            if not self._closed:
                self._tenants.add(tenant)
            return not self._closed

    def remove(self, tenant: Tenant) -> None:
        """This has been closed."""
        with self._lock:
            self._tenants.discard(tenant)

    def is_closed(self) -> LoopsClosed:
        """The error for opening something on loops that are closed."""
        return LoopsClosed(f"{self!r} is closed, so nothing can be opened on it; make a new LoopResources")

    def __repr__(self) -> str:
        return f"<LoopResources {self.name!r}, {self.size} loops>"

    # ---------------------------------------------------------------- the end
    async def aclose(self, grace: float = 3.0) -> CloseReport:
        """Close everything that lives on the loops, and end their threads.

        Servers, connections and channels have ``grace`` seconds to finish; the report names those that were
        cut off. Any event loop may call this, except for the loops themselves.
        """
        self._begin_closing(grace)
        return await asyncio.wrap_future(self._report)

    def close_now(self, grace: float = 3.0) -> CloseReport:
        """:meth:`aclose` for a thread that has no event loop."""
        refuse_on_a_loop("aclose()")
        self._begin_closing(grace)
        return self._report.result()

    def _begin_closing(self, grace: float) -> None:
        if self._loop_here() is not None:
            raise RuntimeError(
                f"{self!r}: a loop cannot wait for its own end; close the LoopResources from another thread"
            )
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._end_at_exit)
        # A thread of its own: the caller may be cancelled, and a close must not stop half-way.
        threading.Thread(target=self._close, args=(grace,), name="penstock-net closing", daemon=True).start()

    def _close(self, grace: float) -> None:
        try:
            report = asyncio.run(self._close_tenants(grace, _STUCK))
            for thread in self._started:
                asyncio.run_coroutine_threadsafe(self._end(thread), thread.loop)
            for thread in self._started:
                if not thread.join(_STUCK):
                    _log.warning(
                        "%r: the thread %s was left behind, its event loop has not responded for %g s",
                        self,
                        thread.name,
                        _STUCK,
                    )
        except BaseException as error:
            self._report.set_exception(error)
        else:
            self._report.set_result(report)

    async def _close_tenants(self, grace: float, patience: float) -> CloseReport:
        with self._lock:
            tenants = list(self._tenants)
        closing = (_closed(tenant, grace, patience) for tenant in tenants)
        ends = await asyncio.gather(*closing, return_exceptions=True)
        finished, aborted = 0, list[str]()
        for tenant, end in zip(tenants, ends, strict=True):
            if isinstance(end, BaseException):
                _log.error("%r: %r was not closed: %r", self, tenant, end, exc_info=end)
            else:
                finished += end.finished
                aborted += end.aborted
        return CloseReport(finished, tuple(aborted))

    async def _end(self, thread: LoopThread) -> None:
        """End a thread, on its own loop. If that did not respond before, what lives there is closed first."""
        for tenant in list(self._tenants):
            try:
                await tenant.aclose(0)
            except Exception as error:
                _log.error("%r: %r was not closed: %r", self, tenant, error, exc_info=error)
        thread.end()

    @property
    def _started(self) -> list[LoopThread]:
        return [thread for thread in self._threads if thread is not None]

    def _end_at_exit(self) -> None:
        self._closed = True
        asyncio.run(self._close_tenants(_EXIT_GRACE, _EXIT_PATIENCE))
        for thread in self._started:
            thread.end_at_exit()

    def renew_in_child(self) -> None:
        """After a fork, threads and loops are the parent's, and so is what lives on them."""
        for thread in self._started:
            thread.leave_to_parent()
        was_closed = self._closed
        self._begin()
        if was_closed:
            self._closed = True
            self._report.set_result(CloseReport(0, ()))


async def _closed(tenant: Tenant, grace: float, patience: float) -> CloseReport:
    async with asyncio.timeout(grace + patience):
        return await tenant.aclose(grace)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
