"""``penstock demo``: the whole path of the data, live, in about a minute."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cli.parser import Commands, add_command

if TYPE_CHECKING:
    from penstock.cli.demo.command import DemoOptions

__all__ = ["add_parser"]

_DESCRIPTION = """\
Run a live source, a gateway with a journal, Spark, a gateway for the results, and a reader that slows down in
the middle. Each is a real process of its own. At the end the demo compares what was sent with what was
received, and draws rates and levels over time, with the slow phase shaded.
"""

_EXAMPLES = """\
examples:
  penstock demo                        source, gateway, Spark, gateway, reader: about a minute
  penstock demo --duration 120         longer
  penstock demo --records 500000       until 500,000 records have been sent
  penstock demo --start-limit 10m      for a busy machine
  penstock demo --picture run.svg      another file for the picture of the run
  penstock demo --dashboard 127.0.0.1:5580
                                       the page, which is always there, at this address
  penstock demo --headless             a line every few seconds instead of a picture
  penstock demo --only-streams         ten seconds, without Spark: one process, a queue and its demand
"""


def _load() -> tuple[type[DemoOptions], Callable[[DemoOptions], int]]:
    from penstock.cli.demo.command import DemoOptions, run_demo

    return DemoOptions, run_demo


def add_parser(commands: Commands) -> None:
    """Add ``penstock demo`` to the command line."""
    add_command(
        commands,
        "demo",
        _load,
        help="watch the whole path of the data, live: demand goes left when the end is slow",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
