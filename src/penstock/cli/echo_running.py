"""The echo server at the command line."""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

from penstock.cli.complaints import Complaint, LogOnScreen
from penstock.cli.interruption import Interruption
from penstock.cli.outputs import say
from penstock.net import BadCertificate, BindFailed, TcpServer, WiretapFormat
from penstock.net.self_signed import SelfSigned

__all__ = ["run_echo"]


def run_echo(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes; returns the exit code."""
    with (
        Interruption() as interruption,
        tempfile.TemporaryDirectory(prefix="penstock-echo-") as folder,
        LogOnScreen(say, logging.INFO, "penstock.net"),
    ):
        try:
            server = _configured(arguments, Path(folder)).bind_now()
        except (BindFailed, BadCertificate) as error:
            raise Complaint(str(error), 1) from None
        except ValueError as error:
            raise Complaint(str(error)) from None
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
    server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
    if arguments.unix is not None:
        server = server.unix(arguments.unix)
    else:
        default = 8443 if _secure(arguments) else 8080
        server = server.host(arguments.host).port(default if arguments.port is None else arguments.port)
    if arguments.certificate is not None:
        server = server.secure(certificate=arguments.certificate, key=arguments.key)
    elif arguments.secure:
        made = SelfSigned.make("localhost", arguments.host)
        certificate, key = made.save(folder)
        say(f"self-signed certificate, SHA-256 {made.fingerprint}")
        server = server.secure(certificate=certificate, key=key)
    elif arguments.key is not None:
        raise Complaint("--key belongs to a --certificate, and there is none")
    if arguments.wiretap is not None:
        server = server.wiretap(WiretapFormat(arguments.wiretap), level=logging.INFO)
    if arguments.max_connections is not None:
        server = server.max_connections(arguments.max_connections)
    if arguments.idle is not None:
        server = server.idle_timeout(arguments.idle)
    return server


def _secure(arguments: argparse.Namespace) -> bool:
    return arguments.secure or arguments.certificate is not None
