"""A WebSocket as two streams, with a handler like that of a TCP connection.

Messages are received on demand, except for a little read-ahead, because the peer's close comes after it. In
the other direction a message is sent when the one before it was taken, and the source is asked for no more
than the peer takes.

When the peer closes, sends fail and their sources are cancelled. A subscriber of ``receive()`` still gets
what has arrived, and then the end. A handler that does not receive is cancelled.

The two sides know ASGI's ``receive()`` and ``send()`` only. A server passes them to :func:`websocket`;
``websocket_client.py`` makes them of a connection to a server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.net.errors import SendRefused
from penstock.net.http.asgi import (
    App,
    Headers,
    Receive,
    Scope,
    Send,
    WebSocketClosed,
    end_of,
    header_pairs,
    named,
)
from penstock.net.http.outflow import PREFETCH, Outflow
from penstock.net.http.reception import Reception
from penstock.net.outbound import SendChain
from penstock.spec import Publisher
from penstock.streams import Flux, Mono
from penstock.streams.spi import Stream, as_flux, as_stream

__all__ = [
    "DONE",
    "FAILED",
    "MessageSocket",
    "WebSocketHandler",
    "WebSocketInbound",
    "WebSocketOutbound",
    "converse",
    "websocket",
]

_log = logging.getLogger("penstock.net.http")

DONE, FAILED = 1000, 1011
_MAY_BE_SENT = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015), *range(3000, 5000)})
_LONGEST_REASON = 123
"""Bytes of a reason; a close frame has 125 and two of them are the code."""
_FAREWELL = 1.0
"""Seconds for a handler to end by itself after its send failed because the peer is gone."""


class MessageSocket:
    """What both sides of a WebSocket share."""

    def __init__(self, scope: Scope, reception: Reception, send: Send) -> None:
        self.scope = scope
        self.reception = reception
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._send = send
        self._turn = asyncio.Lock()
        """Concurrent sends take turns, message by message."""
        self._running: set[asyncio.Task[Any]] = set()
        self.gone: WebSocketClosed | None = None
        self.failed_to_send = False
        self.close_code: int | None = None
        """The code with which this side closed."""

    async def close(self, code: int, reason: str) -> None:
        """Close from this side."""
        await self.reception.stop()
        await self.put({"type": "websocket.close", "code": code, "reason": reason})

    async def put(self, message: dict[str, Any]) -> None:
        """Pass a message to the server, unless the WebSocket is closed."""
        async with self._turn:
            if self.gone is not None:
                raise self.gone
            if self.closed:
                raise SendRefused("this WebSocket was closed on this side, so nothing can be sent any more")
            if message["type"] == "websocket.close":
                self.closed = True
                self.close_code = message["code"]
            try:
                await self._send(message)
            except WebSocketClosed:
                raise
            except OSError as gone:
                raise WebSocketClosed("the client closed the WebSocket", code=1006) from gone
        # Servers do not report a disconnect here: let the task that listens for one run.
        await asyncio.sleep(0)

    async def send_all(self, source: Stream[Any]) -> None:
        """Send every element as a message, and ask for more as they are taken."""
        outflow = Outflow(PREFETCH)
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        count = 0
        outflow.begin(source)
        try:
            while (batch := await outflow.batch()) is not None:
                for element in batch:
                    await self.put(_message(element))
                    count += 1
                    outflow.sent(1, len(element))
        except WebSocketClosed as closed:
            self.failed_to_send = True
            raise self._with_count(closed, count) from closed
        except asyncio.CancelledError:
            if not self.failed_to_send or self.gone is None:
                raise  # the subscriber has cancelled
            raise self._with_count(self.gone, count) from self.gone
        finally:
            outflow.cancel()

    @staticmethod
    def _with_count(closed: WebSocketClosed, count: int) -> WebSocketClosed:
        text = f"{closed}; {count} messages had been sent"
        return WebSocketClosed(text, code=closed.code, reason=closed.reason, elements=count)

    def peer_gone(self, error: Exception) -> None:
        """Let every send fail, even one that waits for a peer that does not read."""
        if self.gone is not None:
            return
        self.gone = error if isinstance(error, WebSocketClosed) else WebSocketClosed(str(error), code=1006)
        if self._running:
            self.failed_to_send = True
            for task in self._running:
                task.cancel()


def _content(element: Any) -> bytes | str:
    if isinstance(element, str):
        return element
    if isinstance(element, bytes | bytearray | memoryview):
        return bytes(element)  # a copy, because its owner may change it before it is sent
    raise SendRefused(f"a message has to be bytes or text, not {element!r:.80}; encode it first")


def _message(content: bytes | str) -> dict[str, Any]:
    return {"type": "websocket.send", ("text" if isinstance(content, str) else "bytes"): content}


class WebSocketInbound:
    """What the peer sends. It has one subscriber in its life."""

    def __init__(self, socket: MessageSocket) -> None:
        """Made by ``websocket()`` and ``ws()``, for each connection."""
        self._socket = socket

    def receive(self) -> Flux[Any]:
        """The messages: ``str`` for those sent as text, ``bytes`` for the others.

        Emits when a message has arrived and there is demand.
        Backpressures when there is none: the socket is not read any more, and the peer has to wait.
        Completes when the peer has closed properly. It fails with ``WebSocketClosed`` if the connection
        breaks, or the peer closes it with a code that means an error.
        Cancels when its subscriber cancels; messages that still arrive are thrown away.
        """
        return self._socket.reception.flux("receive")

    @property
    def scope(self) -> Scope:
        """What is known about the connection: its path, the peer's headers and address."""
        return self._socket.scope

    @property
    def close_code(self) -> int | None:
        """The code with which the peer closed, 1006 if the connection broke, or None if neither happened."""
        return self._socket.reception.close_code

    @property
    def close_reason(self) -> str:
        """The reason that the peer gave for its close; it is often empty."""
        return self._socket.reception.close_reason


