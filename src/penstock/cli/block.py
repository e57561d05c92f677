"""A block of lines at the bottom of a terminal that is redrawn in place.

rich has a display for that too, which loses count of its rows when the window is made narrower, starts a
thread, and takes over standard output; this one does none of that. The lines are laid out for the width of
the screen, and painted when they are written: see :mod:`penstock.cli.style`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from penstock.cli.screen import LINE_ENDS, Screen
from penstock.cli.style import clean, paint
from penstock.cli.table import columns, fit, printable

__all__ = ["Block"]


class Block:
    """Draws lines over those that it drew before; from any thread."""

    def __init__(self, out: Screen) -> None:
        self._out = out
        self._shown: list[str] = []
        self._mutex = threading.Lock()

    def draw(self, lines: Iterable[str]) -> None:
        """Replace the block by these lines, as many as fit on the screen."""
        with self._mutex:
            self._draw("", list(lines))

    def say(self, text: str) -> None:
        """Write lines above the block; they stay."""
        with self._mutex:
            self._draw(f"{printable(text, keep=LINE_ENDS)}\n", self._shown)

    def leave(self) -> None:
        """Leave the block as it is; the next one is drawn below it."""
        with self._mutex:
            self._shown = []

    def _draw(self, above: str, lines: list[str]) -> None:
        width, height = self._out.width, max(self._out.height - 1, 1)
        if len(lines) > height:
            lines = [
                *lines[: height - 1],
                f"  … {len(lines) - height + 1} more lines: make the window higher",
            ]
        # In a window that was made narrower, a line that was drawn takes several rows.
        rows = min(sum(-(-max(columns(line), 1) // width) for line in self._shown), height)
        up = f"\x1b[{rows}A" if rows else ""
        self._shown = [fit(clean(line), width) for line in lines]
        # Line by line: some terminals put a screen that is cleared as a whole into their history.
        drawn = [f"\x1b[2K{paint(line, self._out)}\n" for line in (*above.splitlines(), *self._shown)]
        self._out.write(f"{up}{''.join(drawn)}\x1b[J")
