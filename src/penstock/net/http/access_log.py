"""One line in the log for each request and each WebSocket, when it is over.

The lines go to the logger ``penstock.net.http.access``, with level INFO. Nothing that a client sends can
begin a line of its own: whatever is not printable is escaped, also in what a function of the user returns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Final, Literal

from penstock.net.http.asgi import App, Message, Receive, Scope, Send, named, printable

__all__ = ["AccessEntry", "AccessLog"]

_log = logging.getLogger("penstock.net.http")
_access_log = logging.getLogger("penstock.net.http.access")

# Written out, because strftime speaks the language of the machine.
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(slots=True)
class AccessEntry:
    """One request or WebSocket, as the log has it. Texts are as the client sent them."""

    peer: str | None
    """The address of the client, without its port; None if the server does not know it."""
    method: str
    """``GET``, ``POST``, …; ``WS`` for a WebSocket."""
    path: str
    query: str
    protocol: str
    """``HTTP/1.1``, ``HTTP/2``, …"""
    agent: str | None
    """What the client says it is."""
    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When the request arrived."""
    status: int | None = None
    """What the client was told, 101 for a WebSocket; None if the client left before."""
    sent: int = 0
    """Bytes of the body, or of all messages, that were passed to the server; compressed, if they were."""
    received: int = 0
    """Bytes of the request's body, or of all messages, that were taken from the server."""
    seconds: float = 0.0
    """How long it took."""
    complete: bool = False
    """False if it was cut off: the client left, the source failed, or the server stopped."""
    close_code: int | None = None
    """The code with which a WebSocket was closed, by either side."""


Format = Literal["common", "json"] | Callable[[AccessEntry], str]


class AccessLog:
    """Writes the lines; made by ``Http.access_log()``."""

    def __init__(self, format: Format) -> None:
        if format == "common":
            self._line: Callable[[AccessEntry], str] = _common
        elif format == "json":
            self._line = _json
        elif callable(format):
            self._line = format
        else:
            raise ValueError(f"access_log() needs 'common', 'json' or a function, not {format!r:.40}")
        self._has_failed = False

    @property
    def is_on(self) -> bool:
        """Whether anybody would see a line."""
        return _access_log.isEnabledFor(logging.INFO)

    async def run(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Run an application for one request, and write its line."""
        watched = _Watched(scope, receive, send)
        try:
            await app(scope, watched.receive, watched.send)
        except Exception:
            if watched.access.status is None:
                watched.access.status = 500  # which is what the server says now
            raise
        finally:
            self._write(watched.finished(), scope)

    def _write(self, access: AccessEntry, scope: Scope) -> None:
        try:
            line = self._line(access)
            if not isinstance(line, str):
                raise TypeError(f"the format of the access log has to return text, not {line!r:.40}")
        except Exception as error:
            if not self._has_failed:  # once, because it will fail for every request
                self._has_failed = True
                _log.error("%s: the format of the access log failed", named(scope), exc_info=error)
            line = _common(access)
        try:
            _access_log.info("%s", printable(line), extra={"access": access})
        except Exception as error:  # a filter of the user
            _log.debug("the access log failed: %r", error)


class _Watched:
    """What passes between the application and the server."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        agent = next((value for name, value in scope["headers"] if name.lower() == b"user-agent"), None)
        self.access = AccessEntry(
            peer=str(client[0]) if client else None,
            method="WS" if scope["type"] == "websocket" else scope["method"],
            path=scope["path"],
            query=(scope.get("query_string") or b"").decode("latin-1"),
            protocol=f"HTTP/{scope.get('http_version', '1.1')}",
            agent=None if agent is None else agent.decode("latin-1"),
        )
        self._receive = receive
        self._send = send
        self._begun = monotonic()

    async def receive(self) -> Message:
        message = await self._receive()
        kind, access = message["type"], self.access
        if kind == "http.request":
            access.received += len(message.get("body", b""))
        elif kind == "websocket.receive":
            access.received += _size(message)
        elif kind == "websocket.disconnect" and access.close_code is None:
            access.close_code = message.get("code") or 1005
            access.complete = access.close_code != 1006
        return message

    async def send(self, message: Message) -> None:
        await self._send(message)
        kind, access = message["type"], self.access
        if kind in ("http.response.body", "websocket.http.response.body"):
            access.sent += len(message.get("body", b""))
            access.complete = not message.get("more_body", False)
        elif kind in ("http.response.start", "websocket.http.response.start"):
            access.status = message["status"]
        elif kind == "http.response.pathsend":
            access.complete = True
        elif kind == "websocket.send":
            access.sent += _size(message)
        elif kind == "websocket.accept":
            access.status = 101
        elif kind == "websocket.close":
            if access.status is None:
                access.status = 403  # a refused handshake
            else:
                access.close_code = message.get("code", 1000)
            access.complete = True

    def finished(self) -> AccessEntry:
        """The access, with its duration; a clock that jumps cannot make it negative."""
        self.access.seconds = max(0.0, monotonic() - self._begun)
        return self.access


def _size(message: Message) -> int:
    text = message.get("text")
    return len(message.get("bytes") or b"") if text is None else len(text.encode("utf-8", "surrogatepass"))


def _common(access: AccessEntry) -> str:
    """A line of the format that most servers share, and behind it the seconds and how it ended."""
    when = access.time.astimezone(UTC)
    time = f"{when.day:02}/{_MONTHS[when.month - 1]}/{when.year}:{when:%H:%M:%S} +0000"
    target = _quoted(access.path + (f"?{access.query}" if access.query else ""))
    status = "-" if access.status is None else access.status
    line = (
        f'{access.peer or "-"} - - [{time}] "{_quoted(access.method)} {target} {_quoted(access.protocol)}" '
        f"{status} {access.sent} {access.seconds:.3f}"
    )
    if access.close_code is not None:
        line += f" closed={access.close_code}"
    return line if access.complete else f"{line} cut"


def _json(access: AccessEntry) -> str:
    return json.dumps(
        {
            "time": access.time.astimezone(UTC).isoformat(timespec="milliseconds"),
            "peer": access.peer,
            "method": access.method,
            "path": access.path,
            "query": access.query,
            "protocol": access.protocol,
            "status": access.status,
            "sent": access.sent,
            "received": access.received,
            "seconds": round(access.seconds, 6),
            "complete": access.complete,
            "close_code": access.close_code,
            "agent": access.agent,
        }
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
