"""Standard output and standard error as they may be: closed, a pipe without a reader, a terminal that went.

Whoever reads the output may have enough before its end, as ``head`` does: then a command ends, quietly. What
is said on standard error is another matter. A gateway goes on serving when there is nobody left to tell.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TextIO

__all__ = ["Screen", "complete_descriptors", "ending_quietly", "say", "was_output_closed"]

_closed: set[int] = set()
"""Those of the standard descriptors that were closed when the program started."""


def complete_descriptors() -> None:
    """Open what is closed of the standard descriptors: a socket that got their number would be written to."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        _closed.add(number)
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:  # Python has its own reasons to have none; the number is in use.
            os.close(opened)
        setattr(sys, name, open(os.devnull, "r" if number == 0 else "w"))  # noqa: SIM115


def was_output_closed() -> bool:
    """Whether there is nobody for whom the output could be."""
    return 1 in _closed


def ending_quietly(run: Callable[[], int]) -> int:
    """Run a command; if nobody reads its output any more, that is an end like any other."""
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would complain once more when it closes standard output.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130  # Where a command does not wait for it; or Ctrl-C once more, while it ends.
    return code


class Screen:
    """Standard error, or what stands for it: writing to it never fails, though it may be for nobody."""

    def __init__(self, out: TextIO | None = None, *, must_be_read: bool = False) -> None:
        self._out = sys.stderr if out is None else out
        self._unimportant = () if must_be_read else (OSError,)

    def write(self, text: str) -> None:
        """Write, at once; if the terminal or the reader is gone, nobody is told, unless it must be read."""
        with contextlib.suppress(*self._unimportant):
            self._out.write(text)
            self._out.flush()

    @property
    def is_terminal(self) -> bool:
        """Whether what was written can be drawn over."""
        return self._out.isatty()

    @property
    def width(self) -> int:
        """How many columns there are."""
        try:
            # Some terminals do not know their size, and say 0.
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    @property
    def height(self) -> int:
        """How many lines there are."""
        try:
            return os.get_terminal_size(self._out.fileno()).lines or 24
        except (OSError, ValueError):
            return 24


def say(text: str) -> None:
    """A line on standard error."""
    Screen().write(f"{text}\n")
