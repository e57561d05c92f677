"""Which proxy a client uses: its address, its credentials, and the hosts that are reached without it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Proxy", "host_and_port"]

_PORTS: Final = {"http": 80, "socks5": 1080, "socks5h": 1080}
"""The schemes, with the port that each has if none is given."""
_WANTED: Final = "write http://host:port or socks5://host:port, with user:password@ before the host if needed"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy for clients. Its credentials appear in no text.

    >>> Proxy.parse("socks5://me:secret@proxy.example:1080")
    Proxy(scheme='socks5', host='proxy.example', port=1080, direct=())
    """

    scheme: str
    """``http`` (CONNECT) or ``socks5``."""
    host: str
    port: int
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    direct: tuple[str, ...] = ()
    """Patterns of the hosts that are reached without the proxy."""

    @classmethod
    def parse(
        cls,
        url: str,
        *,
        no_proxy: str | Iterable[str] = (),
        username: str | None = None,
        password: str | None = None,
    ) -> Proxy:
        """The proxy that a URL names. No error shows the URL, because it may hold a password."""
        if not isinstance(url, str) or "://" not in url:
            raise ValueError(f"proxy(): this is not the URL of a proxy; {_WANTED}")
        scheme, _, rest = url.partition("://")
        scheme = scheme.lower()
        if scheme not in _PORTS:
            raise ValueError(f"proxy(): the scheme {scheme!r:.20} is not known; {_WANTED}")
        credentials, at, address = rest.rpartition("@")
        if at:
            if username is not None or password is not None:
                raise ValueError("proxy(): the URL has credentials already; pass them in one place")
            username, password = _credentials(credentials)
        host, port = _address(address, _PORTS[scheme])
        scheme = scheme.removesuffix("h")  # Names are always left to the proxy.
        _check_credentials(scheme, username, password)
        return cls(scheme, host, port, username, password, _patterns(no_proxy))

    @property
    def where(self) -> str:
        """The proxy as people write it, without credentials."""
        return f"{self.scheme}://{host_and_port(self.host, self.port)}"

    def serves(self, host: str, port: int) -> bool:
        """Whether this host is reached through the proxy."""
        return not any(_matches(pattern, host.lower().rstrip("."), port) for pattern in self.direct)


def host_and_port(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ---------------------------------------------------------------- the URL
def _credentials(text: str) -> tuple[str, str]:
    from urllib.parse import unquote

    username, _, password = text.partition(":")
    return unquote(username), unquote(password)


def _address(text: str, default: int) -> tuple[str, int]:
    text = text.removesuffix("/")
    host, port = _split(text)
    if not host or any(character in "/?#@[]\\" or character <= " " for character in host):
        raise ValueError(f"proxy(): the URL has no host that could be used; {_WANTED}")
    if port is None:
        return host, default
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 0xFFFF):
        raise ValueError(f"proxy(): the URL has no port from 1 to 65535; {_WANTED}")
    return host, int(port)


def _split(text: str) -> tuple[str, str | None]:
    """Host and port of ``host``, ``host:port``, ``[v6]``, ``[v6]:port`` or a bare ``v6``."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":") if rest else None
    if text.count(":") > 1:
        return text, None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def _check_credentials(scheme: str, username: str | None, password: str | None) -> None:
    if username is None:
        if password is not None:
            raise ValueError("proxy(): there is a password and no user name")
        return
    if scheme == "http" and ":" in username:
        raise ValueError("proxy(): a user name for an HTTP proxy cannot have a colon")
    if scheme == "socks5":
        for name, text in (("user name", username), ("password", password or "")):
            if len(text.encode()) > 255:
                raise ValueError(f"proxy(): SOCKS5 takes a {name} of at most 255 bytes")
        if not username or not password:
            raise ValueError("proxy(): SOCKS5 needs a user name and a password, or neither")


# ---------------------------------------------------------------- hosts that go direct
def _patterns(no_proxy: str | Iterable[str]) -> tuple[str, ...]:
    texts = no_proxy.replace(",", " ").split() if isinstance(no_proxy, str) else no_proxy
    return tuple(stripped for text in texts if (stripped := text.strip().lower()))


def _matches(pattern: str, host: str, port: int) -> bool:
    """Whether a host goes direct: by its name, by one above it, by its address, or by a network."""
    from ipaddress import ip_address, ip_network

    if pattern == "*":
        return True
    if "/" not in pattern:
        name, only = _split(pattern)
        if only is not None and only != str(port):
            return False
        pattern = name
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        name = pattern.removeprefix("*").strip(".")
        return bool(name) and (host == name or host.endswith(f".{name}"))
    address = getattr(address, "ipv4_mapped", None) or address
    try:
        return address in ip_network(pattern, strict=False)
    except ValueError:
        return False  # The pattern is a name, and the host is an address.
