"""What every command needs that connects to a gateway: its endpoint, and keys if it has an encrypted one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from penstock.cli.errors import CommandError

if TYPE_CHECKING:
    from penstock.aquifer import CurveClient

__all__ = ["CODECS", "add_connection", "curve_client"]

CODECS = ("bytes", "text", "json", "msgpack")
"""What a value can be, at the command line."""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("endpoint", metavar="ENDPOINT", help="where the gateway is, tcp://HOST:PORT")
    parser.add_argument("--curve", metavar="KEYFILE", help="your own keys, for an encrypted connection")
    parser.add_argument(
        "--server-key", metavar="KEY", help="the gateway's public key: its .pub file, or the 40 characters"
    )


def curve_client(arguments: argparse.Namespace) -> CurveClient | None:
    """The keys that were given, or None; a CommandError if they cannot be used."""
    if arguments.curve is None and arguments.server_key is None:
        return None
    if arguments.curve is None or arguments.server_key is None:
        raise CommandError("--curve and --server-key go together: your own keys and the gateway's public key")
    from penstock.aquifer.security import CurveClient, load_keys, load_public

    try:
        return CurveClient(load_keys(arguments.curve), load_public(arguments.server_key))
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None
