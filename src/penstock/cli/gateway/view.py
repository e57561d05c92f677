"""What a running gateway shows: a block that is redrawn, a line every few seconds, or JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, Protocol, TextIO

from penstock.cli.block import Block
from penstock.cli.gateway.figures import GatewayFigures, ReaderFigures
from penstock.cli.logs import is_json, tell
from penstock.cli.screen import LINE_ENDS, Screen
from penstock.cli.table import bar, duration, pad, printable, row, size, wrap

__all__ = ["GatewayView", "JsonView", "LineView", "LiveView", "QuietView", "block"]

_BAR: Final = 24
_SHORTEST_BAR: Final = 6
_BESIDE_BAR: Final = 44
"""Columns that the label and the text beside a bar take."""
_ONE_LINE: Final = 1000
_MOST_READERS: Final = 12
_LINE_EVERY: Final = 5.0
"""Seconds between two lines, where nothing can be redrawn."""


class GatewayView(Protocol):
    """Shows what a gateway does."""

    def begin(self, what: str, **facts: Any) -> None:
        """Show that the gateway listens."""
        ...

    def show(self, figures: GatewayFigures) -> None:
        """Show the figures, about once a second."""
        ...

    def note(self, text: str) -> None:
        """Show something that happened; from any thread."""
        ...

    def close(self, text: str, **facts: Any) -> None:
        """Show how it ended."""
        ...


class QuietView:
    """Shows the start, the end, and what goes wrong."""

    def __init__(self, out: Screen) -> None:
        self._out = out
        self._mutex = threading.Lock()

    def begin(self, what: str, **facts: Any) -> None:
        """Write where it listens."""
        self._tell(what, facts)

    def show(self, figures: GatewayFigures) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Write one line."""
        self._tell(text, {})

    def close(self, text: str, **facts: Any) -> None:
        """Write one line."""
        self._tell(text, facts)

    def _tell(self, text: str, facts: dict[str, Any]) -> None:
        if is_json():
            tell("gateway", text, **facts)
        else:
            self._write(f"penstock gateway: {printable(text, keep=LINE_ENDS)}\n")

    def _write(self, text: str) -> None:
        with self._mutex:
            self._out.write(text)


class LineView(QuietView):
    """Writes a line every few seconds, for a file or the log of a service."""

    def __init__(self, out: Screen) -> None:
        super().__init__(out)
        self._next = time.monotonic() + _LINE_EVERY

    def show(self, figures: GatewayFigures) -> None:
        """Write a line, if it is time for one."""
        if time.monotonic() >= self._next:
            self._next += _LINE_EVERY
            if is_json():
                tell("gateway", "progress", **figures.as_dict())
            else:
                self._write(_line(figures) + "\n")


class LiveView(QuietView):
    """Redraws a block at the bottom of a terminal."""

    def __init__(self, out: Screen) -> None:
        super().__init__(out)
        self._block = Block(out)

    def show(self, figures: GatewayFigures) -> None:
        """Redraw the block."""
        self._block.draw(block(figures, self._out.width))

    def note(self, text: str) -> None:
        """Write a line above the block; it stays."""
        self._block.say(f"penstock gateway: {text}")

    def close(self, text: str, **facts: Any) -> None:
        """Write a line below the block."""
        self._block.leave()
        super().close(text, **facts)


class JsonView(QuietView):
    """Writes one JSON object to a line on standard output; what goes wrong is on standard error."""

    def __init__(self, out: TextIO, errors: Screen, *, progress: bool) -> None:
        super().__init__(errors)
        self._lines = out
        self._progress = progress

    def begin(self, what: str, **facts: Any) -> None:
        """Write ``{"event": "listening", "control": …}``."""
        self._print("listening", facts)

    def show(self, figures: GatewayFigures) -> None:
        """Write ``{"event": "progress", …}``."""
        if self._progress:
            self._print("progress", figures.as_dict())

    def close(self, text: str, **facts: Any) -> None:
        """Write ``{"event": "end", …}``."""
        self._print("end", facts)

    def _print(self, event: str, facts: dict[str, Any]) -> None:
        self._lines.write(json.dumps({"event": event, **facts}) + "\n")
        self._lines.flush()


