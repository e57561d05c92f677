"""Start several threads at the same moment, to find what goes wrong when they meet."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

from penstock.arguments import a_function, seconds

__all__ = ["race"]

_EAGER = 1e-6
"""Seconds after which Python may let another thread run: threads then change at almost every step."""


def race(*actions: Callable[[], Any], timeout: float = 20.0) -> list[Any]:
    """Run all functions at the same moment, each on a thread of its own, and return their results.

    >>> from penstock.streams import Sinks
    >>> sink = Sinks.replay(10)
    >>> _ = race(lambda: sink.try_emit("a"), lambda: sink.try_emit("b"))
    >>> sorted(sink.flux().take(2).collect_list().block())
    ['a', 'b']

    If one of them raises, ``race`` raises the same; if several do, an exception group of all. A function that
    has not returned after ``timeout`` seconds is a deadlock, and raises ``TimeoutError``. One race proves
    little: run it a few hundred times, with new objects each time.
    """
    patience = seconds(timeout, "race()")
    runners = [_Runner(a_function(action, "race()")) for action in actions]
    if not runners:
        return []
    barrier = threading.Barrier(len(runners))
    threads = [threading.Thread(target=runner.run, args=(barrier,), daemon=True) for runner in runners]
    before = sys.getswitchinterval()
    sys.setswitchinterval(_EAGER)
    try:
        for thread in threads:
            thread.start()
        end = monotonic() + patience
        for thread in threads:
            thread.join(max(0.0, end - monotonic()))
    finally:
        sys.setswitchinterval(before)
    stuck = [number for number, thread in enumerate(threads, 1) if thread.is_alive()]
    if stuck:
        raise TimeoutError(f"function {stuck[0]} of race() has not returned within {timeout} s")
    errors = [runner.error for runner in runners if runner.error is not None]
    if len(errors) > 1:
        raise BaseExceptionGroup("several functions of race() raised", errors)
    if errors:
        raise errors[0]
    return [runner.result for runner in runners]


class _Runner:
    """One function, and what became of it."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self._action = action
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, barrier: threading.Barrier) -> None:
        barrier.wait()
        try:
            self.result = self._action()
        except BaseException as error:
            self.error = error
