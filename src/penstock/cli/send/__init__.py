"""``penstock send``: send a file, or standard input, to a TCP server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.cli.logs import LogOptions
from penstock.cli.parser import Commands, add_command, section
from penstock.cli.style import json_option
from penstock.options import option, parse_duration

__all__ = ["SendOptions", "add_parser"]

_DESCRIPTION = """\
Send a file to a server, as fast as the server reads it.

With --acknowledged the server is a gateway that says how many lines are in its journal (penstock gateway
--source 'tcp-listen://HOST:PORT?acknowledge'). Sending starts where the journal ends, and is done when the
journal has every line; if the connection is lost, the command reconnects. Kill either side and start it
again: every line arrives exactly once.
"""

_EXAMPLES = """\
examples:
  penstock send access.log tcp://127.0.0.1:9000
  journalctl -f | penstock send - tcp://127.0.0.1:9000
  penstock send --acknowledged readings.txt tcp://127.0.0.1:9000
  penstock send big.bin tcp://example.org:9443 --tls --trust authority.pem
  penstock send big.bin unix:/tmp/echo.sock

exit codes: 0 everything was sent; 1 something failed; 2 wrong command line; 130 Ctrl-C
"""


@dataclass(frozen=True, kw_only=True)
class SendOptions:
    """The options of ``penstock send``."""

    file: str = option(positional=True, metavar="FILE", help="the file, or - for standard input")
    address: str = option(positional=True, metavar="ADDRESS", help="tcp://HOST:PORT or unix:PATH")
    acknowledged: bool = option(False, help="send lines to a gateway that says how many are in its journal")
    patience: float = option(
        30.0,
        parse=parse_duration,
        metavar="TIME",
        shown="30s",
        help="with --acknowledged: how long to look for a gateway that does not answer",
    )
    tls: bool = option(False, help="use TLS")
    trust: str | None = option(None, metavar="PEM", help="the authority that signed the server's certificate")
    quiet: bool = option(False, help="print nothing unless something fails")
    json: bool = json_option("print one JSON object about what was sent")
    log: LogOptions = section(LogOptions, "messages")


def _load() -> tuple[type[SendOptions], Callable[[SendOptions], int]]:
    from penstock.cli.send.sender import run_send

    return SendOptions, run_send


def add_parser(commands: Commands) -> None:
    """Add ``penstock send`` to the command line."""
    add_command(
        commands,
        "send",
        _load,
        help="send a file to a TCP server, as fast as the server reads",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