def block(figures: GatewayFigures, width: int) -> Iterator[str]:
    """Lay out the figures for a screen of ``width`` columns."""
    yield from row("source", _source(figures, width), width)
    shown = bar(figures.full, max(min(_BAR, width - _BESIDE_BAR), _SHORTEST_BAR))
    yield from row("log", [shown, f"{figures.full:.0%} full,", f"{figures.needed:.0%} still needed"], width)
    records = f"{figures.records:,} records,"
    if figures.max_records is not None:
        records = f"{figures.records:,} of {figures.max_records:,} records,"
    used = size(figures.bytes)
    if figures.max_bytes is not None:
        used += f" of {size(figures.max_bytes)}"
    yield from row("", [f"offsets {_offsets(figures)},", records, used], width)
    if figures.stalled is not None:
        yield from row("STALLED", figures.stalled.split(), width)
    if not figures.readers:
        yield from row("subscribers", ["none"], width)
    for number, reader in enumerate(figures.readers[:_MOST_READERS]):
        yield from row("" if number else "subscribers", _told(reader), width)
    yield from _more(len(figures.readers) + figures.left_out["subscribers"], width)
    for number, away in enumerate(figures.away[:_MOST_READERS]):
        said = [
            pad(printable(away.id), 20),
            f"{away.behind:,} behind{_for(away.behind, away.lag_seconds)};",
            f"resumable for {duration(max(away.remaining, 0))} of {duration(away.lease)}",
        ]
        yield from row("" if number else "away", said, width)
    yield from _more(len(figures.away) + figures.left_out["absent"], width)


def _more(total: int, width: int) -> Iterator[str]:
    if total > _MOST_READERS:
        yield from row("", [f"and {total - _MOST_READERS:,} more;", "penstock gateway ls lists them"], width)


def _source(figures: GatewayFigures, width: int) -> list[str]:
    taken = f"{figures.taken:,} taken" + (f", {figures.skipped:,} skipped" if figures.skipped else "")
    if figures.failure is not None:
        return [f"FAILED after {taken}:", *wrap(printable(figures.failure), max(width - 14, 20))]
    if figures.end is not None:
        return [f"has ended, {taken}"]
    return [f"{figures.source_rate:>10,.0f}/s ", f"{taken} ", _held_back(figures)]


def _held_back(figures: GatewayFigures) -> str:
    if figures.held_back < 0.005:
        return "not held back"
    return "HELD BACK" if figures.held_back > 0.995 else f"held back {figures.held_back:.0%} of the time"


def _offsets(figures: GatewayFigures) -> str:
    return f"{figures.first:,}..{figures.head - 1:,}" if figures.head > figures.first else "none yet"


def _told(reader: ReaderFigures) -> list[str]:
    return [
        pad(printable(reader.label), 20),
        f"{reader.dialect:8} {reader.state:9}",
        f"{reader.rate:>9,.0f}/s ",
        f"lag {reader.lag:,}{_for(reader.lag, reader.lag_seconds)} ",
        *([] if reader.keep else ["optional"]),
    ]


def _for(records: int, seconds: float | None) -> str:
    """How old the oldest of the records is that a reader does not have, if there are any."""
    return f" ({duration(seconds)})" if records and seconds is not None else ""


def _line(figures: GatewayFigures) -> str:
    readers = figures.readers
    worst = max((reader.lag for reader in readers), default=0)
    rate = sum(reader.rate for reader in readers)
    lag = f", lag up to {worst:,}, {rate:,.0f}/s in all" if readers else ""
    away = f", {len(figures.away) + figures.left_out['absent']:,} away" if figures.away else ""
    return (
        f"{duration(figures.uptime):>8}  source {' '.join(_source(figures, _ONE_LINE)).strip()}  "
        f"log {_offsets(figures)}, {figures.full:.0%} full  "
        f"{len(readers)} subscriber{'s' * (len(readers) != 1)}{lag}{away}"
    )
