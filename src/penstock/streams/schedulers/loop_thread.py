"""An event loop on a thread of its own: how it starts, stays, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable

__all__ = ["LoopThread", "loops_of_exiting_process"]

_EXIT_PATIENCE = 3.0
"""Seconds that the interpreter's exit waits for the loop to wind down; a task that blocks it gets no more."""

_MOST_TURNS = 10
"""How often the loop looks for tasks that were started while others ended."""

loops_of_exiting_process: list[AbstractEventLoop] = []
"""Loops of ours that the exit of the interpreter is about to close."""

_left_to_parent: list[AbstractEventLoop] = []
"""Loops inherited through a fork. Closing one would unregister the *parent's* sockets, which share the same
kernel object, and so would the garbage collector; they are kept for as long as the child lives."""


class LoopThread:
    """Runs an event loop on a daemon thread until it is told to end.

    Others live on the loop. So neither a stray ``loop.stop()`` nor a ``SystemExit`` in a coroutine ends it;
    ``report`` hears of what is raised there. When it ends, what still runs on the loop is cancelled, and the
    loop is closed.
    """

    def __init__(
        self,
        new_loop: Callable[[], AbstractEventLoop],
        name: str,
        report: Callable[[BaseException], object],
    ) -> None:
        """Start the thread."""
        self.loop = new_loop()
        """The loop, which runs from now on."""
        self._report = report
        self._ending = False
        self._winding_down = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # The system has no thread left: nobody would ever run the loop, so close it.
            self.loop.close()
            raise

    @property
    def name(self) -> str:
        """The name of the thread."""
        return self._thread.name

    @property
    def is_here(self) -> bool:
        """Whether the caller is on this thread."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """Cancel what runs on the loop, close it, and end the thread. Does not wait; any thread may call."""
        self._ending = True
        # A thread that has only just started sees the flag by itself, and may have closed the loop already.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._stop)

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the end of the thread. Returns whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def leave_to_parent(self) -> None:
        """In a forked child: the thread is the parent's, and so is the loop."""
        _left_to_parent.append(self.loop)

    def end_at_exit(self) -> None:
        """The interpreter exits: end, and wait for that for a moment."""
        loops_of_exiting_process.append(self.loop)
        self._ending = True
        if self._thread.is_alive():
            self.end()
            self.join(_EXIT_PATIENCE)

    def _stop(self) -> None:
        if not self._winding_down:  # That runs on the loop, too, and must not be stopped half-way.
            self.loop.stop()

    def _run(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        while not (self._ending or loop.is_closed()):
            try:
                loop.run_forever()
            except BaseException as error:
                self._report(error)
        if not loop.is_closed():
            self._winding_down = True
            _wind_down(loop)


def _wind_down(loop: AbstractEventLoop) -> None:
    # A task still pending when it is collected would complain on stderr: cancel them all and let them end.
    # One of them may have started another just before, so look again.
    for _ in range(_MOST_TURNS):
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(_ended(tasks))
        if not tasks and not asyncio.all_tasks(loop):
            break
    loop.run_until_complete(loop.shutdown_asyncgens())
    asyncio.set_event_loop(None)
    loop.close()


async def _ended(tasks: set[asyncio.Task[object]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)
