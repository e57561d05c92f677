"""``penstock echo``: a TCP server that sends back what it receives."""

from __future__ import annotations

import argparse

from penstock.cli.commands import Commands
from penstock.cli.complaints import complaining
from penstock.cli.quantities import a_count, a_duration, a_port

__all__ = ["add_parser", "run"]

_DESCRIPTION = """\
Serve an echo: whatever a client sends is sent back to it, until it ends its side.

The bytes go from the socket to itself; a client that sends and does not read is not read from either, so it
costs a few hundred kilobytes and no more. On Ctrl-C and SIGTERM what was received is still sent back, for as
long as --grace allows.
"""

_EXAMPLES = """\
examples:
  penstock echo --port 8080                      then: nc 127.0.0.1 8080
  penstock echo --port 8443 --secure             TLS with a certificate made for the occasion
  penstock echo --port 8443 --certificate server.pem --key server.key
  penstock echo --port 8080 --wiretap            every byte in the log; --wiretap sizes shows only how many
  penstock echo --unix /tmp/echo.sock

exit codes: 0 SIGTERM; 1 something failed; 2 wrong command line; 130 Ctrl-C
"""


def add_parser(commands: Commands) -> None:
    """Add ``penstock echo`` to the command line."""
    parser = commands.add_parser(
        "echo",
        help="a TCP server that sends back what it receives",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default 127.0.0.1)")
    parser.add_argument(
        "--port", type=a_port, metavar="N", help="the port (default 8080, with TLS 8443; 0: any free one)"
    )
    parser.add_argument("--unix", metavar="PATH", help="a Unix socket in place of host and port")
    parser.add_argument(
        "--secure", action="store_true", help="speak TLS, with a self-signed certificate if none is given"
    )
    parser.add_argument("--certificate", metavar="PEM", help="the certificate, and perhaps its key")
    parser.add_argument("--key", metavar="PEM", help="the key of the certificate")
    parser.add_argument(
        "--wiretap",
        nargs="?",
        const="hex",
        choices=("hex", "text", "sizes"),
        help="log what goes over the wire",
    )
    parser.add_argument("--max-connections", type=a_count, metavar="N", help="cut off whoever comes beyond N")
    parser.add_argument("--idle", type=a_duration, metavar="TIME", help="close what nothing moves on")
    parser.add_argument(
        "--grace",
        type=a_duration,
        default=3.0,
        metavar="TIME",
        help="for what is under way at the end (default 3s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""

    def serve() -> int:
        from penstock.cli.echo_running import run_echo

        return run_echo(arguments)

    return complaining("echo", serve)
