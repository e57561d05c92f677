"""What ``penstock run`` shows on standard error: one line that is rewritten, or a line a second."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.cli.screen import Screen

if TYPE_CHECKING:
    from penstock.spark import Progress

__all__ = ["RunView"]

_SIGN_EVERY: Final = 10
"""Seconds between two signs of life, where nothing can be rewritten."""


class RunView:
    """Writes notes and progress, or with ``quiet`` only warnings."""

    def __init__(self, out: Screen, *, quiet: bool) -> None:
        self._out = out
        self._live = out.is_terminal
        self._quiet = quiet
        self._drawn = False
        self._last: Progress | None = None

    def note(self, text: str) -> None:
        """Write something that happened."""
        if not self._quiet:
            self._write(f"{text}\n")

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Show signs of life while Spark starts, which takes seconds, or minutes on a busy machine."""
        if self._quiet:
            yield
            return
        over = threading.Event()
        # A copy, because standard error belongs to Spark meanwhile.
        with open(os.dup(2), "w") as copy:
            signs = threading.Thread(target=self._give_signs, args=(Screen(copy), over))
            signs.start()
            try:
                yield
            finally:
                over.set()
                signs.join()

    def _give_signs(self, out: Screen, over: threading.Event) -> None:
        seconds, pause = 0, 1 if self._live else _SIGN_EVERY
        while not over.wait(pause):
            seconds += pause
            out.write(f"\r\x1b[2K{seconds} s" if self._live else f"still starting Spark, {seconds} s\n")
        if self._live:
            out.write("\r\x1b[2K")

    def warn(self, text: str) -> None:
        """Write something that the user has to know, even if it is quiet."""
        self._write(f"penstock run: {text}\n")

    def show(self, progress: Progress | None) -> None:
        """Show the progress, if it has changed."""
        if self._quiet or progress is None or progress == self._last:
            return
        self._last = progress
        if self._live:
            # A line that is too long would take two rows, and only one of them would be rewritten.
            self._write(_line(progress)[: self._out.width - 1])
            self._drawn = True
        else:
            self._write(f"{_line(progress)}\n")

    def _write(self, text: str) -> None:
        # The line of progress is rewritten by whatever comes next.
        self._out.write(f"\r\x1b[2K{text}" if self._drawn else text)
        self._drawn = False


def _line(progress: Progress) -> str:
    return (
        f"batch {progress.batch:>5}  {progress.records:>11,} records  "
        f"{progress.records_per_second:>9,.0f}/s  {progress.batch_seconds:7.2f} s  "
        f"{progress.lag:>9,} behind"
    )
