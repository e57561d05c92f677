"""``penstock gateway status``: the log, the subscribers and the rates of a running gateway."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cli.block import Block
from penstock.cli.errors import CommandError
from penstock.cli.gateway.figures import GatewayFigures, Meter
from penstock.cli.gateway.view import block
from penstock.cli.parser import Commands, ConnectionOptions, add_command
from penstock.cli.screen import Screen, was_output_closed
from penstock.cli.table import counted, duration, printable, row, wrap
from penstock.options import option

if TYPE_CHECKING:
    from penstock.aquifer import GatewayStatus

__all__ = ["StatusOptions", "add_parser", "run_status"]

BETWEEN = 1.0
"""Seconds between two requests: a rate is a difference."""
TIMEOUT = 2.0

_EXAMPLES = """\
examples:
  penstock gateway status tcp://127.0.0.1:5556            once: the log, the subscribers, the rates
  penstock gateway status tcp://127.0.0.1:5556 --watch    again every second, until Ctrl-C
  penstock gateway status tcp://127.0.0.1:5556 --json     for a program
  penstock gateway status tcp://HOST:5560 --curve me.key --server-key gateway.pub
"""


@dataclass(frozen=True, kw_only=True)
class StatusOptions(ConnectionOptions):
    """The options of ``penstock gateway status``."""

    watch: bool = option(False, help="ask again every second, until Ctrl-C")
    json: bool = option(False, help="print one JSON object, or with --watch one every second")


def _load() -> tuple[type[StatusOptions], Callable[[StatusOptions], int]]:
    return StatusOptions, run_status


def add_parser(commands: Commands) -> None:
    """Add ``status`` to the commands of ``penstock gateway``."""
    add_command(
        commands,
        "status",
        _load,
        help="show a running gateway: its log, its subscribers, their rates",
        description="Ask a running gateway for its status twice, a second apart, and show it.",
        examples=_EXAMPLES,
    )


def run_status(options: StatusOptions) -> int:
    """Ask and show; 1 if no gateway answers."""
    try:
        return _show(options)
    except KeyboardInterrupt:
        return 130


def _show(options: StatusOptions) -> int:
    from penstock.aquifer import AquiferError

    screen = Screen(sys.stdout, must_be_read=True)
    # Without a terminal the width is unknown, so the lines may be wide.
    width = screen.width if screen.is_terminal else 120
    drawn = Block(screen) if options.watch and screen.is_terminal and not options.json else None
    try:
        for status, figures in _answers(options):
            if options.json:
                print(json.dumps({**status.to_dict(), "rates": _rates(figures)}), flush=True)
            else:
                lines = _lines(options.endpoint, figures, screen.width if drawn is not None else width)
                if drawn is not None:
                    drawn.draw(lines)
                else:
                    screen.write("".join(f"{printable(line)}\n" for line in lines))
            if not options.watch or was_output_closed():
                break
    except (AquiferError, ValueError) as error:
        raise CommandError(str(error), 1 if isinstance(error, AquiferError) else 2) from None
    return 0


def _answers(options: StatusOptions) -> Iterator[tuple[GatewayStatus, GatewayFigures]]:
    from penstock.aquifer import probe

    curve, meter = options.curve_client(), Meter()
    status = probe(options.endpoint, TIMEOUT, curve)
    while True:
        meter.look(status)
        meter.figures(status, status.uptime)
        time.sleep(BETWEEN)
        status = probe(options.endpoint, TIMEOUT, curve)
        meter.look(status)
        # By the gateway's own clock: how long the request took does not matter.
        yield status, meter.figures(status, status.uptime)


def _stream(one: dict[str, Any]) -> str:
    name = " ".join(filter(None, [printable(one["name"]), "(default)" if one["default"] else ""]))
    trouble = f", {printable(one['failure'] or one['stalled'])}" if one["failure"] or one["stalled"] else ""
    return f"{name}: {counted(one['records'], 'record')}, the next at offset {one['head']:,}{trouble}"


def _group(one: dict[str, Any]) -> list[str]:
    """A reader group: who reads which of its partitions."""
    partitions = one["partitions"]
    said = [
        f"{printable(one['name'])}: {counted(len(partitions), 'partition')},",
        f"{counted(len(one['members']), 'member')};",
    ]
    read: set[int] = set()
    for member in one["members"]:
        numbers = ", ".join(map(str, member["partitions"])) or "none"
        said.append(f"{printable(member['name'])} reads {numbers};")
        read.update(member["partitions"])
    left = [str(partition["number"]) for partition in partitions if partition["number"] not in read]
    if left:
        said.append(f"nobody reads {', '.join(left)};")
    said.append(f"up to {max(partition['lag'] for partition in partitions):,} behind")
    return said


def _rates(figures: GatewayFigures) -> dict[str, Any]:
    return {
        "source": round(figures.source_rate, 1),
        "subscribers": [round(reader.rate, 1) for reader in figures.readers],
    }


def _lines(endpoint: str, figures: GatewayFigures, width: int) -> Iterator[str]:
    where = "in a file" if figures.durable else "in memory"
    up = duration(figures.uptime)
    about = [f"up for {up}", f"epoch {figures.epoch}", where, f"codec {printable(figures.codec)}"]
    if figures.compressed is not None:
        about.append(f"compressed to {figures.compressed:.1%}")
    yield from wrap(f"{endpoint}: {', '.join(about)}", width)
    yield from block(figures, width)
    if figures.streams:
        streams = [f"{_stream(one)};" for one in figures.streams]
        yield from row("streams", [*streams[:-1], streams[-1].removesuffix(";")], width)
    for number, one in enumerate(figures.groups):
        yield from row("" if number else "groups", _group(one), width)
    if figures.left_out.get("groups"):
        yield from row("", [f"and {figures.left_out['groups']:,} more groups"], width)
    if figures.counters:
        odd = [f"{name} {count:,}," for name, count in sorted(figures.counters.items())]
        yield from row("counters", [*odd[:-1], odd[-1].rstrip(",")], width)
