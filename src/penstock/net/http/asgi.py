"""What all of HTTP shares: the types of ASGI 3, the errors, and sources on the server's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from penstock.net.errors import ConnectionAborted, NetError
from penstock.spec import Subscriber
from penstock.streams import Flux, Mono
from penstock.streams.spi import AsyncIterableSource, FutureSource, Op, Source, flux_of, mono_of

__all__ = [
    "App",
    "BadStatus",
    "ClientGone",
    "Headers",
    "Message",
    "Receive",
    "ResponseBroken",
    "Scope",
    "Send",
    "WebSocketClosed",
    "end_of",
    "header_pairs",
    "named",
    "steps_of",
]

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

Headers = Mapping[str, str] | Iterable[tuple[str, str]]
"""Headers as people write them."""


def header_pairs(headers: Headers | None) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI wants them; a line end in one, with which others could be smuggled in, is refused."""
    if headers is None:
        return []
    pairs = []
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        if not name or any(mark in text for text in (name, value) for mark in "\r\n\0"):
            raise ValueError(f"a header must have a name, and no line ends: {name!r}: {value!r}")
        pairs.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    return pairs


def named(scope: Scope) -> str:
    """What a line in the log calls this exchange."""
    client = scope.get("client")
    origin = f"{client[0]}:{client[1]}" if client else "an unnamed client"
    what = "WebSocket" if scope.get("type") == "websocket" else scope.get("method", "")
    return f"{what} {scope.get('path', '')} from {origin}"


class _OnLoop(Source):
    """Attaches another source on the loop that it runs on."""

    def __init__(self, inner: Source, loop: asyncio.AbstractEventLoop, label: str) -> None:
        super().__init__(label)
        self.label = f"{label}()"
        self._inner = inner
        self._loop = loop

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Now, or as soon as the loop has a turn for it."""
        if asyncio._get_running_loop() is self._loop:
            self._inner.attach(ops, downstream)
        else:
            self._loop.call_soon_threadsafe(self._inner.attach, ops, downstream)

    def runs_on(self) -> str:
        """The loop of the server."""
        return "event loop of the connection"


def steps_of(factory: Callable[[], AsyncIterable[Any]], label: str) -> Flux[Any]:
    """A Flux that steps through an asynchronous iterable, once for each element asked for, on this loop."""
    here = asyncio.get_running_loop()
    return flux_of(_OnLoop(AsyncIterableSource(label, factory, loop=here), here, label))


def end_of(
    factory: Callable[[], Awaitable[Any]], label: str, loop: asyncio.AbstractEventLoop | None = None
) -> Mono[Any]:
    """A Mono of the end of a coroutine, which runs on this loop for each subscriber."""
    there = loop or asyncio.get_running_loop()
    return mono_of(_OnLoop(FutureSource(label, factory, loop=there), there, label))


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
