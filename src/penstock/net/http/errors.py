"""What can go wrong between an HTTP client and a server, as the two sides see it."""

from __future__ import annotations

from penstock.net.errors import ConnectionAborted, NetError

__all__ = ["BadStatus", "ClientGone", "ResponseBroken", "WebSocketClosed"]


class ClientGone(ConnectionAborted):
    """The client went away before it had sent all of its request, or got all of its answer."""


class ResponseBroken(NetError):
    """The source of a response failed when part of it had been sent.

    It is raised into the server, which then breaks the connection off: were the response ended properly, the
    client would take the half of it for the whole. The cause is the error of the source.
    """


class BadStatus(NetError):
    """A server answered, but not with what was asked for."""

    def __init__(self, message: str, *, status: int, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        """The number that the server gave, such as 404."""
        self.body = body
        """The first bytes of what it sent along."""


class WebSocketClosed(ConnectionAborted):
    """The other side closed a WebSocket while something was still to be sent or received."""

    def __init__(self, message: str, *, code: int, reason: str = "", elements: int = 0) -> None:
        super().__init__(message, elements=elements)
        self.code = code
        """Why, as a number: 1001 is going away, 1006 a broken connection, from 4000 on what you agreed on."""
        self.reason = reason
        """Why, as a text; often there is none."""

    @property
    def clean(self) -> bool:
        """Whether the other side just had enough."""
        return self.code in CLEAN_CODES


CLEAN_CODES = frozenset({1000, 1001, 1005})
"""Done, going away, and closed without giving a reason."""
