"""``penstock echo``: a TCP server that sends back what it receives."""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.errors import CommandError, ScreenLog, report_errors
from penstock.cli.parser import Commands
from penstock.cli.quantities import a_count, a_duration, a_port
from penstock.cli.screen import say
from penstock.cli.signals import Interruption

if TYPE_CHECKING:
    from penstock.net import TcpServer

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
    return report_errors("echo", lambda: _serve(arguments))


def _serve(arguments: argparse.Namespace) -> int:
    from penstock.net import BadCertificate, BindFailed

    with (
        Interruption() as interruption,
        tempfile.TemporaryDirectory(prefix="penstock-echo-") as folder,
        ScreenLog(say, logging.INFO, "penstock.net"),
    ):
        try:
            server = _configured(arguments, Path(folder)).bind_now()
        except (BindFailed, BadCertificate) as error:
            raise CommandError(str(error), 1) from None
        except ValueError as error:
            raise CommandError(str(error)) from None
        with server:
            say(f"echo at {server.where}{', with TLS' if _secure(arguments) else ''}; Ctrl-C ends it")
            while not interruption.wait(3600):
                continue
            closed = server.close_now(arguments.grace)
        say(
            f"{server.metrics.connections_total:,} connections; {closed.finished} were brought to an end and "
            f"{len(closed.aborted)} cut off"
        )
        return interruption.exit_code


def _configured(arguments: argparse.Namespace, folder: Path) -> TcpServer:
    from penstock.net import TcpServer, WiretapFormat

    server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
    if arguments.unix is not None:
        server = server.unix(arguments.unix)
    else:
        default = 8443 if _secure(arguments) else 8080
        server = server.host(arguments.host).port(default if arguments.port is None else arguments.port)
    if arguments.certificate is not None:
        server = server.secure(certificate=arguments.certificate, key=arguments.key)
    elif arguments.secure:
        from penstock.net import SelfSigned

        made = SelfSigned.make("localhost", arguments.host)
        certificate, key = made.save(folder)
        say(f"self-signed certificate, SHA-256 {made.fingerprint}")
        server = server.secure(certificate=certificate, key=key)
    elif arguments.key is not None:
        raise CommandError("--key belongs to a --certificate, and there is none")
    if arguments.wiretap is not None:
        server = server.wiretap(WiretapFormat(arguments.wiretap), level=logging.INFO)
    if arguments.max_connections is not None:
        server = server.max_connections(arguments.max_connections)
    if arguments.idle is not None:
        server = server.idle_timeout(arguments.idle)
    return server


def _secure(arguments: argparse.Namespace) -> bool:
    return arguments.secure or arguments.certificate is not None
