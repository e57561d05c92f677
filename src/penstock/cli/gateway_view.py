"""What a running gateway shows: a block that is drawn over and over, lines now and then, or JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, Protocol, TextIO

from penstock.cli.columns import columns, pad
from penstock.cli.gateway_figures import Figures, Reader
from penstock.cli.outputs import Screen
from penstock.cli.quantities import duration, size

__all__ = ["JsonView", "LineView", "LiveView", "QuietView", "View", "block"]

_BAR: Final = 24
_MOST_READERS: Final = 12
_LINE_EVERY: Final = 5.0
"""Seconds between lines where nothing can be drawn over."""


class View(Protocol):
    """Where a gateway tells what it does."""

    def begin(self, what: str, **facts: Any) -> None:
        """It listens."""
        ...

    def show(self, figures: Figures) -> None:
        """How things stand, about once a second."""
        ...

    def note(self, text: str) -> None:
        """Something happened that the user should know; from any thread."""
        ...

    def close(self, text: str, **facts: Any) -> None:
        """The last word."""
        ...


class QuietView:
    """Only the beginning, the end, and what goes wrong."""

    def __init__(self, out: Screen) -> None:
        self._out = out
        self._mutex = threading.Lock()

    def begin(self, what: str, **facts: Any) -> None:
        """Where it listens: whoever started it may need the port."""
        self._write(f"penstock gateway: {what}\n")

    def show(self, figures: Figures) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """One line."""
        self._write(f"penstock gateway: {text}\n")

    def close(self, text: str, **facts: Any) -> None:
        """One line."""
        self._write(f"penstock gateway: {text}\n")

    def _write(self, text: str) -> None:
        with self._mutex:
            self._out.write(text)


class LineView(QuietView):
    """A line every few seconds, for a file or the journal of a service."""

    def __init__(self, out: Screen) -> None:
        super().__init__(out)
        self._next = time.monotonic() + _LINE_EVERY

    def show(self, figures: Figures) -> None:
        """A line, if it is time for one."""
        if time.monotonic() >= self._next:
            self._next += _LINE_EVERY
            self._write(_line(figures) + "\n")


class LiveView(QuietView):
    """A block at the bottom of a terminal that is drawn over."""

    def __init__(self, out: Screen) -> None:
        super().__init__(out)
        self._shown: list[str] = []

    def show(self, figures: Figures) -> None:
        """Draw over what was there."""
        width = self._out.width
        self._draw("", [_cut(line, width) for line in block(figures)])

    def note(self, text: str) -> None:
        """A line above the block, which stays."""
        self._draw(f"penstock gateway: {text}\n", self._shown)

    def close(self, text: str, **facts: Any) -> None:
        """A line below the block."""
        self._shown = []
        super().close(text, **facts)

    def _draw(self, above: str, lines: list[str]) -> None:
        with self._mutex:
            up = f"\x1b[{len(self._shown)}A\x1b[J" if self._shown else ""
            self._shown = lines
            self._out.write(up + above + "".join(f"{line}\n" for line in lines))


class JsonView(QuietView):
    """One JSON object to a line, on standard output; what goes wrong is on standard error as always."""

    def __init__(self, out: TextIO, errors: Screen, *, progress: bool) -> None:
        super().__init__(errors)
        self._lines = out
        self._progress = progress

    def begin(self, what: str, **facts: Any) -> None:
        """``{"event": "listening", "control": …}``."""
        self._print("listening", facts)

    def show(self, figures: Figures) -> None:
        """``{"event": "progress", …}``."""
        if self._progress:
            self._print("progress", figures.as_dict())

    def close(self, text: str, **facts: Any) -> None:
        """``{"event": "end", …}``."""
        self._print("end", facts)

    def _print(self, event: str, facts: dict[str, Any]) -> None:
        self._lines.write(json.dumps({"event": event, **facts}) + "\n")
        self._lines.flush()


def block(figures: Figures) -> Iterator[str]:
    """The lines of a live block, and of ``penstock gateway status``."""
    yield f"  source      {_source(figures)}"
    filled = round(_BAR * figures.full)
    yield (
        f"  log         [{'█' * filled}{'·' * (_BAR - filled)}] {figures.full:.0%} full, "
        f"{figures.needed:.0%} still needed"
    )
    yield (
        f"              offsets {_offsets(figures)}, {figures.records:,} of {figures.max_records:,} records, "
        f"{size(figures.bytes)} of {size(figures.max_bytes)}"
    )
    if figures.stalled is not None:
        yield f"  STALLED     {figures.stalled}"
    if not figures.readers:
        yield "  subscribers none"
    for number, reader in enumerate(figures.readers[:_MOST_READERS]):
        yield f"  {'subscribers' if not number else '':11} {_told(reader)}"
    if len(figures.readers) > _MOST_READERS:
        yield f"              and {len(figures.readers) - _MOST_READERS} more"
    for number, away in enumerate(figures.away[:_MOST_READERS]):
        yield (
            f"  {'away' if not number else '':11} {pad(away.id, 20)} {away.behind:,} behind; "
            f"kept for {duration(max(away.remaining, 0))} of {duration(away.lease)}"
        )


def _source(figures: Figures) -> str:
    taken = f"{figures.taken:,} taken" + (f", {figures.skipped:,} skipped" if figures.skipped else "")
    if figures.failure is not None:
        return f"FAILED after {taken}: {figures.failure}"
    if figures.end is not None:
        return f"has ended, {taken}"
    return f"{figures.source_rate:>10,.0f}/s   {taken}   {_held_back(figures)}"


def _held_back(figures: Figures) -> str:
    if figures.held_back < 0.005:
        return "not held back"
    return "HELD BACK" if figures.held_back > 0.995 else f"held back {figures.held_back:.0%} of the time"


def _offsets(figures: Figures) -> str:
    return f"{figures.first:,}..{figures.head - 1:,}" if figures.head > figures.first else "none yet"


def _told(reader: Reader) -> str:
    best_effort = "" if reader.keep else "   best effort"
    return (
        f"{pad(reader.label, 20)} {reader.dialect:8} {reader.state:9} {reader.rate:>10,.0f}/s   "
        f"lag {reader.lag:,}{best_effort}"
    )


def _line(figures: Figures) -> str:
    readers = figures.readers
    worst = max((reader.lag for reader in readers), default=0)
    rate = sum(reader.rate for reader in readers)
    lag = f", lag up to {worst:,}, {rate:,.0f}/s in all" if readers else ""
    away = f", {len(figures.away)} away" if figures.away else ""
    return (
        f"{duration(figures.uptime):>8}  source {_source(figures).strip()}  "
        f"log {_offsets(figures)}, {figures.full:.0%} full  "
        f"{len(readers)} subscriber{'s' * (len(readers) != 1)}{lag}{away}"
    )


def _cut(line: str, width: int) -> str:
    # A line that is too long takes two on the screen, and the next drawing would start too low.
    while columns(line) > width:
        line = line[: width - columns(line)] if columns(line) == len(line) else line[:-1]
    return line
