"""What the demo shows: the way of the data, part by part, drawn over and over; or a line now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO

__all__ = ["Moment", "Picture"]

_BAR = 28


@dataclass(frozen=True, slots=True)
class Moment:
    """The figures of one moment."""

    elapsed: float
    phase: str
    sent: int
    sent_rate: float
    blocked: bool
    asked: int
    held: int
    capacity: int
    batch: int
    batch_seconds: float
    taken: int
    taken_rate: float
    results_held: int
    results_capacity: int
    results: int
    results_rate: float
    slow: bool


class Picture:
    """Writes moments to a terminal, or to something without a cursor."""

    def __init__(self, out: TextIO, live: bool) -> None:
        self._out = out
        self._live = live
        self._height = 0
        self._next_line = 0.0

    def say(self, text: str) -> None:
        """A line that stays."""
        self._height = 0
        self._write(f"{text}\n")

    def show(self, moment: Moment) -> None:
        """Draw it, or print a line every two seconds."""
        if self._live:
            lines = _drawing(moment)
            up = f"\x1b[{self._height}A" if self._height else ""
            self._height = len(lines)
            self._write(up + "".join(f"\x1b[2K{line}\n" for line in lines))
        elif moment.elapsed >= self._next_line:
            self._next_line = moment.elapsed + 2
            self._write(_line(moment) + "\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _bar(value: int, most: int) -> str:
    filled = round(_BAR * min(max(value, 0), most) / most) if most else 0
    return f"[{'█' * filled}{'·' * (_BAR - filled)}]"


def _drawing(m: Moment) -> list[str]:
    pace = "SLOW" if m.slow else "fast"
    return [
        f"  {m.elapsed:5.1f} s  {m.phase}",
        "",
        f"  sensors   {m.sent_rate:>9,.0f} /s   {m.sent:>11,} sent      {_held_back(m)}",
        f"  journal   {_bar(m.held, m.capacity)} {m.held:>7,} of {m.capacity:,} wait for Spark",
        f"  Spark     {m.taken_rate:>9,.0f} /s   {m.taken:>11,} taken     "
        f"batch {m.batch}: {m.batch_seconds:.2f} s",
        f"  results   {_bar(m.results_held, m.results_capacity)} "
        f"{m.results_held:>7,} of {m.results_capacity:,} wait for the reader",
        f"  reader    {m.results_rate:>9,.1f} /s   {m.results:>11,} results   is {pace}",
    ]


def _line(m: Moment) -> str:
    pace = "slow" if m.slow else "fast"
    return (
        f"{m.elapsed:5.1f} s  sensors {m.sent_rate:>7,.0f}/s{' BLOCKED' if m.blocked else ''}  "
        f"journal {m.held:>6,}/{m.capacity:,}  "
        f"Spark {m.taken_rate:>7,.0f}/s, batch {m.batch} {m.batch_seconds:.2f} s  "
        f"results {m.results_held:>2}/{m.results_capacity}  reader {pace}, {m.results_rate:,.1f}/s"
    )


def _held_back(m: Moment) -> str:
    return "BLOCKED: the socket takes nothing" if m.blocked else f"the gateway asks for {m.asked:>6,} more"
