"""An HTTP client whose responses are streams.

A chunk is read from the socket when there is demand for it. If the subscriber is slow, the window of the
connection fills up and the server has to wait. Uploads work the same way in the other direction.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from penstock.net.errors import ConnectFailed, ConnectionAborted, HandshakeFailed, IdleTimeout, NetError
from penstock.net.framing import BadFrame, frames, lines
from penstock.net.http.asgi import BadEncoding, BadStatus, Headers, PoolExhausted, without_password
from penstock.net.http.events import LONGEST_EVENT, Event, EventDecoder
from penstock.net.http.inflation import INFLATED, inflated
from penstock.net.http.outflow import LARGE, PREFETCH, Outflow, as_bytes
from penstock.net.http.pool import HttpLease, HttpPool, check_port, http_pool, httpx2_library
from penstock.spec import Publisher
from penstock.streams import Flux, Mono
from penstock.streams.spi import AsyncIterableSource, Stream, as_flux, as_stream, flux_of

if TYPE_CHECKING:
    import httpx2

__all__ = ["Answer", "Call", "get", "post", "request"]

_SHOWN = 1024
"""How much of an error response's body is kept."""
_LONGEST_ANSWER = 16 * 1024 * 1024
_LONGEST_LINE = 1024 * 1024
_OF_LIBRARIES = frozenset({"br", "zstd"})
"""The encodings that are left to httpx2."""
_MOST_ENCODINGS = 4
"""So many times over a body may be compressed; more than once is hardly ever of use."""
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request. It is sent each time that one of its streams is subscribed to.

    Made by :func:`get`, :func:`post` and :func:`request`.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    params: Mapping[str, Any] | None = None
    content: Stream[Any] | bytes | None = None
    timeout: float | None = 30.0
    client: httpx2.AsyncClient | None = None
    pool: HttpPool | None = None

    def __repr__(self) -> str:
        """Without the headers, the parameters and the content, which may be secrets."""
        return f"Call({self.method} {self._place})"

    # ---------------------------------------------------------------- streams
    def receive(self) -> Flux[bytes]:
        """The body of the response, in the chunks in which it arrives.

        Emits when a chunk has arrived and there is demand.
        Backpressures when there is none: the socket is not read, and the server has to wait.
        Completes when the whole body has arrived. It fails if the connection ends before that, or if the
        status is 300 or above.
        Cancels when its subscriber cancels; the connection is closed.
        """
        httpx2_library()
        source = AsyncIterableSource(self.method.lower(), self._chunks, self._place)
        source.ahead = LARGE
        return flux_of(source)

    def lines(self, max_length: int = _LONGEST_LINE, encoding: str = "utf-8") -> Flux[str]:
        """The body as lines of text."""
        return self.receive().transform(lines(max_length, encoding=encoding))

    def ndjson(self, max_length: int = _LONGEST_LINE) -> Flux[Any]:
        """The body as JSON, one value per line; empty lines are skipped."""
        return self.receive().transform(lines(max_length)).filter(bytes.strip).map(_parsed)

    def events(self, max_length: int = LONGEST_EVENT) -> Flux[Event]:
        """The body as server-sent events."""
        return frames(self.receive(), lambda: EventDecoder(max_length), label="events()")

    def answer(self, max_length: int = _LONGEST_ANSWER) -> Mono[Answer]:
        """The whole response at once, if it is known to be short. It fails if the response is longer."""
        httpx2_library()

        async def whole() -> Answer:
            async with self._response() as response:
                content = bytearray()
                async for chunk in self._content_of(response):
                    content += chunk
                    if len(content) > max_length:
                        raise NetError(
                            f"the response of {self._place} has more than {max_length} bytes; "
                            "increase max_length, or read it as a stream with receive()"
                        )
                return Answer(response.status_code, dict(response.headers), bytes(content))

        return Mono.from_callable(whole)

    # ---------------------------------------------------------------- how it is done
    async def _chunks(self) -> AsyncIterator[bytes]:
        async with self._response() as response:
            async for chunk in self._content_of(response):
                yield chunk

    async def _content_of(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """The chunks of the body. A few compressed bytes can stand for gigabytes: no chunk is that large."""
        named = response.headers.get("content-encoding", "").split(",")
        encodings = [name.strip().lower() for name in named]
        ours = [encoding for encoding in encodings if encoding in INFLATED]
        if not ours or not _OF_LIBRARIES.isdisjoint(encodings):
            async for chunk in response.aiter_bytes():
                yield chunk
            return
        if len(ours) > _MOST_ENCODINGS:
            raise NetError(f"the response of {self._place} is compressed {len(ours)} times over")
        async with contextlib.AsyncExitStack() as opened:
            chunks: AsyncIterator[bytes] = response.aiter_raw()
            for encoding in reversed(ours):
                layer = inflated(chunks, f"response of {self._place}", encoding)
                chunks = await opened.enter_async_context(contextlib.aclosing(layer))
            try:
                async for chunk in chunks:
                    yield chunk
            except BadEncoding as wrong:
                raise NetError(str(wrong)) from wrong

    @contextlib.asynccontextmanager
    async def _response(self) -> AsyncIterator[httpx2.Response]:
        """Open the response. At the end close it and the upload, and give back the connection."""
        http = httpx2_library()
        async with contextlib.AsyncExitStack() as opened:
            content: Any = self.content
            if isinstance(content, Stream):
                content = await opened.enter_async_context(contextlib.aclosing(_upload(content)))
            try:
                lease = await opened.enter_async_context(self._lease())
                try:
                    response = await opened.enter_async_context(self._sent(lease, content))
                except (http.RemoteProtocolError, http.ReadError, http.WriteError):
                    if not (lease.shared and self._may_be_repeated):
                        raise
                    # The server closed the connection at the moment in which it was used again.
                    response = await opened.enter_async_context(self._sent(lease, content))
                if response.status_code >= 300:
                    raise await self._refusal(response)
                yield response
            except (http.HTTPError, http.InvalidURL) as error:
                raise self._translated(error) from error

    def _sent(
        self, lease: HttpLease, content: Any
    ) -> contextlib.AbstractAsyncContextManager[httpx2.Response]:
        check_port(httpx2_library().URL(self.url))
        headers = list(self.headers)
        if all(name != "accept-encoding" for name, _ in headers):
            headers.append(("accept-encoding", "identity"))
        return lease.client.stream(
            self.method,
            self.url,
            headers=headers,
            params=self.params,
            content=content,
            # A server that takes an upload slowly is backpressure and not a failure: no write timeout.
            timeout=httpx2_library().Timeout(self.timeout, write=None),
            follow_redirects=not isinstance(self.content, Stream),
            extensions=lease.extensions,
        )

    @property
    def _place(self) -> str:
        """The address as errors show it."""
        return without_password(self.url)

    @property
    def _may_be_repeated(self) -> bool:
        return self.method in _IDEMPOTENT and not isinstance(self.content, Stream)

    def _lease(self) -> contextlib.AbstractAsyncContextManager[HttpLease]:
        if self.client is not None:
            return contextlib.nullcontext(HttpLease(self.client))
        return (self.pool or http_pool()).lease(self.method, self.url)

    async def _refusal(self, response: httpx2.Response) -> BadStatus:
        shown = bytearray()
        async for chunk in self._content_of(response):
            shown += chunk
            if len(shown) >= _SHOWN:
                break
        content = bytes(shown[:_SHOWN])
        text = content.decode("utf-8", "replace").strip()
        status = f"{response.status_code} {response.reason_phrase}".strip()
        return BadStatus(
            f"{self.method} {self._place} was answered with {status}" + (f": {text}" if text else ""),
            status=response.status_code,
            body=content,
        )

    def _translated(self, error: Exception) -> NetError:
        http = httpx2_library()
        if isinstance(error, http.PoolTimeout):
            return PoolExhausted(
                f"{self.method} {self._place}: no connection of its client became free within "
                f"{self.timeout} s; read the responses to their end or cancel them, or give the client "
                "higher limits"
            )
        if isinstance(error, http.ConnectError | http.ConnectTimeout):
            reason = _at_the_bottom(error)
            kind = HandshakeFailed if type(reason).__module__ == "ssl" else ConnectFailed
            return kind.to(self._place, reason)
        if isinstance(error, http.TimeoutException):
            return IdleTimeout(f"{self.method} {self._place}: nothing arrived for {self.timeout} s")
        if isinstance(error, http.NetworkError | http.RemoteProtocolError):
            return ConnectionAborted(f"{self.method} {self._place}: the connection was lost ({error})")
        return NetError(f"{self.method} {self._place}: {str(error) or type(error).__name__}")


async def _upload(source: Stream[Any]) -> AsyncIterator[bytes]:
    """The elements of a stream, joined when there are several. More are requested when these are sent."""
    outflow = Outflow(PREFETCH)
    outflow.begin(source)
    try:
        while (batch := await outflow.batch()) is not None:
            data = b"".join(batch)
            yield data
            outflow.sent(len(batch), len(data))
    finally:
        outflow.cancel()


def _at_the_bottom(error: BaseException) -> BaseException:
    """The operating system's error behind those of the libraries; a timeout counts as one."""
    found, below = error, error.__cause__ or error.__context__
    while below is not None:
        if isinstance(below, OSError):
            found = below
        below = below.__cause__ or below.__context__
    if found is error and "Timeout" in type(error).__name__:
        return TimeoutError()
    return found


def _parsed(line: bytes) -> Any:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as wrong:  # the latter for a line of brackets, as long as one may be
        raise BadFrame(f"a line is not JSON: {wrong}: {line!r:.80}") from wrong
    if value is None:
        raise BadFrame("a line is null, which cannot be an element of a stream; use lines() instead")
    return value


def request(
    method: str,
    url: str,
    *,
    headers: Headers | None = None,
    params: Mapping[str, Any] | None = None,
    content: Publisher[bytes] | bytes | str | None = None,
    timeout: float | None = 30.0,
    client: httpx2.AsyncClient | None = None,
    pool: HttpPool | None = None,
) -> Call:
    """A request; ``receive()``, ``lines()``, ``ndjson()``, ``events()`` or ``answer()`` send it.

    ``content`` may be a publisher of bytes, which is asked for as much as the server takes. The request fails
    if there is demand and nothing arrives for ``timeout`` seconds; a slow subscriber does not run into it.

    Requests share the connections of :func:`http_pool`, or of a ``pool`` with other bounds. A ``client`` of
    yours has its own.
    """
    if client is not None and pool is not None:
        raise ValueError("a request has a client or a pool, not both: a client has connections of its own")
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    body: Stream[Any] | bytes | None
    if content is None or isinstance(content, bytes):
        body = content
    elif isinstance(content, str):
        body = content.encode()
    else:
        body = as_flux(as_stream(content, "the content of a request")).map(as_bytes)
    return Call(
        method=method.upper(),
        url=url,
        headers=tuple((name.lower(), value) for name, value in pairs),
        params=params,
        content=body,
        timeout=timeout,
        client=client,
        pool=pool,
    )


class RequestOptions(TypedDict, total=False):
    """The options of a request; see :func:`request`."""

    headers: Headers | None
    params: Mapping[str, Any] | None
    timeout: float | None
    client: httpx2.AsyncClient | None
    pool: HttpPool | None


def get(url: str, **options: Unpack[RequestOptions]) -> Call:
    """A GET request; the options are those of :func:`request`."""
    return request("GET", url, **options)


def post(
    url: str, content: Publisher[bytes] | bytes | str | None = None, **options: Unpack[RequestOptions]
) -> Call:
    """A POST request; the options are those of :func:`request`."""
    return request("POST", url, content=content, **options)
