"""Where a stream was put together: the place that an error names.

The traceback of an error in a stream shows who *ran* it. What a reader wants to know is who *wrote* it, so
each operator remembers the file and line of the call that added it: one frame is looked at, no stack is
captured, and an error carries the answer as a note.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

__all__ = ["Place", "annotate", "describe", "here"]

_PACKAGE = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's program."""

    code: CodeType
    line: int

    def __str__(self) -> str:
        return f"{self.code.co_filename}:{self.line} in {self.code.co_qualname}"


def here() -> Place:
    """The nearest caller outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Place(frame.f_code, frame.f_lineno)


def describe(argument: Any) -> str:
    """An operator's argument as a reader would write it: ``parse`` rather than ``<function parse at …>``."""
    if isinstance(argument, Callable):  # type: ignore[arg-type]
        name = getattr(argument, "__name__", type(argument).__name__)
        return "λ" if name == "<lambda>" else str(name)
    text = repr(argument)
    return text if len(text) <= 24 else text[:23] + "…"


def annotate(error: BaseException, operator: str, place: Place | None) -> None:
    """Note on ``error`` which operator it came out of, and where that was written.

    Only the first operator that sees an error is its origin; the streams that it travels through afterwards
    leave it alone.
    """
    if place is None or any(note.startswith(_NOTE) for note in getattr(error, "__notes__", ())):
        return
    error.add_note(f"{_NOTE} {operator}, assembled at {place}")


_NOTE = "in stream operator"
