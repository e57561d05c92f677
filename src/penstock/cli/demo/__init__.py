"""``penstock demo``: the whole way of the data, live, in about a minute."""

from __future__ import annotations

import argparse

from penstock.cli.errors import CommandError, report_errors
from penstock.cli.parser import Commands
from penstock.cli.quantities import a_count, a_duration

__all__ = ["add_parser", "run"]

_EXAMPLES = """\
examples:
  penstock demo                        source, gateway, Spark, gateway, reader: about a minute
  penstock demo --duration 120         longer
  penstock demo --records 500000       until so many records have been sent
  penstock demo --start-limit 10m      for a machine that has much else to do
  penstock demo --headless             a line every few seconds instead of a picture
  penstock demo --only-streams         ten seconds, without Spark: one process, a queue and its demand
"""


def add_parser(commands: Commands) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "demo",
        help="the whole way of the data, live: see demand go left when the end is slow",
        description=(
            "A live source, a gateway with a journal, Spark, a gateway for the results and a reader that "
            "slows down in the middle, in processes of their own, all of them real. At the end: was "
            "everything that was sent received?"
        ),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--duration", type=_seconds, metavar="TIME", help="how long to run: 90, 2m (default 40s)"
    )
    parser.add_argument("--records", type=a_count, metavar="N", help="how many records to send at most")
    parser.add_argument(
        "--start-limit",
        type=a_duration,
        default=300.0,
        metavar="TIME",
        help="how long each part may take to start (default 5m): Spark needs a while on a busy machine",
    )
    parser.add_argument("--headless", action="store_true", help="print lines instead of drawing")
    parser.add_argument(
        "--only-streams", action="store_true", help="a source, a queue and a subscriber in one process"
    )
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    if text.strip("0.") and (value := a_duration(text)) >= 1:
        return value
    raise argparse.ArgumentTypeError(f"{text!r}: a run needs at least 1 second; write 90s or 2m")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; 0 if everything that was sent was received."""
    if arguments.only_streams:
        from penstock.cli.demo import streams

        arguments.duration = arguments.duration or 9.0
        return streams.run(arguments)
    return report_errors("demo", lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    try:
        import penstock.spark  # noqa: F401
    except ImportError as error:
        if error.name is not None:
            raise
        text = f"{error}; or see the part that needs nothing else: penstock demo --only-streams"
        raise CommandError(text, 1) from None
    from penstock.cli.demo.director import direct

    return direct(arguments.duration or 40.0, arguments.records, arguments.headless, arguments.start_limit)
