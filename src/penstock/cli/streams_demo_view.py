"""What ``penstock demo --only-streams`` shows: a picture that is drawn over and over, or a line a second."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.cli.block import Block, bar, row
from penstock.cli.columns import columns, fit, wrap
from penstock.cli.outputs import Screen

__all__ = ["Figures", "View", "drawing", "line"]

_ANY = 10_000
"""Columns, where there is no screen."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One moment of the run."""

    elapsed: float
    slow: bool
    source_rate: float
    subscriber_rate: float
    queued: int
    capacity: int
    open_demand: int
    asked_of_source: int


class View:
    """Writes figures to a terminal, or to a file that has no cursor to move."""

    def __init__(self, out: Screen, *, headless: bool) -> None:
        self._out = out
        self._block = Block(out) if out.is_terminal and not headless else None
        self._width = out.width if out.is_terminal else _ANY
        self._last_line = -1

    def open(self, picture: str) -> None:
        """What runs where."""
        lines = picture.splitlines()
        if all(columns(line) <= self._width for line in lines):
            self._out.write(f"{picture}\n\n")
        said = "Data goes right, demand goes left. The subscriber slows down in the middle."
        self._out.write("\n".join(wrap(said, self._width)) + "\n\n")

    def show(self, figures: Figures) -> None:
        """Draw, or print a line if a second has passed."""
        if self._block is not None:
            self._block.draw(drawing(figures, self._out.width))
        elif int(figures.elapsed) > self._last_line:
            self._last_line = int(figures.elapsed)
            self._out.write(line(figures, self._width) + "\n")

    def close(self, verdict: str) -> None:
        """The last word."""
        if self._block is not None:
            self._block.leave()
        self._out.write("\n" + "\n".join(wrap(verdict, self._width)) + "\n")


def drawing(f: Figures, width: int) -> list[str]:
    """A moment, for a screen of so many columns."""
    queue = bar(f.queued / f.capacity, max(min(32, width - 30), 6))
    return [
        f"  {f.elapsed:5.1f} s   subscriber is {'SLOW' if f.slow else 'fast'}",
        row("source", [f"{f.source_rate:>11,.0f}/s", f"asked for {f.asked_of_source:>4} more"], width)[0],
        row("queue", [queue, f"{f.queued:>4} of {f.capacity}"], width)[0],
        row("subscriber", [f"{f.subscriber_rate:>11,.0f}/s", f"asks for  {f.open_demand:>4} more"], width)[0],
    ]


def line(f: Figures, width: int = _ANY) -> str:
    """A moment in one line: in full if there is room."""
    pace = "slow" if f.slow else "fast"
    full = (
        f"{f.elapsed:5.1f} s  subscriber {pace}  source {f.source_rate:>10,.0f}/s  "
        f"queue {f.queued:>3}/{f.capacity}  subscriber {f.subscriber_rate:>10,.0f}/s  "
        f"demand {f.open_demand:>3}"
    )
    short = f"{f.elapsed:5.1f} s {pace} {f.source_rate:>9,.0f}/s ▸ {f.queued:>3} ▸ {f.subscriber_rate:,.0f}/s"
    return full if columns(full) <= width else fit(short, width)
