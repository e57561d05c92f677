"""What goes wrong between a client and its proxy. A message names both, the phase, and what to do."""

from __future__ import annotations

from typing import Final

from penstock.net.errors import ConnectFailed

__all__ = ["SOCKS_REPLIES", "STATUS_REMEDIES", "ProxyAuthenticationFailed", "ProxyFailed"]


class ProxyFailed(ConnectFailed):
    """A client could not connect through its proxy."""

    proxy: str = ""
    """The proxy, without credentials."""
    target: str = ""
    """Where the client wanted to connect to."""
    phase: str = ""
    """How far it came: ``connect``, ``greeting``, ``authentication`` or ``request``."""
    code: int | None = None
    """The status of an HTTP proxy, or the reply code of a SOCKS proxy, if there was one."""

    @classmethod
    def at(
        cls, proxy: str, target: str, phase: str, why: str, remedy: str, code: int | None = None
    ) -> ProxyFailed:
        """The error of this phase."""
        failed = cls(
            f"cannot connect to {target} through the proxy {proxy}: {_PHASES[phase]}: {why}; {remedy}"
        )
        failed.proxy, failed.target, failed.phase, failed.code = proxy, target, phase, code
        return failed


class ProxyAuthenticationFailed(ProxyFailed):
    """The proxy requires credentials, or did not accept those that were given."""


_PHASES: Final = {
    "connect": "connecting to the proxy failed",
    "greeting": "the greeting failed",
    "authentication": "authentication failed",
    "request": "the request for the target failed",
}

SOCKS_REPLIES: Final = {
    1: ("the proxy reports a general failure", "look into the log of the proxy"),
    2: ("the rules of the proxy do not allow this connection", "ask for the target to be allowed there"),
    3: ("the proxy cannot reach the target's network", "check the host, and the network of the proxy"),
    4: ("the proxy cannot reach the target, or does not know its name", "check the spelling of the host"),
    5: ("the target refused the connection", "is a server listening there?"),
    6: ("the connection took too many hops (TTL expired)", "check the network of the proxy"),
    7: ("the proxy does not support CONNECT", "use another proxy"),
    8: ("the proxy does not support this kind of address", "use a host name, or an IPv4 address"),
}
"""The reply codes of SOCKS5 in words, each with a remedy."""

STATUS_REMEDIES: Final = {
    400: ("the proxy did not understand the request (400)", "is it an HTTP proxy, and not a web server?"),
    403: (
        "the proxy does not allow this target (403)",
        "ask for the target and its port to be allowed there",
    ),
    404: ("the proxy does not know the target (404)", "is it an HTTP proxy, and not a web server?"),
    405: ("the proxy does not allow CONNECT (405)", "is it an HTTP proxy, and not a web server?"),
    429: ("the proxy has too many requests (429)", "try again later"),
    500: ("the proxy failed (500)", "look into the log of the proxy"),
    501: ("the proxy does not support CONNECT (501)", "is it an HTTP proxy, and not a web server?"),
    502: ("the proxy cannot reach the target (502)", "check the host and the port of the target"),
    503: ("the proxy cannot serve this now (503)", "check the host of the target, or try again later"),
    504: ("the target did not answer the proxy in time (504)", "check the host and the port of the target"),
}
"""The answers of an HTTP proxy in words, each with a remedy."""
