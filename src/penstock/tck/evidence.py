"""The evidence that a failed test shows: signals in their order, values, the subject's traceback."""

from __future__ import annotations

import inspect
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any, Final, NamedTuple

KEPT_AT_EACH_END: Final[int] = 30
"""A failed test shows this many of the first signals, and as many of the last."""

_LONGEST_REPR = 60
_DEEPEST_REPR = 8


class Entry(NamedTuple):
    """One line of the log: when, on which thread, and what."""

    at: float
    thread: str
    what: str

    def __str__(self) -> str:
        return f"  {self.at * 1000:9.2f} ms  {self.thread:<14}  {self.what}"


class SignalLog:
    """All signals and calls of one test, in the order in which they began.

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
    """A short text for a value; never raises, even if the value's ``repr`` does."""
    try:
        text = _beginning(value, _DEEPEST_REPR)
    except BaseException as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _LONGEST_REPR else text[: _LONGEST_REPR - 1] + "…"


def _beginning(value: object, depth: int) -> str:
    """The ``repr`` of a value, or enough of it: that of a megabyte takes longer than the whole test."""
    kind = type(value)
    if kind in (bytes, bytearray, str):
        return repr(value[:_LONGEST_REPR])  # type: ignore[index]
    if kind not in (list, tuple, dict) or not value:
        return repr(value)
    if not depth:
        return "…"
    return _joined(value, depth - 1)


def _joined(values: Any, depth: int) -> str:
    kind = type(values)
    opening, closing = "[]" if kind is list else "()" if kind is tuple else "{}"
    text = opening
    for number, value in enumerate(values):
        text += ", " if number else ""
        text += _beginning(value, depth)
        if kind is dict:
            text += f": {_beginning(values[value], depth)}"
        if len(text) > _LONGEST_REPR:
            return text
    return f"{text},{closing}" if kind is tuple and len(values) == 1 else text + closing


SHOWN_FRAMES: Final[int] = 12
"""The most calls that are shown: those nearest to the exception."""

_KIT = str(Path(__file__).parent)


def place_of(error: BaseException) -> str:
    """Where the subject raised an exception, as `` at numbers.py:12 in request``; empty if it did not."""
    frames = _frames_of_the_subject(error.__traceback__)
    if not frames:
        return ""
    last = frames[-1]
    return f" at {Path(last.filename).name}:{last.lineno} in {last.name}"


def trace_of(error: BaseException) -> str:
    """The traceback of an exception without the calls of the kit, or an empty text if nothing is left."""
    frames = _frames_of_the_subject(error.__traceback__)
    if not frames:
        return ""
    left_out = len(frames) - SHOWN_FRAMES
    lines = [f"  … {left_out} more calls …"] if left_out > 0 else []
    for frame in frames[-SHOWN_FRAMES:]:
        lines.append(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        if frame.line:
            lines.append(f"    {frame.line}")
    return "\n".join([*lines, f"  {described(error)}"])


def comes_from(error: BaseException, kind: type[BaseException]) -> bool:
    """Tell whether an exception is of this kind, or was raised because of one that is."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, kind):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False


def described(error: BaseException) -> str:
    """An exception as the last line of a traceback; never raises, even if the exception's ``str`` does."""
    try:
        text = str(error)
    except BaseException:
        text = shown(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _frames_of_the_subject(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    # Only the end of a stack that overflowed is of interest, and reading all of it takes long.
    found = traceback.extract_tb(trace, limit=-10 * SHOWN_FRAMES)
    return [frame for frame in found if not frame.filename.startswith(_KIT)]


def kind_of_function(returned: Any) -> str:
    """The kind of a function that only made a coroutine or a generator; else an empty text.

    The object is closed, so that Python does not warn of it as well. One that has begun is the subject's own
    and at work. The class is asked of Python, not of the object, which may answer by an exception.
    """
    made = type(returned)
    if issubclass(made, CoroutineType) and inspect.getcoroutinestate(returned) == inspect.CORO_CREATED:
        returned.close()
        return "a coroutine function"
    if issubclass(made, AsyncGeneratorType):
        return "an asynchronous generator function"
    if issubclass(made, GeneratorType) and inspect.getgeneratorstate(returned) == inspect.GEN_CREATED:
        returned.close()
        return "a generator function"
    return ""


def same(one: Any, other: Any) -> bool:
    """Tell whether two elements are the same object or equal.

    Identity comes first: some objects are not equal to themselves, and some (arrays, data frames) cannot say
    whether they are equal to anything.
    """
    if one is other:
        return True
    try:
        return bool(one == other)
    except BaseException:
        return False


def same_elements(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Tell whether two sequences have the same elements in the same order."""
    return len(some) == len(others) and all(map(same, some, others))
