"""What is said about an exception of a subject: where it was raised, and how the calls got there."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from penstock.tck.signal_log import shown

SHOWN_FRAMES: Final[int] = 12
"""Of a deeper stack the calls nearest to the exception are shown."""

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
    """An exception as the last line of a traceback; never raises, whatever the exception's ``str`` does."""
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
    """What a function is if it only made an object that somebody else would have to run; else empty.

    The object is closed, so that Python does not warn of it as well.
    """
    if inspect.iscoroutine(returned):
        returned.close()
        return "a coroutine function"
    if inspect.isasyncgen(returned):
        return "an asynchronous generator function"
    if inspect.isgenerator(returned):
        returned.close()
        return "a generator function"
    return ""
