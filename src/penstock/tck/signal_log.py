"""What happened in a test, signal by signal."""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple

KEPT_AT_EACH_END: Final[int] = 30
"""A failed test shows this many of the first signals, and as many of the last."""

_LONGEST_REPR = 60


class Entry(NamedTuple):
    """One line of the log: when, on which thread, and what."""

    at: float
    thread: str
    what: str

    def __str__(self) -> str:
        return f"  {self.at * 1000:9.2f} ms  {self.thread:<14}  {self.what}"


class SignalLog:
    """Everything that went back and forth in one test, in the order in which it began.

    Only texts are kept: a log that held on to elements or errors would keep Subscribers alive (§3.13). Of a
    long run the middle is left out.
    """

    def __init__(self) -> None:
        """Start an empty log; times count from now."""
        self.count = 0
        self._start = time.perf_counter()
        self._first: list[Entry] = []
        self._last: list[Entry] = []

    def add(self, what: str) -> None:
        """Write down one signal or call of the current thread."""
        entry = Entry(time.perf_counter() - self._start, threading.current_thread().name, what)
        self.count += 1
        if len(self._first) < KEPT_AT_EACH_END:
            self._first.append(entry)
            return
        self._last.append(entry)
        if len(self._last) >= 4 * KEPT_AT_EACH_END:
            del self._last[:-KEPT_AT_EACH_END]

    def __str__(self) -> str:
        last = self._last[-KEPT_AT_EACH_END:]
        left_out = self.count - len(self._first) - len(last)
        gap = [f"  … {left_out} more …"] if left_out else []
        return "\n".join([*map(str, self._first), *gap, *map(str, last)])


def shown(value: object) -> str:
    """A short text for a value; never raises, whatever the value's own ``repr`` does."""
    try:
        text = repr(value)
    except BaseException as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _LONGEST_REPR else text[: _LONGEST_REPR - 1] + "…"
