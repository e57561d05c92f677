"""On which thread the kit calls a subject, and what it does when a call does not come back.

A subject that loops for ever inside ``request`` must fail its test, not hang it, and one that calls
``sys.exit`` must not end the test run. So the kit never calls a subject on the thread of the test: it has one
thread for the calls, or an event loop on a thread, and waits for each call no longer than the time-out.
Whatever a call raises is part of its outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

Action = Callable[[], Any]


def is_from_outside(error: BaseException) -> bool:
    """Tell whether an exception on the thread of the test is none of the subject's: it has to go on.

    Ctrl-C comes from the user, and ``pytest.skip`` and its kind, which are ``BaseException``, are for pytest.
    """
    return isinstance(error, KeyboardInterrupt) or any(
        str(kind.__module__).startswith("_pytest.") for kind in type(error).__mro__
    )


class CallOutcome(NamedTuple):
    """How a call ended: with what it returned, or with what it raised."""

    value: Any
    error: BaseException | None


def outcome_of(action: Action) -> CallOutcome:
    """Call something and say how that ended; an exit or an interrupt out of a subject is an outcome too."""
    try:
        return CallOutcome(action(), None)
    except BaseException as error:
        return CallOutcome(None, error)


class SubjectCaller(Protocol):
    """Calls a subject for the test, on a thread or on an event loop."""

    @property
    def name(self) -> str:
        """The name of the thread on which the calls are made."""
        ...

    def submit(self, action: Action) -> Future[CallOutcome]:
        """Have ``action`` called soon, and return what will hold its outcome."""
        ...

    def is_here(self) -> bool:
        """Tell whether this is the thread on which the calls are made."""
        ...

    def breathe(self, timeout: float) -> None:
        """Wait until what has been handed to this thread so far is done, if it has a queue of its own."""
        ...

    def ignore(self, kind: type[BaseException]) -> None:
        """Do not report threads and tasks that end with such an exception: the kit has raised it."""
        ...

    def close(self) -> None:
        """End the thread, unless a call on it has not come back."""
        ...


class ThreadCaller:
    """Calls a subject on one thread of its own; the thread ends with the process if a call never returns."""

    name = "tck-caller"

    def __init__(self) -> None:
        """Start the thread."""
        self._tasks: queue.SimpleQueue[tuple[Action, Future[CallOutcome]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()

    def submit(self, action: Action) -> Future[CallOutcome]:
        """Have ``action`` called after those before it."""
        future: Future[CallOutcome] = Future()
        self._tasks.put((action, future))
        return future

    def is_here(self) -> bool:
        """Tell whether this is the caller's thread."""
        return threading.current_thread() is self._thread

    def breathe(self, timeout: float) -> None:
        """Return at once: nothing but calls of the test runs on this thread."""

    def ignore(self, kind: type[BaseException]) -> None:
        """Do not report threads that end with such an exception."""
        ignore_on_threads(kind)

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

    def __init__(self, interrupted: Callable[[BaseException], None]) -> None:
        """Start the loop; ``interrupted`` is told what a task of the subject ends the loop with."""
        self.loop = asyncio.new_event_loop()
        self._interrupted = interrupted
        self._closing = False
        self._thread = threading.Thread(target=self._go_on, name=self.name, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        """Run the loop to the end of the test, even if a subject stops it or exits in one of its tasks."""
        while not self._closing:
            try:
                self.loop.run_forever()
            except BaseException as error:
                self._interrupted(error)

    def submit(self, action: Action) -> Future[CallOutcome]:
        """Have ``action`` called by the loop."""
        future: Future[CallOutcome] = Future()
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

    def ignore(self, kind: type[BaseException]) -> None:
        """Do not report threads, and tasks of the loop, that end with such an exception."""
        ignore_on_threads(kind)

        def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if not isinstance(context.get("exception"), kind):
                loop.default_exception_handler(context)

        self.loop.call_soon_threadsafe(self.loop.set_exception_handler, handle)

    def close(self) -> None:
        """Cancel the tasks that are left and close the loop, unless it is stuck."""
        ended = asyncio.run_coroutine_threadsafe(_end_tasks(), self.loop)
        try:
            ended.result(1.0)
        except TimeoutError:
            return
        self._closing = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self.loop.close()


def ignore_on_threads(kind: type[BaseException]) -> None:
    """Do not report threads that end with such an exception.

    This is never undone: a thread of the subject may end after the test.
    """
    others = threading.excepthook
    if getattr(others, "ignores", None) is kind:
        return

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if not issubclass(arguments.exc_type, kind):
            others(arguments)

    hook.ignores = kind  # type: ignore[attr-defined]
    threading.excepthook = hook


def _settle_future(action: Action, future: Future[CallOutcome]) -> None:
    future.set_result(outcome_of(action))


async def _go_round() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _end_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
