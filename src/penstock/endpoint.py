"""The address of a server, ``tcp://HOST:PORT``: parsed, checked, and written back.

>>> Endpoint.parse("tcp://127.0.0.1:5556")
Endpoint(host='127.0.0.1', port=5556, stream='')
>>> str(Endpoint("::1", 5556))
'tcp://[::1]:5556'

A gateway may serve several streams, and each has a name:

>>> Endpoint.parse("tcp://127.0.0.1:5556/orders").stream
'orders'

An endpoint is checked before anything is opened, and the message of the error shows a valid one. libzmq would
check it late, and say little more than "Invalid argument".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address

from penstock.arguments import describe

__all__ = ["Endpoint", "check_stream_name"]

_EXAMPLE = "tcp://127.0.0.1:5556"
_PORT = re.compile(r"[0-9]{1,5}")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_STREAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_LOOPBACK = IPv4Network("127.0.0.0/8")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A TCP address to listen at or to connect to; an invalid one is a ValueError."""

    host: str
    """A name, an IPv4 address, an IPv6 address (without brackets), or ``*``: all interfaces."""
    port: int
    """0 means any free port."""
    stream: str = ""
    """The name of a stream there; empty for the default one."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise _wrong(self, f"the port {self.port} is not between 0 and 65535")
        if self.stream and (problem := _problem_with_name(self.stream)) is not None:
            raise _wrong(self, problem)
        if self.host == "*":
            return
        try:
            object.__setattr__(self, "host", _normal(self.host))
        except ValueError as error:
            raise _wrong(self, str(error)) from None

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Read ``tcp://HOST:PORT`` or ``tcp://HOST:PORT/STREAM``; port ``*`` is any free one, as 0 is."""
        if not isinstance(text, str):
            raise TypeError(f"an endpoint is a string like {_EXAMPLE!r}, not {describe(text)}")
        scheme, separator, place = text.partition("://")
        if not separator or scheme != "tcp":
            raise _wrong(text, "it has to start with tcp://, the only supported transport")
        place, slash, stream = place.partition("/")
        if slash and not stream:
            raise _wrong(text, "after the slash comes the name of a stream")
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
        return cls(host, 0 if port == "*" else int(port), stream)

    @classmethod
    def parse_address(cls, text: str) -> Endpoint:
        """Read ``tcp://HOST:PORT`` where no stream can be meant: to listen at, or for a server of lines."""
        endpoint = cls.parse(text)
        if endpoint.stream:
            raise _wrong(text, f"it ends with the port, and /{endpoint.stream} is too much")
        return endpoint

    @property
    def address(self) -> str:
        """The part that a socket understands: without the stream."""
        return f"tcp://[{self.host}]:{self.port}" if self.is_ipv6 else f"tcp://{self.host}:{self.port}"

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
        return f"{self.address}/{self.stream}" if self.stream else self.address


def check_stream_name(name: str) -> str:
    """Return the name of a stream; a ValueError says what is wrong with it."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a stream is a string, not {describe(name)}")
    if (problem := _problem_with_name(name)) is not None:
        raise ValueError(problem)
    return name


def _problem_with_name(name: str) -> str | None:
    if _STREAM.fullmatch(name):
        return None
    return (
        f"{name!r} is not the name of a stream, which has up to 128 letters, digits, dots, hyphens and "
        "underscores, and does not begin with a dot or a hyphen"
    )


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
