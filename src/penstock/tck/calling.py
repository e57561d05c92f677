"""On which thread the kit calls a subject, and what it does when a call does not come back.

A subject that loops for ever inside ``request`` must fail its test, not hang it. So the kit never calls a
subject on the thread of the test: it has one thread for the calls, or an event loop on a thread, and waits
for each call no longer than the time-out.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

Action = Callable[[], Any]


class Caller(Protocol):
    """Somebody who calls a subject for the test."""

    @property
    def name(self) -> str:
        """The name of the thread on which the calls are made."""
        ...

    def submit(self, action: Action) -> Future[Any]:
        """Have ``action`` called soon, and return what will hold its outcome."""
        ...

    def is_here(self) -> bool:
        """Tell whether this is the thread on which the calls are made."""
        ...

    def breathe(self, timeout: float) -> None:
        """Wait until what has been handed to this thread so far is done, if it has a queue of its own."""
        ...

    def close(self) -> None:
        """End the thread, unless a call on it has not come back."""
        ...


class ThreadCaller:
    """Calls a subject on one thread of its own; the thread ends with the process if a call never returns."""

    name = "tck-caller"

    def __init__(self) -> None:
        """Start the thread."""
        self._tasks: queue.SimpleQueue[tuple[Action, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()

    def submit(self, action: Action) -> Future[Any]:
        """Have ``action`` called after those before it."""
        future: Future[Any] = Future()
        self._tasks.put((action, future))
        return future

    def is_here(self) -> bool:
        """Tell whether this is the caller's thread."""
        return threading.current_thread() is self._thread

    def breathe(self, timeout: float) -> None:
        """Return at once: nothing but calls of the test runs on this thread."""

    def close(self) -> None:
        """Let the thread end after the last call, without waiting for a call that hangs."""
        self._tasks.put(None)
        self._thread.join(0.05)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            _settle_future(*task)
            # The action may refer to a Subscriber; waiting for the next one must not keep it alive (§3.13).
            del task


class LoopCaller:
    """Calls a subject on the thread of a running event loop, where it may start tasks."""

    name = "tck-loop"

    def __init__(self) -> None:
        """Start the loop."""
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=self.name, daemon=True)
        self._thread.start()

    def submit(self, action: Action) -> Future[Any]:
        """Have ``action`` called by the loop."""
        future: Future[Any] = Future()
        self.loop.call_soon_threadsafe(_settle_future, action, future)
        return future

    def is_here(self) -> bool:
        """Tell whether this is the loop's thread."""
        return threading.current_thread() is self._thread

    def breathe(self, timeout: float) -> None:
        """Let the loop go round a few times, so that what is due has been done."""
        # A loop that is stuck shows at the next call; listening must not fail.
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_go_round(), self.loop).result(timeout)

    def close(self) -> None:
        """Cancel the tasks that are left and close the loop, unless it is stuck."""
        ended = asyncio.run_coroutine_threadsafe(_end_tasks(), self.loop)
        try:
            ended.result(1.0)
        except TimeoutError:
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self.loop.close()


def _settle_future(action: Action, future: Future[Any]) -> None:
    try:
        result = action()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


async def _go_round() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
