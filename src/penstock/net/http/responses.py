"""A Publisher as a response: any ASGI server runs it, and the client's pace is the source's pace.

The source is subscribed to when the request arrives. It is asked for more when the server has taken what
came: ``send()`` returns when the client's connection has room. Elements that are ready at the same time are
sent together, up to 64 KiB in one message, because a message costs as much as forty elements.

When a client has disconnected, servers do not say so from ``send()``: it returns at once, and a source that
never waits would run for nobody and for ever. So a task listens for the disconnect all the time, and after
every ``send()`` the loop gets a turn to notice it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from penstock.arguments import a_count
from penstock.net.framing import json_line
from penstock.net.http.asgi import (
    App,
    Headers,
    Message,
    Receive,
    RequestRefused,
    ResponseBroken,
    Scope,
    Send,
    header_pairs,
    named,
)
from penstock.net.http.events import COMMENT, as_event
from penstock.net.http.outflow import PREFETCH, Outflow, as_bytes
from penstock.net.http.reception import Reception
from penstock.spec import Publisher
from penstock.streams.spi import Stream, as_flux, as_stream

__all__ = ["Response", "ndjson", "reply", "sse", "stream"]

_log = logging.getLogger("penstock.net.http")

_APOLOGY = b"the server could not produce this response\n"


class Response:
    """A response whose body is a stream of bytes. It is an ASGI application.

    Made by :func:`stream`, :func:`ndjson` and :func:`sse`. It can answer any number of requests; each of them
    subscribes to the stream.
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
        at_once: bool = True,
    ) -> None:
        self._source = source
        self._prefetch = a_count(prefetch, "prefetch of a response")
        given = header_pairs(headers)
        names = {name for name, _ in given}
        usual = [(b"content-type", content_type.encode("latin-1"))]
        if at_once:  # caches and proxies on the way are asked to pass on each part as it arrives
            usual += [(b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        self._status = status
        self._headers = [pair for pair in usual if pair[0] not in names] + given
        self._headers_within = headers_within
        self._idle = idle

    def start(self) -> Message:
        """The first message of a response; a new one each time, because middleware adds headers to it."""
        return {"type": "http.response.start", "status": self._status, "headers": list(self._headers)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope.get("method") == "HEAD":  # only the headers are wanted: the source does not run
            await send(self.start())
            await send(_body(b"", more=False))
            return
        outflow = Outflow(self._prefetch)
        reception = Reception.of(receive)
        sending = asyncio.ensure_future(_ResponseRun(self, scope, send, reception, outflow).run())
        watching = asyncio.ensure_future(reception.gone())
        try:
            # Whatever the sending waits for, the source or a client that does not read, it is cancelled when
            # the client is known to have disconnected.
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            else:
                _log.debug("%s: the client disconnected (%s)", named(scope), watching.result())
        finally:
            outflow.cancel()
            await _stop(sending, watching)


async def _stop(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        # Errors of a task have been raised already; this one came up while it was being stopped.
        if isinstance(outcome, Exception):
            _log.debug("while stopping: %r", outcome)


class _ResponseRun:
    """One response that is being sent."""

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
        """Send until the source ends or the client disconnects."""
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
                # Let the task that listens for a disconnect run.
                await asyncio.sleep(0)
                outflow.sent(len(batch), len(data))
                patience = heartbeat
        except _ClientLeft as left:
            _log.debug("%s: the client disconnected (%r)", named(self._scope), left.__cause__)

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
        except OSError as gone:  # newer servers report a disconnect here
            raise _ClientLeft from gone

    async def _failed(self, error: Exception) -> None:
        if self._reception.client_left:
            # Most likely the source was reading from the client. There is nobody to answer.
            _log.debug("%s: the client disconnected (%r)", named(self._scope), error)
            return
        if not self._begun and isinstance(error, RequestRefused):
            _log.info("%s: refused: %s", named(self._scope), error)
            await _plain(self._send, error.status, f"{error}\n".encode())
            return
        if not self._begun:
            _log.error("%s: the source failed before its first byte", named(self._scope), exc_info=error)
            await _plain(self._send, 500, _APOLOGY)
            return
        what = f"{named(self._scope)}: the source failed after {self._written} bytes"
        # Without a traceback: the server logs that of what is raised here, with its cause.
        _log.error("%s, so the connection is broken: %r", what, error)
        raise ResponseBroken(what) from error


class _ClientLeft(Exception):
    """The server reports that the client disconnected."""


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _plain(send: Send, status: int, text: bytes, headers: Headers | None = None) -> None:
    usual = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
    given = header_pairs(headers)
    names = {name for name, _ in given}
    if not text and status in (204, 304):  # there is no body whose length could be told (§8.6)
        usual = []
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

    At most ``prefetch`` elements are asked for ahead, fewer if they are large. The headers are sent with the
    first element, so that a source which fails before it becomes a proper 500; with ``headers_within`` they
    are sent after so many seconds in any case. If the source fails later, the connection is broken.
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
    """Answer with each element as JSON on a line of its own. The rest is as in :func:`stream`."""
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
    """Answer with server-sent events: an :class:`Event` as it is, text as data, anything else as JSON.

    While the source is idle, a comment is sent every ``heartbeat`` seconds, so that proxies keep the
    connection open and a lost client is noticed. The rest is as in :func:`stream`.
    """
    if heartbeat is not None and heartbeat <= 0:
        raise ValueError(
            f"heartbeat has to be a number of seconds above 0, or None for no heartbeat, not {heartbeat}"
        )
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


def reply(content: bytes | str = b"", *, status: int = 200, headers: Headers | None = None) -> App:
    """Answer with these bytes, or this text."""
    return _Reply(content.encode() if isinstance(content, str) else bytes(content), status, headers)
