"""A Publisher as the answer to a request: any ASGI server runs it, and the client's pace is the source's.

The source is subscribed to when the request comes, asked for a window of elements, and asked for more when
the server has taken what came: ``send()`` returns when the client's connection has room. What is there at the
same time goes out together, up to 64 KiB in one message, since a message costs as much as forty elements.

Once a client has gone, no server says so from ``send()``: it returns at once, and a source that never waits
would run for nobody and for ever. So somebody listens for the client's going all the time, and after every
``send()`` the loop gets a turn to hear of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from penstock.arguments import a_count
from penstock.net.framing import json_line
from penstock.net.http.asgi import Headers, Message, Receive, ResponseBroken, Scope, Send, header_pairs, named
from penstock.net.http.events import COMMENT, as_event
from penstock.net.http.outflow import PREFETCH, Outflow, as_bytes
from penstock.net.http.reception import Reception
from penstock.spec import Publisher
from penstock.streams.spi import Stream, as_flux, as_stream

__all__ = ["Response", "ndjson", "reply", "sse", "stream"]

_log = logging.getLogger("penstock.net.http")

_APOLOGY = b"the server could not produce this response\n"


class Response:
    """An answer whose body is a stream of bytes: an ASGI application for one kind of request.

    Made by :func:`stream`, :func:`ndjson` and :func:`sse`. It can answer any number of requests; each
    subscribes to the stream anew.
    """

    def __init__(
        self,
        source: Stream[Any],
        *,
        status: int = 200,
        headers: Headers | None = None,
        content_type: str = "application/octet-stream",
        prefetch: int = PREFETCH,
        headers_within: float | None = None,
        idle: tuple[float, bytes] | None = None,
    ) -> None:
        self._source = source
        self._prefetch = a_count(prefetch, "prefetch of a response")
        given = header_pairs(headers)
        names = {name for name, _ in given}
        # Whoever stands between (a cache, a proxy that collects) is asked to pass on what comes as it comes.
        usual = [
            (b"content-type", content_type.encode("latin-1")),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        self._status = status
        self._headers = [pair for pair in usual if pair[0] not in names] + given
        self._headers_within = headers_within
        self._idle = idle

    def start(self) -> Message:
        """The first message of an answer; a new one each time, because middleware adds headers to it."""
        return {"type": "http.response.start", "status": self._status, "headers": list(self._headers)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope.get("method") == "HEAD":  # the headers are all that is wanted: nobody runs the source
            await send(self.start())
            await send(_body(b"", more=False))
            return
        outflow = Outflow(self._prefetch)
        reception = Reception.of(receive)
        sending = asyncio.ensure_future(_ResponseRun(self, scope, send, reception, outflow).run())
        watching = asyncio.ensure_future(reception.gone())
        try:
            # Whatever the sending waits for, the source or a client that does not read: it is left when the
            # client is known to have gone.
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            else:
                _log.debug("%s: the client has gone (%s)", named(scope), watching.result())
        finally:
            outflow.cancel()
            await _stop(sending, watching)


async def _stop(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        # What a task raised was raised by whoever waited for it; only what came while it stopped is left.
        if isinstance(outcome, Exception):
            _log.debug("while stopping: %r", outcome)


class _ResponseRun:
    """One response on its way."""

    def __init__(
        self, response: Response, scope: Scope, send: Send, reception: Reception, outflow: Outflow
    ) -> None:
        self._response = response
        self._scope = scope
        self._send = send
        self._reception = reception
        self._outflow = outflow
        self._begun = False
        self._written = 0

    async def run(self) -> None:
        """Send until the end of the source, or of the client's interest."""
        heartbeat, comment = self._response._idle or (None, b"")
        patience = self._response._headers_within if heartbeat is None else self._first_patience(heartbeat)
        outflow = self._outflow
        outflow.begin(self._response._source)
        try:
            while True:
                try:
                    batch = await outflow.batch(patience=patience)
                except Exception as error:
                    await self._failed(error)
                    return
                await self._begin()
                if batch is None:
                    await self._put(_body(b"", more=False))
                    return
                # An empty message still makes the server send the headers.
                data = b"".join(batch) if batch else comment
                await self._put(_body(data, more=True))
                self._written += len(data)
                # When the client has gone this is what lets anybody notice.
                await asyncio.sleep(0)
                outflow.sent(len(batch), len(data))
                patience = heartbeat
        except _ClientLeft as left:
            _log.debug("%s: the client has gone (%r)", named(self._scope), left.__cause__)

    def _first_patience(self, heartbeat: float) -> float:
        within = self._response._headers_within
        return heartbeat if within is None else min(within, heartbeat)

    async def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            await self._put(self._response.start())

    async def _put(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError as gone:  # newer servers say so themselves
            raise _ClientLeft from gone

    async def _failed(self, error: Exception) -> None:
        if self._reception.client_left:
            # Most likely the source was reading what the client sent. There is nobody to tell.
            _log.debug("%s: the client has gone (%r)", named(self._scope), error)
            return
        if not self._begun:
            _log.error("%s: the source failed before its first byte", named(self._scope), exc_info=error)
            await _plain(self._send, 500, _APOLOGY)
            return
        what = f"{named(self._scope)}: the source failed after {self._written} bytes"
        # Without a traceback: the server is going to log the one of what is raised here, with its cause.
        _log.error("%s and the connection is broken off: %r", what, error)
        raise ResponseBroken(what) from error


class _ClientLeft(Exception):
    """The server says so itself."""


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _plain(send: Send, status: int, text: bytes, headers: Headers | None = None) -> None:
    usual = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
    given = header_pairs(headers)
    names = {name for name, _ in given}
    pairs = [pair for pair in usual if pair[0] not in names] + given
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send(_body(text, more=False))


def _made(source: Publisher[Any], by: str, encode: Callable[[Any], bytes], **settings: Any) -> Response:
    return Response(as_flux(as_stream(source, f"{by}()")).map(encode), **settings)


def stream(
    source: Publisher[bytes] | Publisher[str],
    *,
    status: int = 200,
    headers: Headers | None = None,
    content_type: str = "application/octet-stream",
    prefetch: int = PREFETCH,
    headers_within: float | None = None,
) -> Response:
    """Answer with the bytes of a stream; text is sent as UTF-8.

    At most ``prefetch`` elements are asked for ahead, fewer if they are large. The headers go out with the
    first element, so that a source which fails before it is a proper 500; ``headers_within`` seconds, if it
    is given, they go out anyway. When the source fails later, the connection is broken off.
    """
    return _made(
        source,
        "stream",
        as_bytes,
        status=status,
        headers=headers,
        content_type=content_type,
        prefetch=prefetch,
        headers_within=headers_within,
    )


def ndjson(
    source: Publisher[Any],
    *,
    status: int = 200,
    headers: Headers | None = None,
    prefetch: int = PREFETCH,
    headers_within: float | None = None,
) -> Response:
    """Answer with each element as JSON on a line of its own; the rest is as with :func:`stream`."""
    return _made(
        source,
        "ndjson",
        json_line,
        status=status,
        headers=headers,
        content_type="application/x-ndjson",
        prefetch=prefetch,
        headers_within=headers_within,
    )


def sse(
    source: Publisher[Any],
    *,
    status: int = 200,
    headers: Headers | None = None,
    prefetch: int = PREFETCH,
    headers_within: float | None = 1.0,
    heartbeat: float | None = 15.0,
) -> Response:
    """Answer with server-sent events: an :class:`Event` as it is, a text as data, anything else as JSON.

    While the source is idle, a comment goes out every ``heartbeat`` seconds: proxies keep the connection,
    and a client that is not there any more is noticed. The rest is as with :func:`stream`.
    """
    if heartbeat is not None and heartbeat <= 0:
        raise ValueError(f"heartbeat is a number of seconds, or None for no heartbeat, not {heartbeat}")
    return _made(
        source,
        "sse",
        lambda element: as_event(element).encode(),
        status=status,
        headers=headers,
        content_type="text/event-stream",
        prefetch=prefetch,
        headers_within=headers_within,
        idle=None if heartbeat is None else (heartbeat, COMMENT),
    )


class _Reply:
    def __init__(self, content: bytes, status: int, headers: Headers | None) -> None:
        self._content = content
        self._status = status
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _plain(send, self._status, self._content, self._headers)


def reply(content: bytes | str = b"", *, status: int = 200, headers: Headers | None = None) -> _Reply:
    """Answer with these bytes, or this text."""
    return _Reply(content.encode() if isinstance(content, str) else bytes(content), status, headers)
