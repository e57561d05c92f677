"""Where a stream was put together: the place that an error names.

The traceback of an error in a stream shows who *ran* it. What a reader wants to know is who *wrote* it, so
each operator remembers the file and line of the call that added it: one frame is looked at, no stack is
captured, and an error carries the answer as a note.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from types import CodeType
from typing import Any

__all__ = ["KeptError", "Place", "annotate", "describe", "describe_all", "here"]

FAR = 10**15
WIDTH = 24
"""Letters of an argument that are shown."""
MOST = 8
"""Arguments that are shown."""

_TEXTS = (str, bytes, bytearray)
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    dict: ("{", "}"),
    frozenset: ("frozenset({", "})"),
    deque: ("deque([", "])"),
}
_SMALL = (int, float, complex, bool, type(None), range, timedelta, type(...))

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
    """An operator's argument as a reader would write it: ``parse`` rather than ``<function parse at …>``.

    However large the argument is, this takes the same time: no more of it is looked at than is shown, and an
    object that is none of Python's own is shown by its type, because its ``repr`` may be anything.
    """
    kind = type(argument)
    if kind is int and -FAR < argument < FAR:
        return repr(argument)
    if kind is not str and callable(argument):
        name = getattr(argument, "__name__", type(argument).__name__)
        return "λ" if name == "<lambda>" else str(name)
    text = _beginning(argument)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def describe_all(arguments: tuple[Any, ...]) -> str:
    """What stands between the brackets of an operator."""
    shown = [describe(argument) for argument in arguments[:MOST]]
    return ", ".join(shown if len(arguments) <= MOST else [*shown, "…"])


def _beginning(value: Any) -> str:
    """At least the first ``WIDTH`` letters of ``repr(value)``."""
    kind = type(value)
    if kind in _TEXTS:
        return repr(value[:WIDTH])
    if kind in _BRACKETS:
        opening, closing = _BRACKETS[kind]
        comma = "," if kind is tuple and len(value) == 1 else ""
        return opening + _items(value, kind is dict) + comma + closing
    if kind is int and value.bit_length() > 128:
        return "<int>"  # to write it out would take long, and may be refused
    if kind in _SMALL or isinstance(value, Enum):
        return repr(value)
    if isinstance(value, BaseException):
        return f"{kind.__name__}({_items(value.args)})"
    return f"<{kind.__name__}>"


def _items(values: Any, pairs: bool = False) -> str:
    parts: list[str] = []
    length = 0
    for value in values:
        part = f"{_beginning(value)}: {_beginning(values[value])}" if pairs else _beginning(value)
        parts.append(part)
        length += len(part) + 2
        if length > WIDTH:
            break
    return ", ".join(parts)


class KeptError:
    """An error that several subscribers get, each of them as it was when it came.

    Whoever raises an error adds to its traceback, and the next one would add to that.
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
    """Note on ``error`` which operator it came out of, and where that was written.

    Only the first operator that sees an error is its origin; the streams that it travels through afterwards
    leave it alone.
    """
    if place is None or any(note.startswith(_NOTE) for note in getattr(error, "__notes__", ())):
        return
    error.add_note(f"{_NOTE} {operator}, assembled at {place}")


_NOTE = "in stream operator"
