"""What all of HTTP shares: the types of ASGI 3, the errors, and sources on the server's event loop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from penstock.net.errors import ConnectionAborted, NetError
from penstock.net.transport import call_on
from penstock.spec import Subscriber
from penstock.streams import Flux, Mono
from penstock.streams.spi import AsyncIterableSource, FailedSource, FutureSource, Op, Source, flux_of, mono_of

__all__ = [
    "App",
    "BadEncoding",
    "BadForm",
    "BadStatus",
    "BodyTooLarge",
    "ClientGone",
    "FormTooLarge",
    "Headers",
    "Message",
    "NotAForm",
    "PartSkipped",
    "Receive",
    "RequestRefused",
    "RequestTimeout",
    "ResponseBroken",
    "Scope",
    "Send",
    "UnsupportedEncoding",
    "WebSocketClosed",
    "end_of",
    "header_pairs",
    "named",
    "printable",
    "steps_of",
    "without_password",
]

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
"""Headers as a user writes them: a mapping, or pairs."""


def header_pairs(headers: Headers | None) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them. A line end, which could smuggle in another header, is refused."""
    if headers is None:
        return []
    pairs = []
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        if not name or any(mark in text for text in (name, value) for mark in "\r\n\0"):
            raise ValueError(f"a header needs a name and must not contain line ends: {name!r}: {value!r}")
        pairs.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    return pairs


def named(scope: Scope) -> str:
    """The exchange as a line in the log names it."""
    client = scope.get("client")
    origin = f"{client[0]}:{client[1]}" if client else "an unnamed client"
    what = "WebSocket" if scope.get("type") == "websocket" else scope.get("method", "")
    return printable(f"{what} {scope.get('path', '')} from {origin}")


def printable(text: str) -> str:
    """The text with everything escaped that could end a line of a log, or move the cursor of a terminal.

    >>> printable("a\\nb")
    'a\\\\nb'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def without_password(url: str) -> str:
    """The address as errors and logs show it.

    >>> without_password("https://user:secret@example.org/prices")
    'https://user:***@example.org/prices'
    """
    return _PASSWORD.sub(r"\1***@", url, count=1)


_PASSWORD = re.compile(r"(://[^/?#@:]*:)[^/?#]*@")

CLEAN_CODES = frozenset({1000, 1001, 1005})
"""Normal closure, going away, and no code at all."""


class ClientGone(ConnectionAborted):
    """The client disconnected before it had sent all of its request, or received all of the response."""


class RequestRefused(NetError):
    """A request that the limits of the application do not allow; ``status`` is what the client is told."""

    status = 400


class BodyTooLarge(RequestRefused):
    """The body of a request has more bytes than ``Http.body_limit()`` allows."""

    status = 413


class BadForm(RequestRefused):
    """A form that cannot be read: it is incomplete, or not written as its content type says."""


class FormTooLarge(RequestRefused):
    """A form, or a part of it, has more bytes, fields or parts than the reader allows."""

    status = 413


class NotAForm(RequestRefused):
    """The body of a request is not the kind of form that the reader asks for."""

    status = 415


class BadEncoding(RequestRefused):
    """A compressed body that cannot be decompressed, or that ends too early."""


class UnsupportedEncoding(RequestRefused):
    """A body is compressed in a way that the application does not accept."""

    status = 415


class PartSkipped(NetError):
    """A part of a form was not read before the next one was asked for, so its content is gone."""


class RequestTimeout(RequestRefused, TimeoutError):
    """The body of a request had not arrived after the seconds of ``Http.request_timeout()``."""

    status = 408


class ResponseBroken(NetError):
    """The source of a response failed after a part of the response had been sent.

    It is raised into the server, which then breaks the connection: if the response ended properly, the client
    would take the part for the whole. The cause is the error of the source.
    """


class BadStatus(NetError):
    """A server answered with an error status, or with a redirect that was not followed."""

    def __init__(self, message: str, *, status: int, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        """The status code, such as 404."""
        self.body = body
        """The first bytes of the response's body."""


class PoolExhausted(NetError, TimeoutError):
    """A request found no free connection for as long as its pool allows it to wait."""


class WebSocketClosed(ConnectionAborted):
    """The other side closed a WebSocket while there was still something to send or to receive."""

    def __init__(self, message: str, *, code: int, reason: str = "", elements: int = 0) -> None:
        super().__init__(message, elements=elements)
        self.code = code
        """The close code: 1001 means going away, 1006 a broken connection; 4000 and above are your own."""
        self.reason = reason
        """The reason as text; it is often empty."""

    @property
    def clean(self) -> bool:
        """Whether the close code means that nothing went wrong."""
        return self.code in CLEAN_CODES


class _OnLoop(Source):
    """Attaches another source on its own event loop.

    What an ASGI server passes to an application can only be awaited on the server's loop, while a stream may
    be subscribed to on any thread.
    """

    def __init__(self, inner: Source, loop: asyncio.AbstractEventLoop, label: str) -> None:
        super().__init__(label)
        self.label = f"{label}()"
        self._inner = inner
        self._loop = loop

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Attach now if we are on the loop, otherwise in its next turn."""
        if asyncio._get_running_loop() is self._loop:
            self._inner.attach(ops, downstream)
        elif not call_on(self._loop, self._inner.attach, ops, downstream):
            error = ConnectionAborted(f"{self.label} has nothing to give: the server's event loop is closed")
            FailedSource(error, self.label).attach(ops, downstream)

    def runs_on(self) -> str:
        """The loop of the server."""
        return "event loop of the connection"


def steps_of(
    factory: Callable[[], AsyncIterable[Any]], label: str, loop: asyncio.AbstractEventLoop | None = None
) -> Flux[Any]:
    """A Flux of an asynchronous iterable: one step on this loop for each element that is requested."""
    here = loop or asyncio.get_running_loop()
    return flux_of(_OnLoop(AsyncIterableSource(label, factory, loop=here), here, label))


def end_of(
    factory: Callable[[], Awaitable[Any]], label: str, loop: asyncio.AbstractEventLoop | None = None
) -> Mono[Any]:
    """A Mono that runs a coroutine on this loop, once for each subscriber."""
    there = loop or asyncio.get_running_loop()
    return mono_of(_OnLoop(FutureSource(label, factory, loop=there), there, label))
