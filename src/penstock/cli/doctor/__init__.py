"""``penstock doctor``: what works on this machine, and the command that mends what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.cli.parser import Commands, add_command
from penstock.cli.style import json_option
from penstock.options import option, parse_duration

__all__ = ["DoctorOptions", "add_parser"]

_DESCRIPTION = """\
Try out what Penstock needs on this machine: Python, the extras, Java, Spark with one record from a gateway,
ØMQ with and without keys, ports, file descriptors, the disk of a journal, and the clock. Each line is ok, or
says what is wrong and names the command that mends it.

Nothing is installed or changed; how long Spark took is noted for the next time. What is only missing is told
and is not an error: a machine needs no Spark to run a gateway.
"""

_EXAMPLES = """\
examples:
  penstock doctor                          everything; it says how long Spark took the last time
  penstock doctor --no-spark               the rest, in about a second
  penstock doctor --folder /var/lib/app    with the speed of the disk where a journal is to be
  penstock doctor --json                   for a program

exit codes: 0 what is installed works; 1 something is broken; 2 wrong command line; 130 Ctrl-C
"""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The options of ``penstock doctor``."""

    no_spark: bool = option(False, help="do not start Spark")
    folder: str = option(".", metavar="DIR", help="the folder of a journal, whose disk is measured")
    limit: float = option(
        120.0, parse=parse_duration, metavar="TIME", shown="2m", help="how long everything may take together"
    )
    json: bool = json_option()


def _load() -> tuple[type[DoctorOptions], Callable[[DoctorOptions], int]]:
    from penstock.cli.doctor.examination import run_doctor

    return DoctorOptions, run_doctor


def add_parser(commands: Commands) -> None:
    """Add ``penstock doctor`` to the command line."""
    add_command(
        commands,
        "doctor",
        _load,
        help="find out what works on this machine, and how to mend what does not",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
