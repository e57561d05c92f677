"""Where a dashboard listens and who may see it, as options of a command and of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.endpoint import Endpoint
from penstock.observe.dashboard.access import check_certificate, read_token
from penstock.options import option

__all__ = ["DEFAULT_ADDRESS", "DashboardOptions"]

DEFAULT_ADDRESS: Final = "127.0.0.1:5580"


@dataclass(frozen=True, kw_only=True)
class DashboardOptions:
    """Where a dashboard listens and who may see it; an option that cannot be used is a ValueError."""

    listen: str | None = option(
        None,
        flag="--dashboard",
        bare=DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        help=f"show the pipeline on a page at this address; without one, at {DEFAULT_ADDRESS}",
    )
    token_file: str | None = option(
        None,
        flag="--dashboard-token",
        metavar="FILE",
        help="a file with the token that visitors need; required off loopback",
    )
    names: tuple[str, ...] = option(
        (),
        flag="--dashboard-name",
        repeated=True,
        metavar="NAME",
        help="another host name that the page is reached by, through a proxy for instance; can be repeated",
    )
    tls_cert: str | None = option(None, metavar="FILE", help="serve the page with this certificate, over TLS")
    tls_key: str | None = option(None, metavar="FILE", help="the key of the certificate")

    def __post_init__(self) -> None:
        if self.listen is not None:
            self.endpoint()
        check_certificate(self.tls_cert, self.tls_key)

    def endpoint(self) -> Endpoint:
        """The address to listen at."""
        text = self.listen if self.listen is not None else DEFAULT_ADDRESS
        # A port alone is enough: nobody means another machine by it.
        place = f"127.0.0.1:{text}" if text.isdigit() else text
        try:
            return Endpoint.parse(f"tcp://{place}")
        except ValueError:
            raise ValueError(
                f"{text!r} is not an address for a dashboard; write HOST:PORT, such as {DEFAULT_ADDRESS}, "
                "or put --dashboard at the end of the command"
            ) from None

    def token(self) -> str | None:
        """Read the token, if one is given; BadToken if it cannot be used."""
        return None if self.token_file is None else read_token(self.token_file)
