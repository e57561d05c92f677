"""A WebSocket client, with the same two sides as the server's.

A message is read from the socket when there is demand for it, except for a little read-ahead: at most 32
messages, or 64 KiB and the message that exceeds them. If the subscriber is slow, the server has to wait.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

from penstock.arguments import a_number, a_whole_number
from penstock.net.errors import SendRefused
from penstock.net.http.asgi import Headers, Scope, WebSocketClosed, header_pairs
from penstock.net.http.outflow import LARGE
from penstock.net.http.websocket_link import WebSocketLink, WebSocketSettings, open_link, websockets_library
from penstock.net.http.websockets import (
    DONE,
    FAILED,
    MessageSocket,
    WebSocketHandler,
    WebSocketInbound,
    WebSocketOutbound,
    converse,
)
from penstock.net.tls import Path, TlsSettings
from penstock.net.transport import call_on
from penstock.streams import Flux, Mono
from penstock.streams.spi import AsyncIterableSource, flux_of, source_of

__all__ = ["WebSocketClient", "WebSocketConnection", "ws"]


class WebSocketConnection:
    """An open WebSocket to a server: its two sides, and what was agreed on.

    ``async with`` closes it with 1000, or with 1011 if the block raises.
    """

    def __init__(self, link: WebSocketLink, settings: WebSocketSettings) -> None:
        """Made by ``ws(…).connect()``."""
        self._link = link
        self._settings = settings
        self.socket = MessageSocket(_scope(settings, link), link.reception, link.send)
        self._watching = asyncio.ensure_future(self._watch())

    @property
    def inbound(self) -> WebSocketInbound:
        """What the server sends."""
        return WebSocketInbound(self.socket)

    @property
    def outbound(self) -> WebSocketOutbound:
        """What to send to the server."""
        return WebSocketOutbound(self.socket)

    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the server has chosen, or None."""
        return self._link.subprotocol

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers of the server's answer to the handshake."""
        return self._link.headers

    async def aclose(self, code: int = DONE, reason: str = "") -> None:
        """Close, and wait until the socket is closed; on the event loop of the connection.

        A server that does not answer the close within ``close_timeout`` is cut off. On another thread use
        ``outbound.close()``.
        """
        try:
            async with asyncio.timeout(self._settings.close_timeout):
                await self.socket.close(code, reason)
        except (TimeoutError, WebSocketClosed, SendRefused):
            pass  # it was closed before, or is cut off now
        finally:
            self._cut()
        await self._link.wait_closed()

    def abort(self) -> None:
        """Cut the connection, on any thread. The server sees no close frame."""
        call_on(self.socket.loop, self._cut)

    def _cut(self) -> None:
        self._link.abort()
        self._watching.cancel()

    async def _watch(self) -> None:
        gone = await self.socket.reception.gone()
        if gone is not None:
            self.socket.peer_gone(gone)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.aclose(DONE if kind is None else FAILED)


def _scope(settings: WebSocketSettings, link: WebSocketLink) -> Scope:
    parts = urlsplit(settings.url)
    return {
        "type": "websocket",
        "scheme": parts.scheme,
        "path": parts.path or "/",
        "query_string": parts.query.encode(),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in link.headers],
        "subprotocol": link.subprotocol,
        "server": (parts.hostname, parts.port),
    }


class _Attempt:
    """One subscriber's connection. It is cut if the subscriber leaves before it has it."""

    def __init__(self, client: WebSocketClient) -> None:
        self._client = client
        self._left = False
        self._opened: list[WebSocketConnection] = []

    async def open(self) -> WebSocketConnection:
        connection = await self._client._open()
        self._opened.append(connection)
        if self._left:  # on another thread, too late to cancel the task
            self._leave()
        return connection

    def _handed_over(self, connection: WebSocketConnection) -> None:
        self._opened.clear()

    def _leave(self) -> None:
        self._left = True
        for connection in self._opened:
            connection.abort()

    def mono(self) -> Mono[WebSocketConnection]:
        return Mono.from_callable(self.open).do_on_next(self._handed_over).do_on_cancel(self._leave)


