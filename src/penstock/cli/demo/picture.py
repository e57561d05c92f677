"""What the demo shows: the path of the data, part by part, redrawn; or a line every few seconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from penstock.cli.block import Block
from penstock.cli.screen import Screen
from penstock.cli.style import print_json
from penstock.cli.table import bar, columns, fit, printable, row, wrap

__all__ = ["Moment", "Picture", "drawing", "line"]

_ANY = 10_000
"""Columns, where there is no screen."""
_SIGN_EVERY = 5.0
"""Seconds between two signs of life, where nothing can be redrawn."""
_WAYS = (
    "sensors ▸ TCP ▸ Flux ▸ gateway, SQLite journal ▸ Spark: counts by window and sensor ▸ gateway ▸ reader",
    "sensors ▸ TCP ▸ gateway, journal ▸ Spark: counts ▸ gateway ▸ reader",
    "sensors ▸ gateway ▸ Spark ▸ gateway ▸ reader",
)


@dataclass(frozen=True, slots=True)
class Moment:
    """The figures of one moment."""

    elapsed: float
    phase: str
    sent: int
    sent_rate: float
    blocked: bool
    open_demand: int
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
    limit: str = ""
    """Who holds whom up, as an observer of the gateways sees it."""


class Picture:
    """Shows moments on a terminal, or as lines where there is none."""

    def __init__(self, out: Screen, *, headless: bool, as_json: bool = False) -> None:
        self._out = out
        self._as_json = as_json
        self._block = Block(out) if out.is_terminal and not headless and not as_json else None
        self._width = out.width if out.is_terminal else _ANY
        self._next_line = 0.0
        self._limit = ""

    def way(self) -> None:
        """Show the path of the data, in the longest form that fits."""
        way = next((way for way in _WAYS if columns(way) + 2 <= self._width), _WAYS[-1])
        line = f"◀{' demand '.center(columns(way) - 1, '─')}"
        self.say(f"  {way}\n  {line}\n")

    def say(self, text: str) -> None:
        """Write lines that stay."""
        if self._as_json:
            return
        if self._block is not None:
            self._block.leave()
        for said in text.split("\n"):
            fits = columns(said) <= self._width
            parts = [said] if fits else [f"  {part}" for part in wrap(said.strip(), self._width - 2)]
            self._out.write("".join(f"{part}\n" for part in parts))

    def starting(self, what: str, seconds: float) -> None:
        """Show a sign of life while something takes its time."""
        if self._as_json:
            return
        if self._block is not None:
            self._block.draw(f"  {part}" for part in wrap(f"{seconds:5.1f} s  {what} …", self._out.width - 2))
        elif seconds >= self._next_line:
            self._next_line = seconds + _SIGN_EVERY
            self._out.write(f"{seconds:5.1f} s  {what} …\n")

    def end(self, **facts: object) -> None:
        """Tell a program how it ended; people read it in the last lines."""
        if self._as_json:
            print_json({"event": "end", **facts})

    def started(self) -> None:
        """Begin to show moments."""
        self._next_line = 0.0

    def show(self, moment: Moment) -> None:
        """Draw it, or print a line every two seconds."""
        if self._as_json:
            print_json({"event": "moment", **asdict(moment)})
        elif self._block is not None:
            self._block.draw(drawing(moment, self._out.width))
        elif moment.elapsed >= self._next_line:
            self._next_line = moment.elapsed + 2
            self._out.write(line(moment, self._width) + "\n")
            # Its figures change all the time; what comes before them names the hop.
            limit = moment.limit.partition(":")[0]
            if limit and limit != self._limit:
                parts = wrap(printable(moment.limit), max(self._width - 9, 20))
                self._out.write("".join(f"{' ' * 9}{part}\n" for part in parts))
            self._limit = limit


def drawing(m: Moment, width: int) -> list[str]:
    """Lay out a moment for a screen of ``width`` columns."""
    bars = max(min(28, width - 34), 6)
    held = bar(m.held / m.capacity if m.capacity else 0, bars)
    results = bar(m.results_held / m.results_capacity if m.results_capacity else 0, bars)
    demand = "BLOCKED: the socket is full" if m.blocked else f"demand {m.open_demand:,}"
    batch = f"batch {m.batch}: {m.batch_seconds:.1f} s"
    rows = [
        ("sensors", [f"{m.sent_rate:>9,.0f}/s", f"{m.sent:>11,} sent", demand]),
        ("journal", [held, f"{m.held:,} of {m.capacity:,}", "wait for Spark"]),
        ("Spark", [f"{m.taken_rate:>9,.0f}/s", f"{m.taken:>11,} taken", batch]),
        ("results", [results, f"{m.results_held:,} of {m.results_capacity:,}", "wait for the reader"]),
        (
            "reader",
            [f"{m.results_rate:>9,.1f}/s", f"{m.results:>11,} results", "SLOW" if m.slow else "fast"],
        ),
    ]
    lines = [*(f"  {part}" for part in wrap(f"{m.elapsed:5.1f} s  {m.phase}", width - 2)), ""]
    below = [f"  {part}" for part in wrap(printable(m.limit), width - 2)] if m.limit else [""]
    for label, pieces in rows:
        # What does not fit beside the figures is shortened, or left out.
        short = [piece.partition(":")[0] for piece in pieces]
        shown = next((p for p in (pieces, short) if len(row(label, p, width, indent=10)) == 1), pieces[:2])
        lines.append(row(label, shown, width, indent=10)[0])
    return [*lines, "", *below]


def line(m: Moment, width: int = _ANY) -> str:
    """Write a moment in one line, in full if it fits."""
    pace = "slow" if m.slow else "fast"
    blocked = " BLOCKED" if m.blocked else ""
    full = (
        f"{m.elapsed:5.1f} s  sensors {m.sent_rate:>7,.0f}/s{blocked}  "
        f"journal {m.held:>6,}/{m.capacity:,}  "
        f"Spark {m.taken_rate:>7,.0f}/s, batch {m.batch} {m.batch_seconds:.2f} s  "
        f"results {m.results_held:>2}/{m.results_capacity}  reader {pace}, {m.results_rate:,.1f}/s"
    )
    short = (
        f"{m.elapsed:5.1f} s {m.sent_rate:>6,.0f}/s{blocked} ▸ {m.held:,} ▸ {m.taken_rate:,.0f}/s ▸ {pace}"
    )
    return full if columns(full) <= width else fit(short, width)
