"""Which event loop: uvloop where it is installed, asyncio's own otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.streams.schedulers import BackgroundLoopScheduler, ProcessWide

__all__ = ["block_on", "new_event_loop", "refuse_on_a_loop", "run"]

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of the fastest kind there is here."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on that loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


_background = ProcessWide(lambda: BackgroundLoopScheduler(new_event_loop, "penstock-net"))


def refuse_on_a_loop(instead: str) -> None:
    """Raise where waiting would block the loop that everything else needs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"this would block the event loop that is running here; await {instead} instead")


def block_on(work: Coroutine[Any, Any, T], seconds: float | None) -> T:
    """Run this on the loop that serves all threads, and wait for it: for code without a loop of its own."""
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
