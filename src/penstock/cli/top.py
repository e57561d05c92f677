"""``penstock top``: the figures of the dashboard, in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.cli.block import Block
from penstock.cli.errors import CommandError, ExitCode
from penstock.cli.logs import CommandLog, LogOptions
from penstock.cli.parser import Commands, ObservedOptions, add_command, section
from penstock.cli.screen import Screen, was_output_closed
from penstock.cli.signals import Interruption
from penstock.cli.style import Column, Tone, json_option, print_json, table_lines, toned
from penstock.cli.table import bar, duration, printable, wrap
from penstock.options import option, parse_count

if TYPE_CHECKING:
    from penstock.observe import Hop, HopRates, LiveUpdate, Snapshot

__all__ = ["TopOptions", "add_parser", "run_top", "screen_lines"]

_WIDE: Final = 80
"""Columns from which on there is space for every figure."""
_NO_TERMINAL: Final = 120
_MOST_ERRORS: Final = 3

_DESCRIPTION = """\
Show the hops of running gateways in the terminal: how fast records go, how full each hop is, how far each
reader is behind, and which hop limits the flow. Without a terminal it prints a table for each look.
"""

_EXAMPLES = """\
examples:
  penstock top tcp://127.0.0.1:5556             until Ctrl-C
  penstock top tcp://127.0.0.1:5556 --count 2   look twice, which is what a rate takes, and exit
  penstock top tcp://127.0.0.1:5556 --json      one JSON object a line

exit codes: 0 all looks were taken; 1 no gateway answers; 2 wrong command line; 130 Ctrl-C
"""


@dataclass(frozen=True, kw_only=True)
class TopOptions(ObservedOptions):
    """The options of ``penstock top``."""

    count: int | None = option(None, parse=parse_count, metavar="N", help="exit after so many looks")
    json: bool = json_option("print one JSON object for each look")
    log: LogOptions = section(LogOptions, "messages")


def run_top(options: TopOptions) -> int:
    """Look and show; 1 if no gateway answers the first time."""
    from penstock.observe import LiveFigures

    figures = LiveFigures(options.observer().look)
    screen = Screen(sys.stdout, must_be_read=True)
    block = Block(screen) if screen.is_terminal and not options.json else None
    looks = 0
    with Interruption() as interruption, CommandLog(options.log, "top", block.say if block else None):
        while True:
            update = figures.update()
            looks += 1
            if interruption.signal is not None:
                return interruption.exit_code  # It came while a gateway was asked, which may be silent.
            if update.trouble is not None and looks == 1:
                raise CommandError(update.trouble, ExitCode.FAILED)
            if options.json:
                print_json({"event": "look", **update.to_dict()})
            elif block is not None:
                block.draw(screen_lines(update, screen.width, coloured=False))
            else:
                screen.write("".join(f"{line}\n" for line in screen_lines(update, _NO_TERMINAL)) + "\n")
            if looks == options.count or was_output_closed():
                return ExitCode.OK
            if interruption.wait(options.interval):
                return interruption.exit_code


def screen_lines(update: LiveUpdate, width: int, *, coloured: bool = False) -> Iterator[str]:
    """Lay out an update for a screen of ``width`` columns."""
    snapshot = update.snapshot
    if update.trouble is not None:
        said = f"No new figures for {duration(update.trouble_seconds or 0)}: {printable(update.trouble)}"
        yield from (toned(line, Tone.BAD) for line in wrap(said, width))
    yield from _verdict_lines(snapshot, width)
    yield ""
    measured = {each.hop: each for each in update.rates}
    heads = [
        Column("HOP"),
        Column("IN/S", right=True),
        Column("FULL", right=True),
        Column("BEHIND", right=True),
    ]
    if width >= _WIDE:
        heads[2:2] = [Column("OUT/S", right=True)]
        heads += [Column("ASKS", right=True), Column("STATE")]
    rows = [_row(hop, measured.get(hop.id), hop.id in snapshot.limiting, width) for hop in snapshot.hops]
    yield from table_lines(heads, rows, width, coloured=coloured)
    if update.hops_left_out:
        yield f"and {update.hops_left_out:,} more cursors, which lag less"
    for error in snapshot.errors[-_MOST_ERRORS:]:
        yield toned(printable(f"error in {error.hop}: {error.message}"), Tone.BAD)


def _verdict_lines(snapshot: Snapshot, width: int) -> Iterator[str]:
    if snapshot.verdict is None:
        yield from wrap("Looking a second time: a rate takes two looks.", width)
        return
    for verdict in (snapshot.verdict, *snapshot.other_verdicts):
        tone = Tone.LIMIT if verdict.limiting is not None else Tone.GOOD
        yield from (toned(line, tone) for line in wrap(printable(verdict.sentence), width))
        if verdict.advice:
            since = f" So for {duration(verdict.since)}." if verdict.since else ""
            yield from wrap(printable(f"Try: {verdict.advice}.{since}"), width)


def _row(hop: Hop, rates: HopRates | None, limits: bool, width: int) -> list[str]:
    from penstock.observe import level

    full = level(hop)
    called = f"{hop.name} of {hop.stream}" if hop.stream else hop.name
    if hop.kind == "log" and hop.where:
        called = hop.where  # There is one log at an endpoint.
    name = f"{'▶ ' if limits else '  '}{hop.kind} {called}"
    incoming, outgoing = (
        ("-", "-") if rates is None else (f"{rates.records_in:,.0f}", f"{rates.records_out:,.0f}")
    )
    shown = "-" if full is None else f"{full:.0%}"
    if full is not None and width >= _WIDE:
        shown = f"{bar(full, 8)} {full:>4.0%}"
    behind = "-" if hop.lag_records is None else f"{hop.lag_records:,}"
    cells = [toned(name, Tone.LIMIT) if limits else name, incoming, shown, behind]
    if width >= _WIDE:
        cells[2:2] = [outgoing]
        state = "limits the flow" if limits else hop.state
        asks = "-" if hop.demand is None else f"{hop.demand:,}"
        cells += [asks, toned(state, Tone.LIMIT) if limits else state]
    return cells


def _load() -> tuple[type[TopOptions], Callable[[TopOptions], int]]:
    return TopOptions, run_top


def add_parser(commands: Commands) -> None:
    """Add ``penstock top`` to the command line."""
    add_command(
        commands,
        "top",
        _load,
        help="show running gateways in the terminal: who holds whom up",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
