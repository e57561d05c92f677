"""``penstock send``: a file, or standard input, to a TCP server."""

from __future__ import annotations

import argparse

from penstock.cli.errors import report_errors
from penstock.cli.parser import Commands
from penstock.cli.quantities import a_duration

__all__ = ["add_parser", "run"]

_DESCRIPTION = """\
Send a file to a server, as fast as the server reads it and no faster.

With --acknowledged the server is a gateway that says how many lines are safe (penstock gateway --source
'tcp-listen://HOST:PORT?acknowledge'). Sending begins where the gateway's journal ends and is over when every
line is in it; if the connection or the gateway is lost, it is found again. Kill either and start it again:
every line arrives once.
"""

_EXAMPLES = """\
examples:
  penstock send access.log tcp://127.0.0.1:9000
  journalctl -f | penstock send - tcp://127.0.0.1:9000
  penstock send --acknowledged readings.txt tcp://127.0.0.1:9000
  penstock send big.bin tcp://example.org:9443 --tls --trust authority.pem
  penstock send big.bin unix:/tmp/echo.sock

exit codes: 0 everything was taken; 1 something failed; 2 wrong command line; 130 Ctrl-C
"""


def add_parser(commands: Commands) -> None:
    """Add ``penstock send`` to the command line."""
    parser = commands.add_parser(
        "send",
        help="send a file to a TCP server, as fast as it reads",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="the file, or - for standard input")
    parser.add_argument("address", metavar="ADDRESS", help="tcp://HOST:PORT or unix:PATH")
    parser.add_argument(
        "--acknowledged", action="store_true", help="lines to a gateway that says which of them are safe"
    )
    parser.add_argument(
        "--patience",
        type=a_duration,
        default=30.0,
        metavar="TIME",
        help="with --acknowledged: how long to look for a gateway that is gone (default 30s)",
    )
    parser.add_argument("--tls", action="store_true", help="speak TLS")
    parser.add_argument("--trust", metavar="PEM", help="the authority that signed the server's certificate")
    parser.add_argument("--quiet", action="store_true", help="say nothing unless something fails")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Send everything."""

    def send() -> int:
        from penstock.cli.send.sender import run_send

        return run_send(arguments)

    return report_errors("send", send)
