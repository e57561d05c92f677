"""Every scheduler in a frame that lets one test drive them all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import ClassVar

from penstock.streams.schedulers import LoopScheduler, Scheduler, Task, VirtualTimeScheduler

PATIENCE = 60.0
"""Seconds after which a test gives up on something that should happen at once."""


class Rig:
    """A scheduler that makes progress by itself, on its own threads or on its caller's."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def wait(self, event: threading.Event) -> None:
        """Return when `event` is set, having let the scheduler do what it takes."""
        assert event.wait(PATIENCE), "the scheduler did not get there"

    def settle(self) -> None:
        """After `close()`: return when all that was submitted has run."""

    def dispose(self) -> None:
        """Release what the test left open."""
        self.scheduler.close(PATIENCE)


class VirtualRig(Rig):
    """Virtual time, advanced in small steps by whoever waits."""

    scheduler: VirtualTimeScheduler

    def wait(self, event: threading.Event) -> None:
        for _ in range(1000):
            self.scheduler.run_pending()
            if event.is_set():
                return
            self.scheduler.advance_by(0.01)
        raise AssertionError("nothing sets the event")

    def settle(self) -> None:
        self.scheduler.run_pending()


class LoopThread:
    """An event loop of the test's own, running on a thread of the test's own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="test-loop", daemon=True)
        self.thread.start()

    def settle(self) -> None:
        """Return when the loop has run all it was given so far."""
        passed = threading.Event()
        self.loop.call_soon_threadsafe(passed.set)
        assert passed.wait(PATIENCE)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        self.loop.close()


class LoopRig(Rig):
    """A loop scheduler on a loop that another thread runs."""

    def __init__(self) -> None:
        self._running = LoopThread()
        super().__init__(LoopScheduler(self._running.loop))

    def settle(self) -> None:
        self._running.settle()

    def dispose(self) -> None:
        super().dispose()
        self._running.stop()


class Harmless:
    """A task that does nothing, and can be watched through a weak reference."""

    def __call__(self) -> None: ...


class Forbidden:
    """A task that must not run, and can be watched through a weak reference.

    A scheduler reports what a task raises and goes on, so raising would make no test fail: each run is
    counted, and a fixture looks at the count after every test.
    """

    runs: ClassVar[int] = 0

    def __call__(self) -> None:
        Forbidden.runs += 1


def in_turn(*tasks: Task) -> Task:
    """One task that runs the given ones."""

    def run_all() -> None:
        for task in tasks:
            task()

    return run_all


def race(*contenders: Callable[[], object]) -> None:
    """Run the callables at the same time, each on a thread of its own, and return when all have ended."""
    start = threading.Barrier(len(contenders))
    failures: list[BaseException] = []

    def run(contender: Callable[[], object]) -> None:
        start.wait(PATIENCE)
        try:
            contender()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(contender,)) for contender in contenders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "a contender hangs"
    assert not failures, failures
