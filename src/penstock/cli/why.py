"""``penstock why``: which hop limits the flow, since when, what that costs, and what to try."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.errors import CommandError, ExitCode
from penstock.cli.logs import CommandLog, LogOptions
from penstock.cli.parser import Commands, ConnectionOptions, add_command, section
from penstock.cli.screen import Screen, was_output_closed
from penstock.cli.table import printable
from penstock.options import option, parse_duration

if TYPE_CHECKING:
    from penstock.observe import RecentError, Snapshot, Verdict

__all__ = ["WhyOptions", "add_parser", "run_why"]

_EXAMPLES = """\
examples:
  penstock why tcp://127.0.0.1:5556            which hop limits the flow through this gateway?
  penstock why 4711                            … through the streams of a process (PENSTOCK_OBSERVE=1)
  penstock why tcp://127.0.0.1:5556 --watch    again every two seconds, until Ctrl-C
  penstock why tcp://127.0.0.1:5556 --json     the whole snapshot, for a program

exit codes:
  0  nobody limits the flow: the source is slower, idle, or has ended
  3  a hop limits the flow
  1  no gateway answers, or the process does not show its streams
  2  the command line is wrong
"""


@dataclass(frozen=True, kw_only=True)
class WhyOptions(ConnectionOptions):
    """The options of ``penstock why``."""

    endpoint: str = option(
        positional=True,
        metavar="ENDPOINT",
        help="the gateway, as tcp://HOST:PORT or tcp://HOST:PORT/STREAM, or the number of a process",
    )
    within: float = option(
        2.0, help="how long to look before the answer", metavar="SECONDS", parse=parse_duration, shown="2s"
    )
    watch: bool = option(False, help="say it again and again, until Ctrl-C")
    json: bool = option(False, help="print the snapshot with its verdict as one JSON object")
    log: LogOptions = section(LogOptions, "messages")


def _load() -> tuple[type[WhyOptions], Callable[[WhyOptions], int]]:
    return WhyOptions, run_why


def add_parser(commands: Commands) -> None:
    """Add ``why`` to the commands of ``penstock``."""
    add_command(
        commands,
        "why",
        _load,
        help="say which hop limits the flow, since when, and what to try",
        description="Look at a gateway, its readers and writers, the Spark queries among them and the "
        "gateways these write to; or, given the number of a process, at its streams. Say who holds whom up.",
        examples=_EXAMPLES,
    )


def run_why(options: WhyOptions) -> int:
    """Look and say; 0 if nobody limits the flow, 3 if a hop does, 1 if nothing can be seen."""
    try:
        with CommandLog(options.log, "why"):
            return _say(options)
    except KeyboardInterrupt:
        return 130


def _say(options: WhyOptions) -> int:
    from penstock.aquifer import AquiferError
    from penstock.observe import NotPublished

    screen = Screen(sys.stdout, must_be_read=True)
    code = ExitCode.OK
    try:
        for snapshot, verdict in _verdicts(options):
            if options.json:
                print(snapshot.to_json(), flush=True)
            else:
                verdicts = (verdict, *snapshot.other_verdicts)
                for each in verdicts:
                    screen.write(f"{printable(each.sentence)}\n")
                    if each.advice:
                        screen.write(f"Try: {each.advice}.\n")
                for error in snapshot.errors:
                    if any(_tells(each, error) for each in verdicts):
                        continue
                    screen.write(f"{printable(f'Error in {error.hop}: {error.message}')}\n")
            code = ExitCode.OK if verdict.limiting is None else ExitCode.LIMITED
            if not options.watch or was_output_closed():
                break
    except (AquiferError, NotPublished) as error:
        raise CommandError(str(error), 1) from None
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    return code


def _tells(verdict: Verdict, error: RecentError) -> bool:
    """Whether a verdict has said this error already: that a source is down, and why."""
    of_source, _, reason = error.message.partition(": ")
    return of_source == "the source is down" and verdict.limiting is not None and reason in verdict.sentence


def _verdicts(options: WhyOptions) -> Iterator[tuple[Snapshot, Verdict]]:
    from penstock.observe import Observer

    with Observer(options.endpoint, curve=options.curve_client()) as observer:
        observer.look()
        while True:
            time.sleep(options.within)
            snapshot = observer.look()
            if snapshot.verdict is not None:
                yield snapshot, snapshot.verdict
