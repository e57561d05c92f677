"""What ``penstock demo --only-streams`` shows: a picture that is drawn over and over, or a line a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

__all__ = ["Figures", "View"]

BAR = 32


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

    def __init__(self, out: TextIO, live: bool) -> None:
        self._out = out
        self._live = live
        self._height = 0
        self._last_line = -1

    def open(self, picture: str) -> None:
        """What runs where."""
        self._write(
            f"{picture}\n\nData goes right, demand goes left. The subscriber slows down in the middle.\n\n"
        )

    def show(self, figures: Figures) -> None:
        """Draw, or print a line if a second has passed."""
        if self._live:
            self._draw(figures)
        elif int(figures.elapsed) > self._last_line:
            self._last_line = int(figures.elapsed)
            self._write(_line(figures) + "\n")

    def close(self, verdict: str) -> None:
        """The last word."""
        self._write(f"\n{verdict}\n")

    def _draw(self, figures: Figures) -> None:
        filled = round(BAR * min(figures.queued, figures.capacity) / figures.capacity)
        lines = [
            f"  {figures.elapsed:5.1f} s   subscriber is {'SLOW' if figures.slow else 'fast'}",
            f"  source     {figures.source_rate:>12,.0f} /s   asked for {figures.asked_of_source:>4} more",
            f"  queue      [{'█' * filled}{'·' * (BAR - filled)}] {figures.queued:>4} of {figures.capacity}",
            f"  subscriber {figures.subscriber_rate:>12,.0f} /s   asks for  {figures.open_demand:>4} more",
        ]
        up = f"\x1b[{self._height}A" if self._height else ""
        self._height = len(lines)
        self._write(up + "".join(f"\x1b[2K{line}\n" for line in lines))

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _line(figures: Figures) -> str:
    pace = "slow" if figures.slow else "fast"
    return (
        f"{figures.elapsed:5.1f} s  subscriber {pace}  source {figures.source_rate:>10,.0f}/s  "
        f"queue {figures.queued:>3}/{figures.capacity}  subscriber {figures.subscriber_rate:>10,.0f}/s  "
        f"demand {figures.open_demand:>3}"
    )