class WebSocketOutbound(SendChain):
    """What to send, in order. Nothing happens before somebody subscribes to it, awaits or returns it."""

    def __init__(self, socket: MessageSocket, before: Mono[Any] | None = None) -> None:
        """Made by ``websocket()`` and ``ws()``, and by each of the methods below."""
        super().__init__(before)
        self._socket = socket

    def send(self, data: Publisher[Any] | bytes | str) -> WebSocketOutbound:
        """Send every element of a publisher as a message of its own, or one message.

        The publisher is asked for as much as the peer takes.
        """
        stream = Mono.just(data) if isinstance(data, bytes | str) else as_stream(data, "send()")
        source = as_flux(stream).map(_content)
        socket = self._socket
        return self._and(end_of(lambda: socket.send_all(source), "send", socket.loop))

    def close(self, code: int = DONE, reason: str = "") -> WebSocketOutbound:
        """Close, with a code and a reason for the peer. Nothing can be sent after that.

        A code of your own is 4000 or above.
        """
        if code not in _MAY_BE_SENT:
            raise ValueError(
                f"close({code}): a code of your own is from 4000 to 4999; 1000 means that all is well"
            )
        if len(reason.encode()) > _LONGEST_REASON:
            raise ValueError(
                f"close(reason={reason!r:.80}): a reason has at most {_LONGEST_REASON} bytes in UTF-8"
            )
        return self._and(end_of(lambda: self._socket.close(code, reason), "close", self._socket.loop))

    @property
    def close_code(self) -> int | None:
        """The code with which this side closed, or None if it has not."""
        return self._socket.close_code

    def _behind(self, before: Mono[Any]) -> WebSocketOutbound:
        return WebSocketOutbound(self._socket, before)


WebSocketHandler = Callable[[WebSocketInbound, WebSocketOutbound], Publisher[Any] | Awaitable[Any]]
"""Takes the two sides of a WebSocket and returns what to run; it may be a coroutine function."""


@asynccontextmanager
async def converse(socket: MessageSocket, handler: WebSocketHandler) -> AsyncIterator[asyncio.Future[None]]:
    """Run a handler until it ends, by itself or because the peer is gone. Then nobody has closed yet."""
    watching = asyncio.ensure_future(socket.reception.gone())
    handling = asyncio.ensure_future(_handle(socket, handler))
    try:
        await asyncio.wait((handling, watching), return_when=asyncio.FIRST_COMPLETED)
        if not handling.done():
            gone = watching.result()
            if gone is not None:
                socket.peer_gone(gone)
                if socket.failed_to_send and not socket.reception.read_to_the_end:
                    # Its send has failed, so it will end by itself.
                    await asyncio.wait((handling,), timeout=_FAREWELL)
                if not socket.reception.read_to_the_end:
                    handling.cancel()
            await asyncio.wait((handling,))
        yield handling
    finally:
        for task in (handling, watching):
            task.cancel()
        await asyncio.gather(handling, watching, return_exceptions=True)


async def _handle(socket: MessageSocket, handler: WebSocketHandler) -> None:
    returned = handler(WebSocketInbound(socket), WebSocketOutbound(socket))
    if isinstance(returned, Awaitable) and not isinstance(returned, Publisher):
        returned = await returned
        if returned is None:
            return
    await as_flux(as_stream(returned, "the handler of a WebSocket")).then()


class _WebSocketApp:
    def __init__(
        self, handler: WebSocketHandler, subprotocols: Sequence[str], headers: Headers | None
    ) -> None:
        self._handler = handler
        self._subprotocols = tuple(subprotocols)
        self._headers = header_pairs(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        offered = scope.get("subprotocols") or []
        chosen = next((name for name in self._subprotocols if name in offered), None)
        await send({"type": "websocket.accept", "subprotocol": chosen, "headers": self._headers})
        socket = MessageSocket(scope, Reception.of(receive), send)
        async with converse(socket, self._handler) as handling:
            await self._finish(socket, handling)

    async def _finish(self, socket: MessageSocket, handling: asyncio.Future[None]) -> None:
        """Close the WebSocket unless the client has, and log what went wrong."""
        error = None if handling.cancelled() else handling.exception()
        if isinstance(error, WebSocketClosed):
            level = logging.DEBUG if error.clean else logging.INFO
            _log.log(level, "%s: %s", named(socket.scope), error)
            return
        code, reason = DONE, ""
        if error is not None:
            _log.error("%s: the handler failed", named(socket.scope), exc_info=error)
            code, reason = FAILED, "the handler failed"
        if socket.closed or socket.gone is not None:
            return
        try:
            await socket.close(code, reason)
        except WebSocketClosed as gone:
            _log.debug("%s: %s", named(socket.scope), gone)


def websocket(
    handler: WebSocketHandler, *, subprotocols: Sequence[str] = (), headers: Headers | None = None
) -> App:
    """An ASGI application that accepts a WebSocket and runs ``handler`` with its two sides.

    ::

        echo = websocket(lambda inbound, outbound: outbound.send(inbound.receive()))

    The WebSocket is closed with 1000 when what the handler returned has completed, and with 1011 when it has
    failed, which is logged. Of the ``subprotocols``, the first that the client offers is chosen.
    """
    if not callable(handler):
        raise TypeError(f"websocket() needs a function of inbound and outbound, not {handler!r}")
    return _WebSocketApp(handler, subprotocols, headers)
