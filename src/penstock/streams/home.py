"""Where a stream is read: the event loop of its subscriber.

The coroutines of a stream run on its reader's loop, also those that a timer, a pool or a socket starts later
on another thread. So the reader says where its home is, and each stage asks the one below it; whatever loop
runs on the thread that starts a coroutine does not matter.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import AbstractEventLoop
from asyncio.events import _get_running_loop as running_loop_or_none
from collections.abc import Callable
from contextlib import suppress
from math import inf
from threading import get_ident
from time import monotonic
from typing import Any, Protocol

__all__ = ["NOWHERE", "Home", "home_here", "home_of", "loop_here", "refuse_trio"]

FAIR_TIME = 0.002
"""Seconds that a synchronous stream may keep the event loop of its reader for itself."""


class Releasing(Protocol):
    """A stage that lets go of its source at its end."""

    released: bool
    """Whether it has."""


class Unreleased:
    """Stages that were cancelled while another thread was at work in them, and which that thread closes."""

    __slots__ = ("_waiting", "stages")

    def __init__(self) -> None:
        self.stages: set[Releasing] = set()
        self._waiting: asyncio.Future[None] | None = None

    def add(self, stage: Releasing) -> None:
        """The stage was cancelled; whoever is at work in it will call :meth:`remove`."""
        # In this order: the other thread says that it has let go, and then looks whether the stage is here.
        self.stages.add(stage)
        if stage.released:
            self.remove(stage)

    def remove(self, stage: Releasing) -> None:
        """The stage has let go of its source, if it was here; called on the thread that was at work in it."""
        if stage not in self.stages:
            return
        self.stages.discard(stage)
        waiting = self._waiting
        if waiting is not None and not self.stages:
            # A loop that was closed meanwhile has nobody left that waits.
            with suppress(RuntimeError):
                waiting.get_loop().call_soon_threadsafe(_settle, waiting)

    async def none_left(self) -> None:
        """Wait until all of them are closed."""
        while self.stages:
            # In this order: the other thread removes its stage, and then looks for us.
            self._waiting = asyncio.get_running_loop().create_future()
            if self.stages:
                await self._waiting


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Home:
    """An event loop that a stream is read on, and the tasks that the stream has there."""

    __slots__ = ("_resting", "closing", "late", "loop", "running", "thread", "unreleased")

    def __init__(self, loop: AbstractEventLoop | None) -> None:
        self.loop = loop
        """The loop; None if the subscriber has none."""
        self.thread = get_ident()
        self.running: set[asyncio.Future[Any]] = set()
        """Tasks that work for this reader, and that no operator has cancelled."""
        self.closing: set[asyncio.Future[Any]] = set()
        """Tasks that clean up after an asynchronous iterable."""
        self.late = inf
        """The time at which a synchronous source has to let others run; infinity if the reader sets none."""
        self._resting: list[Callable[[], object]] | None = None
        self.unreleased = Unreleased()
        """What other threads have to close."""

    def start_turn(self) -> None:
        """The loop has just let us run."""
        self.late = monotonic() + FAIR_TIME

    @property
    def paced(self) -> bool:
        """Whether a synchronous source has to let others run now and then."""
        return self.late < inf

    def apart(self) -> Home:
        """The same loop, for a source that several readers share: none of them waits for its tasks."""
        if self.loop is None:
            return self
        home = Home(self.loop)
        home.thread = self.thread
        if self.paced:
            home.start_turn()
        return home

    def elsewhere(self) -> Home:
        """The same loop, for a source that works on another thread and blocks nobody."""
        home = Home(self.loop)
        home.unreleased = self.unreleased
        return home

    def rest(self, resume: Callable[[], object]) -> bool:
        """Call ``resume`` when the loop has let others run; False if this is not the loop's thread."""
        if get_ident() != self.thread or self.loop is None:
            return False
        if self._resting is None:
            self._resting = []
            self.loop.call_soon(self._go_on)
        self._resting.append(resume)
        return True

    def _go_on(self) -> None:
        resting, self._resting = self._resting, None
        self.start_turn()
        for resume in resting or ():
            resume()

    def keep(self, task: asyncio.Future[Any]) -> None:
        """A task has begun to work for this reader; called on the loop of the task."""
        if self.loop is not None and task.get_loop() is self.loop:
            self.running.add(task)
            task.add_done_callback(self._forget)

    def let_go(self, task: asyncio.Future[Any]) -> None:
        """An operator has cancelled the task; the reader does not wait for it any more."""
        self.running.discard(task)

    def clean_up(self, task: asyncio.Future[Any]) -> None:
        """The task was cancelled, and may have to close something first."""
        if task in self.running:
            self.closing.add(task)

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self.running.discard(task)
        self.closing.discard(task)

    async def cleaned_up(self, left: set[asyncio.Future[Any]]) -> None:
        """Wait until these tasks, and those that clean up, have ended; others report their errors."""
        me = asyncio.current_task()
        while tasks := [
            task
            for task in left | self.closing
            if not task.done() and task is not me and task.get_loop() is self.loop
        ]:
            await asyncio.wait(tasks)


NOWHERE = Home(None)
"""The home of a subscriber that runs no event loop."""


def home_here() -> Home:
    """The home of a subscriber that subscribes on this thread."""
    loop = running_loop_or_none()
    return NOWHERE if loop is None else Home(loop)


def loop_here() -> AbstractEventLoop:
    """The event loop that runs here, for a coroutine that waits for a stream."""
    refuse_trio()
    return asyncio.get_running_loop()


def refuse_trio() -> None:
    """Raise RuntimeError in a task of trio, which cannot wait for what happens on an asyncio loop."""
    trio = sys.modules.get("trio")
    if trio is None:
        return
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return  # trio was imported, but this is not one of its tasks
    raise RuntimeError(
        "Penstock runs on asyncio, not on trio; read the stream on a thread, with "
        "trio.to_thread.run_sync(list, flux) or trio.to_thread.run_sync(mono.block)"
    )


def home_of(subscriber: Any) -> Home:
    """The home of this subscriber, if it is one of ours; otherwise that of this thread."""
    home: Home | None = getattr(subscriber, "home", None)
    return home if isinstance(home, Home) else home_here()
