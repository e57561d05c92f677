"""The address of a server, ``tcp://HOST:PORT``: parsed, checked, and written back.

>>> Endpoint.parse("tcp://127.0.0.1:5556")
Endpoint(host='127.0.0.1', port=5556)
>>> str(Endpoint("::1", 5556))
'tcp://[::1]:5556'

An endpoint is checked before anything is opened, and the message of the error shows a valid one. libzmq would
check it late, and say little more than "Invalid argument".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address

from penstock.arguments import describe

__all__ = ["Endpoint"]

_EXAMPLE = "tcp://127.0.0.1:5556"
_PORT = re.compile(r"[0-9]{1,5}")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_LOOPBACK = IPv4Network("127.0.0.0/8")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A TCP address to listen at or to connect to; an invalid one is a ValueError."""

    host: str
    """A name, an IPv4 address, an IPv6 address (without brackets), or ``*``: all interfaces."""
    port: int
    """0 means any free port."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise _wrong(self, f"the port {self.port} is not between 0 and 65535")
        if self.host == "*":
            return
        try:
            object.__setattr__(self, "host", _normal(self.host))
        except ValueError as error:
            raise _wrong(self, str(error)) from None

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Read ``tcp://HOST:PORT``; ``*`` as the port means any free one, as 0 does."""
        if not isinstance(text, str):
            raise TypeError(f"an endpoint is a string like {_EXAMPLE!r}, not {describe(text)}")
        scheme, separator, place = text.partition("://")
        if not separator or scheme != "tcp":
            raise _wrong(text, "it has to start with tcp://, the only supported transport")
        if place.startswith("["):
            host, closed, rest = place[1:].partition("]")
            if not closed or ":" not in host:
                raise _wrong(text, "brackets are for an IPv6 address, as in tcp://[::1]:5556")
            nothing, colon, port = rest.partition(":")
            if nothing:
                raise _wrong(text, "after the brackets comes a colon and the port")
        else:
            host, colon, port = place.rpartition(":")
            if ":" in host:
                raise _wrong(text, "an IPv6 address goes into brackets, as in tcp://[::1]:5556")
        if not (colon and port):
            raise _wrong(text, "the port is missing")
        if not (port == "*" or _PORT.fullmatch(port)):
            raise _wrong(text, f"the port {port!r} is not a number between 0 and 65535")
        return cls(host, 0 if port == "*" else int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it: 127.0.0.0/8, ``localhost`` or ``::1``."""
        if self.host.lower() in ("localhost", "::1"):
            return True
        try:
            return IPv4Address(self.host) in _LOOPBACK
        except AddressValueError:
            return False

    @property
    def is_ipv6(self) -> bool:
        """Whether a socket needs its option ``ipv6`` for it."""
        return ":" in self.host

    @property
    def is_one_place(self) -> bool:
        """Whether a client can connect to it: it is neither all interfaces nor any free port."""
        return self.port != 0 and self.host not in ("*", "0.0.0.0", "::")

    def __str__(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if self.is_ipv6 else f"tcp://{self.host}:{self.port}"


def _wrong(endpoint: str | Endpoint, why: str) -> ValueError:
    return ValueError(f"{str(endpoint)!r} is not an endpoint: {why}. Write one like {_EXAMPLE}")


def _normal(host: str) -> str:
    """Return the host in its normal form, or raise a ValueError that says what is wrong with it."""
    if not host:
        raise ValueError("the host is missing; for all interfaces write *")
    if ":" in host:
        address = IPv6Address(host)
        if address.scope_id is not None and not _NAME.fullmatch(address.scope_id):
            raise ValueError(f"{address.scope_id!r} is not the name of an interface")
        return str(address)
    if not _NAME.fullmatch(host):
        raise ValueError(f"{host!r} is not the name of a host, which has letters, digits, dots and hyphens")
    if host.rpartition(".")[2].isdigit():
        # A name never ends with a number, so this is meant to be an address.
        return str(IPv4Address(host))
    return host
