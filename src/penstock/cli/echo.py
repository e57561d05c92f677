"""``penstock echo``: a TCP server that sends back what it receives."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.errors import CommandError
from penstock.cli.logs import CommandLog, LogOptions, is_json, tell
from penstock.cli.parser import Commands, add_command, section
from penstock.cli.screen import say
from penstock.cli.signals import Interruption
from penstock.cli.style import json_option, print_json
from penstock.cli.table import counted
from penstock.options import option, parse_count, parse_duration, parse_port

if TYPE_CHECKING:
    from penstock.net import TcpServer

__all__ = ["EchoOptions", "add_parser", "run_echo"]

_DESCRIPTION = """\
Send back whatever a client sends, until it closes its side.

If a client stops reading, the server stops reading from it, so a client costs a few hundred kilobytes at
most. On Ctrl-C and SIGTERM, what was received is still sent back, for as long as --grace allows.
"""

_EXAMPLES = """\
examples:
  penstock echo --port 8080                      then: nc 127.0.0.1 8080
  penstock echo --port 8443 --secure             TLS with a self-signed certificate
  penstock echo --port 8443 --certificate server.pem --key server.key
  penstock echo --port 8080 --wiretap            log every byte; --wiretap sizes only logs how many
  penstock echo --unix /tmp/echo.sock

exit codes: 0 SIGTERM; 1 something failed; 2 wrong command line; 130 Ctrl-C
"""


@dataclass(frozen=True, kw_only=True)
class EchoOptions:
    """The options of ``penstock echo``."""

    host: str = option("127.0.0.1", help="the address to listen on")
    port: int | None = option(
        None,
        parse=parse_port,
        metavar="N",
        shown="8080, with TLS 8443",
        help="the port to listen on; 0 is any free port",
    )
    unix: str | None = option(None, metavar="PATH", help="listen on a Unix socket instead")
    secure: bool = option(False, help="use TLS, with a self-signed certificate if none is given")
    certificate: str | None = option(None, metavar="PEM", help="the certificate, which may contain its key")
    key: str | None = option(None, metavar="PEM", help="the key of the certificate")
    wiretap: str | None = option(
        None,
        bare="hex",
        choices=("hex", "text", "sizes"),
        help="log what goes over the wire",
    )
    max_connections: int | None = option(
        None, parse=parse_count, metavar="N", help="disconnect clients beyond the first N"
    )
    idle: float | None = option(
        None, parse=parse_duration, metavar="TIME", help="close connections on which nothing moves"
    )
    json: bool = json_option("print one JSON object in a line when it listens, and one at the end")
    grace: float = option(
        3.0,
        parse=parse_duration,
        metavar="TIME",
        shown="3s",
        help="how long to keep sending after a signal",
    )
    log: LogOptions = section(LogOptions, "messages")

    @property
    def uses_tls(self) -> bool:
        """Whether the connections are encrypted."""
        return self.secure or self.certificate is not None


def _load() -> tuple[type[EchoOptions], Callable[[EchoOptions], int]]:
    return EchoOptions, run_echo


def add_parser(commands: Commands) -> None:
    """Add ``penstock echo`` to the command line."""
    add_command(
        commands,
        "echo",
        _load,
        help="run a TCP server that sends back what it receives",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )


def run_echo(options: EchoOptions) -> int:
    """Serve until a signal comes."""
    from penstock.net import BadCertificate, BindFailed

    with (
        Interruption() as interruption,
        tempfile.TemporaryDirectory(prefix="penstock-echo-") as folder,
        CommandLog(options.log, "echo", say, level=logging.INFO, layer="penstock.net"),
    ):
        try:
            server = _configured(options, Path(folder)).bind_now()
        except (BindFailed, BadCertificate) as error:
            raise CommandError(str(error), 1) from None
        except ValueError as error:
            raise CommandError(str(error)) from None
        with server:
            if options.json:
                print_json({"event": "listening", "address": server.where, "tls": options.uses_tls})
            else:
                _tell(f"echo at {server.where}{', with TLS' if options.uses_tls else ''}; Ctrl-C ends it")
            while not interruption.wait(3600):
                continue
            closed = server.close_now(options.grace)
        if options.json:
            facts = {"connections": server.metrics.connections_total, "finished": closed.finished}
            print_json({"event": "end", **facts, "aborted": len(closed.aborted)})
            return interruption.exit_code
        at_the_end = "none was open at the end"
        if closed.finished or closed.aborted:
            at_the_end = (
                f"of those that were open at the end, {closed.finished} finished and "
                f"{len(closed.aborted)} were aborted"
            )
        _tell(f"{counted(server.metrics.connections_total, 'connection')}; {at_the_end}")
        return interruption.exit_code


def _tell(text: str) -> None:
    if is_json():
        tell("echo", text)
    else:
        say(text)


def _configured(options: EchoOptions, folder: Path) -> TcpServer:
    from penstock.net import TcpServer, WiretapFormat

    server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
    if options.unix is not None:
        server = server.unix(options.unix)
    else:
        default = 8443 if options.uses_tls else 8080
        server = server.host(options.host).port(default if options.port is None else options.port)
    if options.certificate is not None:
        server = server.secure(certificate=options.certificate, key=options.key)
    elif options.secure:
        from penstock.net import SelfSigned

        made = SelfSigned.make("localhost", options.host)
        certificate, key = made.save(folder)
        _tell(f"self-signed certificate, SHA-256 {made.fingerprint}")
        server = server.secure(certificate=certificate, key=key)
    elif options.key is not None:
        raise CommandError("--key belongs to a --certificate, and none was given")
    if options.wiretap is not None:
        server = server.wiretap(WiretapFormat(options.wiretap), level=logging.INFO)
    if options.max_connections is not None:
        server = server.max_connections(options.max_connections)
    if options.idle is not None:
        server = server.idle_timeout(options.idle)
    return server
