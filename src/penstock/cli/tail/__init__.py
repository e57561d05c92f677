"""``penstock tail``: print the records of a gateway as they come."""

from __future__ import annotations

import argparse

from penstock.cli.connection import CODECS, add_connection
from penstock.cli.errors import report_errors
from penstock.cli.parser import Commands
from penstock.cli.quantities import a_count, a_duration, a_rate

__all__ = ["add_parser", "run"]

_DESCRIPTION = """\
Print the records of a gateway, from the oldest that is still there, and go on until the stream ends.

A slow reader of the output slows this subscriber down, and if it has to be kept, in the end the gateway's
source: nothing is lost. --best-effort asks not to be kept: it skips what the gateway no longer has.
With --id the gateway remembers what was printed, and the next `tail` with that id goes on behind it.
"""

_EXAMPLES = """\
examples:
  penstock tail tcp://127.0.0.1:5556                        everything, then what comes
  penstock tail tcp://127.0.0.1:5556 --from latest          only what comes from now on
  penstock tail tcp://127.0.0.1:5556 --from 1000 --to 2000  the records 1000 to 1999
  penstock tail tcp://127.0.0.1:5556 --id nightly --count 100
                                                            the next hundred that `nightly` has not seen
  penstock tail tcp://127.0.0.1:5556 --rate 10/s            slowly; the gateway is told to send no faster
  penstock tail tcp://127.0.0.1:5556 --format json | jq .value
                                                            with offset, time and key
  penstock tail tcp://HOST:5560 --curve me.key --server-key gateway.pub

exit codes: 0 the stream ended, --count was reached, or nobody reads the output any more; 1 something failed;
2 wrong command line; 130 Ctrl-C
"""


def add_parser(commands: Commands) -> None:
    """Add ``penstock tail`` to the command line."""
    parser = commands.add_parser(
        "tail",
        help="print the records of a gateway as they come",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_connection(parser)
    parser.add_argument(
        "--from",
        dest="start",
        type=_start,
        metavar="WHERE",
        help="earliest, latest, or an offset (default: earliest, or with --id where it left off)",
    )
    parser.add_argument("--to", dest="stop", type=_offset, metavar="N", help="end before this offset")
    parser.add_argument("--id", metavar="NAME", help="a name under which the gateway remembers the place")
    parser.add_argument(
        "--lease", type=a_duration, default=60.0, metavar="TIME", help="how long it does so (default 60s)"
    )
    parser.add_argument("--count", type=a_count, metavar="N", help="end after so many records")
    parser.add_argument("--rate", type=a_rate, metavar="N/s", help="ask for no more than so many per second")
    parser.add_argument(
        "--format",
        choices=("raw", "json"),
        default="raw",
        help="raw: the value and a newline (default); json: an object with offset, timestamp, key and value",
    )
    parser.add_argument(
        "--codec",
        choices=CODECS,
        help="what the values are; msgpack is printed as JSON (default: what the gateway says they are)",
    )
    parser.add_argument(
        "--best-effort", action="store_true", help="rather miss records than hold the source up"
    )
    parser.add_argument(
        "--dialect",
        choices=("auto", "extended", "plain"),
        default="auto",
        help="how to talk to the gateway (default: auto; plain is that of the document, without offsets)",
    )
    parser.add_argument(
        "--patience",
        type=a_duration,
        default=30.0,
        metavar="TIME",
        help="how long to look for a gateway that is not there (default 30s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print until the end."""

    def print_all() -> int:
        from penstock.cli.tail.printer import run_tail

        return run_tail(arguments)

    return report_errors("tail", print_all)


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no offset; those are 0, 1, 2, …")
    return int(text)


def _start(text: str) -> int | str:
    if text in ("earliest", "latest"):
        return text
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r}: write earliest, latest or an offset")
    return int(text)
