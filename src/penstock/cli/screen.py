"""Standard output and standard error, which may be closed, a pipe without a reader, or a lost terminal.

When the reader of standard output leaves, as ``head`` does, a command exits quietly. Standard error is
different: a gateway keeps serving when nobody reads its messages.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import Final, TextIO

from penstock.cli.table import printable

__all__ = ["LINE_ENDS", "Screen", "complete_descriptors", "ending_quietly", "say", "was_output_closed"]

LINE_ENDS: Final = "\n"
"""What may stay in a message of several lines."""
_closed: set[int] = set()
"""The standard descriptors that were closed when the program started."""


def complete_descriptors() -> None:
    """Open the standard descriptors that are closed, so that no socket gets their numbers.

    What standard output cannot encode becomes a question mark: a bar is no reason to fail.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        _closed.add(number)
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:  # Python has no stream although the number is in use.
            os.close(opened)
        setattr(sys, name, open(os.devnull, "r" if number == 0 else "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")


def was_output_closed() -> bool:
    """Return whether standard output was closed from the start."""
    return 1 in _closed


def ending_quietly(run: Callable[[], int]) -> int:
    """Run a command; exit with 0 if the reader of its output leaves."""
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise Python reports the error once more when it closes standard output.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130  # A command that does not handle Ctrl-C, or a second Ctrl-C while it shuts down.
    return code


class Screen:
    """Standard error, or another stream; writing to it does not fail unless ``must_be_read``."""

    def __init__(self, out: TextIO | None = None, *, must_be_read: bool = False) -> None:
        self._out = sys.stderr if out is None else out
        self._unimportant = () if must_be_read else (OSError,)

    def write(self, text: str) -> None:
        """Write and flush; if the terminal or the reader is gone, drop the text unless it must be read."""
        with contextlib.suppress(*self._unimportant):
            self._out.write(text)
            self._out.flush()

    @property
    def stream(self) -> TextIO:
        """Where the text goes."""
        return self._out

    @property
    def is_terminal(self) -> bool:
        """Whether what was written can be overwritten."""
        return self._out.isatty() and not _is_dumb()

    @property
    def is_coloured(self) -> bool:
        """Whether colours are shown: at a terminal, unless the environment says otherwise."""
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
            return True
        return self.is_terminal

    @property
    def width(self) -> int:
        """The number of columns; 80 if it is unknown."""
        try:
            # Some terminals do not know their size, and report 0.
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    @property
    def height(self) -> int:
        """The number of lines; 24 if it is unknown."""
        try:
            return os.get_terminal_size(self._out.fileno()).lines or 24
        except (OSError, ValueError):
            return 24


def _is_dumb() -> bool:
    """Return whether the terminal is a plain printer, which an editor or a service may offer."""
    return os.environ.get("TERM") in ("dumb", "unknown")


def say(text: str) -> None:
    """Write a line to standard error, without control characters."""
    Screen().write(f"{printable(text, keep=LINE_ENDS)}\n")
