"""The options of every command that connects to a gateway: where it is, and the keys if it is encrypted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.errors import CommandError
from penstock.options import option

if TYPE_CHECKING:
    from penstock.aquifer import CurveClient

__all__ = ["ConnectionOptions"]


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """How to reach a gateway; the options of a command inherit from it."""

    endpoint: str = option(positional=True, metavar="ENDPOINT", help="the gateway, as tcp://HOST:PORT")
    curve: str | None = option(
        None, metavar="KEYFILE", help="your own .key file, for an encrypted connection"
    )
    server_key: str | None = option(
        None, metavar="KEY", help="the gateway's public key: its .pub file, or the 40 characters"
    )

    def curve_client(self) -> CurveClient | None:
        """Load the keys that were given; None if none were, CommandError if they cannot be used."""
        if self.curve is None and self.server_key is None:
            return None
        if self.curve is None or self.server_key is None:
            raise CommandError(
                "--curve and --server-key go together: your own keys and the gateway's public key"
            )
        from penstock.aquifer import CurveClient, load_keys, load_public

        try:
            return CurveClient(load_keys(self.curve), load_public(self.server_key))
        except (OSError, ValueError) as error:
            raise CommandError(str(error)) from None