@dataclass(frozen=True, slots=True)
class WebSocketClient:
    """The description of a WebSocket. It is opened each time that somebody subscribes.

    Made by :func:`ws`.
    """

    settings: WebSocketSettings

    def __repr__(self) -> str:
        """Without the headers, which may be secrets."""
        return f"WebSocketClient({self.settings.place})"

    def secure(
        self,
        context: ssl.SSLContext | None = None,
        *,
        trust: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        password: str | None = None,
        server_hostname: str | None = None,
        handshake_timeout: float = 10.0,
    ) -> WebSocketClient:
        """How to speak TLS with a server at ``wss://``; the arguments are those of ``TcpClient.secure()``."""
        if not self.settings.url.lower().startswith("wss:"):
            raise ValueError(
                f"secure() is for an address that begins with wss://, not for {self.settings.place!r}"
            )
        tls = TlsSettings.for_client(
            context, trust, certificate, key, password, server_hostname, handshake_timeout
        )
        return replace(self, settings=replace(self.settings, tls=tls))

    def connect(self) -> Mono[WebSocketConnection]:
        """Open the WebSocket. Whoever gets the connection closes it.

        ::

            async with await ws("wss://example.org/prices").connect() as connection:
                await connection.outbound.send("subscribe")
                async for price in connection.inbound.receive():
                    ...

        On a thread without an event loop, ``connect().block()`` opens it on one in the background.
        """
        opening = Mono.defer(lambda: _Attempt(self).mono())
        source_of(opening).in_place = self._open
        return opening

    def handle(self, handler: WebSocketHandler) -> Mono[Any]:
        """Open the WebSocket, run a handler with its two sides, and close it; a Mono without an element.

        The handler is like that of :func:`websocket`. It completes when what the handler returned has
        completed, and fails when that has failed; the server is told 1000 or 1011. A handler that does not
        receive is cancelled when the server closes.
        """
        if not callable(handler):
            raise TypeError(f"handle() needs a function of inbound and outbound, not {handler!r}")
        return Mono.from_callable(partial(self._converse, handler))

    def receive(self) -> Flux[Any]:
        """Open the WebSocket and receive its messages: ``str`` for text, ``bytes`` for the others.

        Emits when a message has arrived and there is demand.
        Backpressures when there is none: the socket is not read any more, and the server has to wait.
        Completes when the server has closed properly. It fails with ``WebSocketClosed`` if the connection
        breaks, or the server closes it with a code that means an error.
        Cancels when its subscriber cancels; the WebSocket is closed with 1000.
        """
        websockets_library()
        source = AsyncIterableSource("ws", self._messages, self.settings.place)
        source.ahead = LARGE
        return flux_of(source)

    # ---------------------------------------------------------------- how it is done
    async def _open(self) -> WebSocketConnection:
        return WebSocketConnection(await open_link(self.settings), self.settings)

    async def _messages(self) -> AsyncIterator[Any]:
        connection = await self._open()
        try:
            while (message := await connection.socket.reception.next_chunk()) is not None:
                yield message
        finally:
            await connection.aclose()

    async def _converse(self, handler: WebSocketHandler) -> None:
        connection = await self._open()
        code, reason = FAILED, "the handler failed"
        try:
            async with converse(connection.socket, handler) as handling:
                gone = connection.socket.gone
                if handling.cancelled() and gone is not None:
                    if not gone.clean:
                        raise gone
                else:
                    handling.result()
            code, reason = DONE, ""
        finally:
            await connection.aclose(code, reason)


def ws(
    url: str,
    *,
    headers: Headers | None = None,
    subprotocols: Sequence[str] = (),
    connect_timeout: float | None = 10.0,
    ping_interval: float | None = 20.0,
    ping_timeout: float = 20.0,
    close_timeout: float = 10.0,
    max_length: int = 16 * 1024 * 1024,
) -> WebSocketClient:
    """A WebSocket of a server; ``connect()``, ``handle()`` or ``receive()`` opens it.

    Connecting and the handshake take at most ``connect_timeout`` seconds. A message has at most
    ``max_length`` bytes; a longer one closes the WebSocket with 1009. The server is asked every
    ``ping_interval`` seconds whether it is there. If it does not answer for ``ping_timeout`` seconds, the
    connection is cut; time in which we do not read, or a send waits for the server, does not count.
    """
    websockets_library()
    if isinstance(subprotocols, str):
        raise TypeError(f"subprotocols={subprotocols!r}: pass a list, such as [{subprotocols!r}]")
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in header_pairs(headers)]
    return WebSocketClient(
        WebSocketSettings(
            url=url,
            headers=tuple(pairs),
            subprotocols=tuple(subprotocols),
            connect_timeout=_seconds(connect_timeout, "connect_timeout"),
            ping_interval=_seconds(ping_interval, "ping_interval"),
            ping_timeout=a_number(ping_timeout, "ping_timeout", above=0),
            close_timeout=a_number(close_timeout, "close_timeout", above=0),
            max_length=a_whole_number(max_length, "max_length", least=1),
        )
    )


def _seconds(value: float | None, name: str) -> float | None:
    return None if value is None else a_number(value, name, above=0)
