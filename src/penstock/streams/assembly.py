"""Where a stream was put together: the place that an error names.

The traceback of an error in a stream shows where the stream *ran*. More useful is where it was *written*, so
each operator remembers the file and line of the call that added it, and an error carries that as a note. This
costs a look at one frame; no stack is captured.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

__all__ = ["KeptError", "Place", "annotate", "here"]

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


class KeptError:
    """An error for several subscribers, with the same traceback for each.

    Raising an error adds to its traceback, and raising it again would add to that.
    """

    __slots__ = ("_traceback", "error")

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self._traceback = error.__traceback__

    def give(self) -> BaseException:
        """The error for one more subscriber."""
        self.error.__traceback__ = self._traceback
        return self.error


def annotate(error: BaseException, operator: str, place: Place | None) -> None:
    """Add a note to ``error`` that names its operator and where that was written.

    The first operator that sees an error is its origin; the others leave it alone.
    """
    if place is None or any(note.startswith(_NOTE) for note in getattr(error, "__notes__", ())):
        return
    error.add_note(f"{_NOTE} {operator}, assembled at {place}")


_NOTE = "in stream operator"
