"""What a client sends, as a stream: the body of a request, or the messages of a WebSocket.

ASGI reports everything through one function, ``receive()``: the next chunk as well as the client's
disconnect. So the reader of the body and the code that waits for a disconnect share it here, and never call
it at the same time. Chunks are read when there is demand. Only while somebody waits for a disconnect are a
few read ahead, because the disconnect comes after them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from penstock.net.errors import ReceiverTaken
from penstock.net.http.asgi import (
    CLEAN_CODES,
    ClientGone,
    Message,
    Receive,
    RequestTimeout,
    WebSocketClosed,
    steps_of,
)
from penstock.net.http.outflow import LARGE
from penstock.net.transport import call_on
from penstock.streams import Flux
from penstock.streams.spi import DeferSource, as_stream, flux_of

__all__ = ["READ_AHEAD", "Reception", "body"]

READ_AHEAD: Final = 64 * 1024
"""Bytes that may be read ahead; the chunk that exceeds them is kept too."""
_MOST_CHUNKS = 32
_Steps = TypeVar("_Steps")


class Reception:
    """The only caller of a client's ``receive()``."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.loop = asyncio.get_running_loop()
        self._held: deque[Any] = deque()
        self._held_bytes = 0
        self._reading: asyncio.Task[None] | None = None
        self._waiting = 0
        self._drained = asyncio.Event()
        self._drained.set()
        self._whole = False
        """Whether everything has arrived."""
        self._gone: Exception | None = None
        """Why nothing more can be received or sent."""
        self._received = 0
        self._unclaimed = [True]
        self._dropped = False
        self._stopped = False
        self.deadline: float | None = None
        """The time on the loop's clock by which the whole body has to be here; None if it may take long."""
        self.close_code: int | None = None
        """The code with which the peer closed a WebSocket."""
        self.close_reason = ""
        """The reason that it gave."""
        self.read_to_the_end = False
        """Whether somebody was reading when the client disconnected."""
        self.resumes = False
        """Whether the reader may stop in the middle and go on later, as the reader of a form does."""

    @classmethod
    def of(cls, receive: Receive) -> Reception:
        """The reception of this client; everybody with the same ``receive`` shares it."""
        reception = _receptions.get(receive)
        if reception is None:
            reception = _receptions[receive] = cls(receive)
        return reception

    # ---------------------------------------------------------------- for the reader
    def flux(self, label: str, next_chunk: Callable[[], Awaitable[Any]] | None = None) -> Flux[Any]:
        """Everything that the client sends, each chunk on demand; for one subscriber.

        ``next_chunk`` takes the place of our own, to make other chunks of what has arrived.
        """
        steps = steps_of(lambda: self._chunks(next_chunk or self.next_chunk), label, self.loop).do_on_cancel(
            self._left_by_its_reader
        )
        source = DeferSource(label, lambda: self.claim(steps), as_stream)
        source.ahead = LARGE
        return flux_of(source)

    def claim(self, steps: _Steps) -> _Steps:
        """Become the only reader, or fail with ReceiverTaken; returns what it was given."""
        try:
            self._unclaimed.pop()  # atomic: several threads may try
        except IndexError:
            raise ReceiverTaken(
                "what the peer sends already has a subscriber; subscribe once and share the stream "
                "with .share()"
            ) from None
        return steps

    async def _chunks(self, next_chunk: Callable[[], Awaitable[Any]]) -> AsyncIterator[Any]:
        try:
            while (chunk := await next_chunk()) is not None:
                yield chunk
        finally:
            self.drop()

    async def next_chunk(self) -> Any | None:
        """Wait for the next chunk or message; None at the end. Nothing is lost if the caller is cancelled."""
        held = self._held
        while not held and not self._whole and self._gone is None:
            try:
                async with asyncio.timeout_at(self.deadline):
                    await self._one_more()
            except TimeoutError:
                raise RequestTimeout(
                    f"the request had not arrived in time: {self._received} bytes of its body had"
                ) from None
        if held:
            chunk = held.popleft()
            self._held_bytes -= len(chunk)
            if self._below_bound:
                self._drained.set()
            return chunk
        if self._whole:
            return None
        assert self._gone is not None
        raise self._gone

    def _left_by_its_reader(self) -> None:
        """The reader has cancelled: perhaps before its first step, and on any thread."""
        call_on(self.loop, self.drop)

    def drop(self) -> None:
        """Nobody reads any more: throw away what has arrived, and what still arrives."""
        self._dropped = True
        self._held.clear()
        self._held_bytes = 0
        self._drained.set()
        self.resumes = False
        self._stop_unless_awaited()

    # ---------------------------------------------------------------- for the disconnect
    async def gone(self) -> Exception | None:
        """Wait until the client has disconnected. Returns that error, or None if we stopped listening."""
        while self._gone is None and not self._stopped:
            if self._below_bound or self._whole:
                await self._one_more()
            else:
                self._drained.clear()
                await self._drained.wait()
        return self._gone

    @property
    def client_left(self) -> bool:
        """Whether the client is known to have disconnected."""
        return self._gone is not None

    async def stop(self) -> None:
        """Stop listening. For the reader, that is the end of the stream.

        This comes before a WebSocket is closed: granian loses the close if somebody is still listening.
        """
        self._stopped = self._whole = True
        self._drained.set()
        if self._reading is not None:
            reading = self._reading
            reading.cancel()
            await asyncio.wait((reading,))

    @property
    def _below_bound(self) -> bool:
        return self._held_bytes < READ_AHEAD and len(self._held) < _MOST_CHUNKS

    # ---------------------------------------------------------------- reading
    async def _one_more(self) -> None:
        """Wait for the next message; several callers may wait for the same one."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
        reading = self._reading
        self._waiting += 1
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            waiter = asyncio.current_task()
            if not self._stopped or (waiter is not None and waiter.cancelling()):
                raise
        finally:
            self._waiting -= 1
            if not self.resumes:  # if it does, what arrives is for its next step
                self._stop_unless_awaited()

    def _stop_unless_awaited(self) -> None:
        """Stop reading if nobody waits. granian loses what arrives for a call that is cancelled."""
        reading = self._reading
        if reading is not None and not self._waiting:
            self._reading = None
            reading.cancel()

    async def _read(self) -> None:
        try:
            self._take(await self._receive())
        finally:
            if self._reading is asyncio.current_task():
                self._reading = None

    def _take(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.request":
            self._hold(message.get("body", b""))
            self._whole = not message.get("more_body", False)
        elif kind == "websocket.receive":
            text = message.get("text")
            # An empty message is a message, an empty chunk is nothing.
            self._hold(message["bytes"] if text is None else text, even_if_empty=True)
        elif kind == "http.disconnect":
            text = f"the client disconnected; {self._received} bytes of its request had arrived"
            self._leave(ClientGone(text))
        elif kind == "websocket.disconnect":
            self._closed(message)

    def _closed(self, message: Message) -> None:
        code = self.close_code = message.get("code") or 1005
        reason = self.close_reason = message.get("reason") or ""
        said = f"with code {code}" + (f" ({reason})" if reason else "")
        self._leave(WebSocketClosed(f"the client closed the WebSocket {said}", code=code, reason=reason))
        self._whole = code in CLEAN_CODES

    def _leave(self, error: Exception) -> None:
        self._gone = error
        self.read_to_the_end = not self._unclaimed and not self._dropped

    def _hold(self, chunk: Any, even_if_empty: bool = False) -> None:
        self._received += len(chunk)
        if self._dropped or self._stopped or not (chunk or even_if_empty):
            return
        self._held.append(chunk)
        self._held_bytes += len(chunk)


_receptions: WeakValueDictionary[Receive, Reception] = WeakValueDictionary()


def body(receive: Receive) -> Flux[bytes]:
    """The body of a request, in the chunks that the server makes of it; for one subscriber.

    ::

        async def app(scope, receive, send):
            total = body(receive).transform(lines()).count()
            await ndjson(total)(scope, receive, send)

    Emits when a chunk has arrived and there is demand.
    Backpressures when there is none: the server stops reading, and the client's upload has to wait.
    Completes when the whole body has arrived. It fails with ``ClientGone`` if the client disconnects before.
    Cancels when its subscriber cancels; the rest is thrown away as it arrives.
    """
    return Reception.of(receive).flux("body")
