"""An event loop for programs that do not run one."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable

from penstock.streams.schedulers.event_loop import LoopScheduler, loops_of_exiting_process
from penstock.streams.schedulers.process_wide import ProcessWide, StaysOpen, renew_after_fork
from penstock.streams.schedulers.scheduler import SchedulerClosed, Task, Timer, report_task_error

_EXIT_PATIENCE = 3.0
"""Seconds that the interpreter's exit waits for the loop to wind down; a task that blocks it gets no more."""

_MOST_TURNS = 10
"""How often the loop looks for tasks that were started while others ended."""

_left_to_parent: list[AbstractEventLoop] = []
"""Loops inherited through a fork. Closing one would unregister the *parent's* sockets, which share the same
kernel object, and so would the garbage collector; they are kept for as long as the child lives."""


class BackgroundLoopScheduler(StaysOpen, LoopScheduler):
    """Runs tasks on an event loop of its own, on the daemon thread `penstock-loop`; see `background_loop`.

    A forked child that inherits it gets a new loop and a new thread with its first task. When the interpreter
    exits, what runs on the loop is cancelled and the loop is closed.
    """

    def __init__(
        self,
        new_loop: Callable[[], AbstractEventLoop] = asyncio.new_event_loop,
        thread_name: str = "penstock-loop",
    ) -> None:
        self._new_loop = new_loop
        self._thread_name = thread_name
        super().__init__(new_loop(), name="background-loop")
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = self._launch(self._loop)
        renew_after_fork(self)
        atexit.register(self._wind_down_at_exit)

    @property
    def loop(self) -> AbstractEventLoop:
        """The running loop, for `asyncio.run_coroutine_threadsafe(coroutine, scheduler.loop)`."""
        self._ensure_running()
        return self._loop

    def submit(self, task: Task) -> None:
        """Run `task` in one of the loop's next rounds."""
        if self._thread is None:
            self._ensure_running()
        super().submit(task)

    def submit_after(self, seconds: float, task: Task) -> Timer:
        self._ensure_running()
        return super().submit_after(seconds, task)

    def renew_in_child(self) -> None:
        """Leave loop, tasks and timers to the parent; the next task starts a loop of our own."""
        _left_to_parent.append(self._loop)
        self._timers.abandon()
        self._starting = threading.Lock()
        self._thread = None

    def _ensure_running(self) -> None:
        if self._thread is not None:
            return
        with self._starting:
            if self._closed:
                raise SchedulerClosed(self.name)
            if self._thread is None:
                self._bind(self._new_loop())
                self._thread = self._launch(self._loop)

    def _launch(self, loop: AbstractEventLoop) -> threading.Thread:
        thread = threading.Thread(target=self._run_loop, args=(loop,), name=self._thread_name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # No thread to be had: the loop would be left open, and nobody would ever run it.
            loop.close()
            raise
        return thread

    def _run_loop(self, loop: AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        # Others live on this loop: neither a stray loop.stop() nor a SystemExit in a coroutine ends it.
        while not (self._closed or loop.is_closed()):
            try:
                loop.run_forever()
            except BaseException as error:
                report_task_error(error, self)
        if not loop.is_closed():
            _wind_down(loop)

    def _wind_down_at_exit(self) -> None:
        loops_of_exiting_process.append(self._loop)
        thread, self._closed = self._thread, True
        if thread is None or not thread.is_alive():
            return
        # A thread that has only just started sees the flag by itself, and may have closed the loop already.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join(_EXIT_PATIENCE)


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


_background = ProcessWide(BackgroundLoopScheduler)


def background_loop() -> LoopScheduler:
    """The event loop of this process for code that has none, started by the first call.

    Use it to run coroutines behind a synchronous program. Inside a coroutine use `loop()` instead: it stays
    on the loop you are on. It is shared, so `close()` raises `SharedSchedulerError`.
    """
    return _background.get()
