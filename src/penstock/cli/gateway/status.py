"""``penstock gateway status``: how a running gateway is, from anywhere that can reach it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from penstock.cli.connection import add_connection, curve_client
from penstock.cli.errors import CommandError, report_errors
from penstock.cli.gateway.figures import Figures, Meter
from penstock.cli.gateway.view import block
from penstock.cli.parser import Commands
from penstock.cli.quantities import duration
from penstock.cli.screen import Screen
from penstock.cli.table import Block, printable, row, wrap

__all__ = ["add_parser", "run"]

BETWEEN = 1.0
"""Seconds between two questions: rates are differences."""
TIMEOUT = 2.0

_EXAMPLES = """\
examples:
  penstock gateway status tcp://127.0.0.1:5556            once: the log, the subscribers, the rates
  penstock gateway status tcp://127.0.0.1:5556 --watch    again every second, until Ctrl-C
  penstock gateway status tcp://127.0.0.1:5556 --json     for a program
  penstock gateway status tcp://HOST:5560 --curve me.key --server-key gateway.pub
"""


def add_parser(commands: Commands) -> None:
    """Add ``status`` to the commands of ``penstock gateway``."""
    parser = commands.add_parser(
        "status",
        help="how a running gateway is: its log, its subscribers, their rates",
        description="Ask a running gateway, twice with a second between, and show what it says.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_connection(parser)
    parser.add_argument("--watch", action="store_true", help="ask again every second")
    parser.add_argument("--json", action="store_true", help="print one JSON object, or with --watch many")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ask and show; 1 if no gateway answers."""
    try:
        return report_errors("gateway status", lambda: _run(arguments))
    except KeyboardInterrupt:
        return 130


def _run(arguments: argparse.Namespace) -> int:
    from penstock.aquifer import AquiferError

    screen = Screen(sys.stdout, must_be_read=True)
    # Where nothing is drawn over, and nobody knows how wide it is: as wide as it needs to be.
    width = screen.width if screen.is_terminal else 120
    drawn = Block(screen) if arguments.watch and screen.is_terminal and not arguments.json else None
    try:
        for status, figures in _answers(arguments):
            if arguments.json:
                print(json.dumps({**status, "rates": _rates(figures)}), flush=True)
            else:
                lines = _lines(arguments.endpoint, figures, screen.width if drawn is not None else width)
                if drawn is not None:
                    drawn.draw(lines)
                else:
                    screen.write("".join(f"{line}\n" for line in lines))
            if not arguments.watch:
                break
    except (AquiferError, ValueError) as error:
        raise CommandError(str(error), 1 if isinstance(error, AquiferError) else 2) from None
    return 0


def _answers(arguments: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Figures]]:
    from penstock.aquifer import probe

    curve, meter = curve_client(arguments), Meter()
    status = probe(arguments.endpoint, TIMEOUT, curve)
    while True:
        meter.look(status)
        meter.figures(status, status["uptime"])
        time.sleep(BETWEEN)
        status = probe(arguments.endpoint, TIMEOUT, curve)
        meter.look(status)
        # The gateway's own clock: how long the questions took is none of its doing.
        yield status, meter.figures(status, status["uptime"])


def _rates(figures: Figures) -> dict[str, Any]:
    return {
        "source": round(figures.source_rate, 1),
        "subscribers": [round(reader.rate, 1) for reader in figures.readers],
    }


def _lines(endpoint: str, figures: Figures, width: int) -> Iterator[str]:
    kept = "kept in a file" if figures.durable else "in memory"
    up = duration(figures.uptime)
    yield from wrap(
        f"{endpoint}: up for {up}, epoch {figures.epoch}, {kept}, codec {printable(figures.codec)}", width
    )
    yield from block(figures, width)
    if figures.counters:
        odd = [f"{name} {count:,}," for name, count in sorted(figures.counters.items())]
        yield from row("counters", [*odd[:-1], odd[-1].rstrip(",")], width)
