"""A client whose answers are streams: what is not asked for stays with the server.

A chunk is read from the socket when somebody wants it. Who reads slowly closes the window of the connection,
and the server waits. An upload is the same the other way round.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from penstock.net.errors import ConnectFailed, ConnectionAborted, HandshakeFailed, IdleTimeout, NetError
from penstock.net.framing import BadFrame, frames, lines
from penstock.net.http.asgi import BadStatus, Headers
from penstock.net.http.events import LONGEST_EVENT, Event, EventDecoder
from penstock.net.http.outflow import LARGE, PREFETCH, Outflow, as_bytes
from penstock.spec import Publisher
from penstock.streams import Flux, Mono
from penstock.streams.spi import AsyncIterableSource, Stream, as_flux, as_stream, flux_of

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = ["Answer", "Call", "get", "post", "request"]

_SHOWN = 1024
"""As much of an error's body is kept."""
_LONGEST_ANSWER = 16 * 1024 * 1024
_LONGEST_LINE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that is sent, anew, whenever one of its streams is subscribed to.

    Made by :func:`get`, :func:`post` and :func:`request`.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    params: Mapping[str, Any] | None = None
    content: Stream[Any] | bytes | None = None
    timeout: float | None = 30.0
    client: httpx2.AsyncClient | None = None

    # ---------------------------------------------------------------- streams
    def receive(self) -> Flux[bytes]:
        """The body of the answer, in the chunks that it comes in.

        Emits when a chunk has come and there is demand.
        Backpressures when there is none: the socket is not read, and the server waits.
        Completes when all of the body has come; a connection that ends before that is an error, and so is
        any status from 300 on.
        Cancels when its subscriber cancels; the connection is closed.
        """
        _library()
        source = AsyncIterableSource(self.method.lower(), self._chunks, self.url)
        source.ahead = LARGE
        return flux_of(source)

    def lines(self, max_length: int = _LONGEST_LINE, encoding: str = "utf-8") -> Flux[str]:
        """The body as lines of text."""
        return self.receive().transform(lines(max_length, encoding=encoding))

    def ndjson(self, max_length: int = _LONGEST_LINE) -> Flux[Any]:
        """The body as JSON, one value to a line; empty lines are left out."""
        return self.receive().transform(lines(max_length)).filter(bytes.strip).map(_parsed)

    def events(self, max_length: int = LONGEST_EVENT) -> Flux[Event]:
        """The body as server-sent events."""
        return frames(self.receive(), lambda: EventDecoder(max_length), label="events()")

    def answer(self, max_length: int = _LONGEST_ANSWER) -> Mono[Answer]:
        """The whole answer at once, for one that is known to be short; a longer one is an error."""
        _library()

        async def whole() -> Answer:
            async with self._response() as response:
                content = bytearray()
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > max_length:
                        raise NetError(
                            f"the answer of {self.url} has more than {max_length} bytes; "
                            "set max_length higher, or take it as a stream with receive()"
                        )
                return Answer(response.status_code, dict(response.headers), bytes(content))

        return Mono.from_callable(whole)

    # ---------------------------------------------------------------- how it is done
    async def _chunks(self) -> AsyncIterator[bytes]:
        async with self._response() as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    @contextlib.asynccontextmanager
    async def _response(self) -> AsyncIterator[httpx2.Response]:
        """Open the response; in the end close it, the connection if it is ours, and the upload."""
        http = _library()
        headers = {"accept-encoding": "identity", **dict(self.headers)}
        # A server that takes an upload slowly is what backpressure looks like, not a failure: no write limit.
        limits = http.Timeout(self.timeout, write=None)
        async with contextlib.AsyncExitStack() as opened:
            content: Any = self.content
            if isinstance(content, Stream):
                content = await opened.enter_async_context(contextlib.aclosing(_upload(content)))
            try:
                client = self.client
                if client is None:
                    own: httpx2.AsyncClient = http.AsyncClient(verify=_trust(), timeout=limits)
                    client = await opened.enter_async_context(own)
                response = await opened.enter_async_context(
                    client.stream(
                        self.method,
                        self.url,
                        headers=headers,
                        params=self.params,
                        content=content,
                        timeout=limits,
                        follow_redirects=not isinstance(self.content, Stream),
                    )
                )
                if response.status_code >= 300:
                    raise await self._refusal(response)
                yield response
            except (http.HTTPError, http.InvalidURL) as error:
                raise self._translated(error) from error

    async def _refusal(self, response: httpx2.Response) -> BadStatus:
        shown = bytearray()
        async for chunk in response.aiter_bytes():
            shown += chunk
            if len(shown) >= _SHOWN:
                break
        content = bytes(shown[:_SHOWN])
        text = content.decode("utf-8", "replace").strip()
        status = f"{response.status_code} {response.reason_phrase}".strip()
        return BadStatus(
            f"{self.method} {self.url} was answered with {status}" + (f": {text}" if text else ""),
            status=response.status_code,
            body=content,
        )

    def _translated(self, error: Exception) -> NetError:
        http = _library()
        if isinstance(error, http.ConnectError | http.ConnectTimeout | http.PoolTimeout):
            reason = _at_the_bottom(error)
            kind = HandshakeFailed if type(reason).__module__ == "ssl" else ConnectFailed
            return kind.to(self.url, reason)
        if isinstance(error, http.TimeoutException):
            return IdleTimeout(f"{self.method} {self.url}: nothing came for {self.timeout} s")
        if isinstance(error, http.NetworkError | http.RemoteProtocolError):
            return ConnectionAborted(f"{self.method} {self.url}: the connection was lost ({error})")
        return NetError(f"{self.method} {self.url}: {str(error) or type(error).__name__}")


async def _upload(source: Stream[Any]) -> AsyncIterator[bytes]:
    """The elements of a stream, joined where several are there; the next ones when these are sent."""
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
    """The operating system's own error below those of the libraries; a time-out counts as one."""
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
    except ValueError as wrong:
        raise BadFrame(f"a line is no JSON: {wrong}: {line!r:.80}") from wrong
    if value is None:
        raise BadFrame("a line is null, which cannot be an element of a stream; take lines() instead")
    return value


def _library() -> Any:
    try:
        import httpx2
    except ImportError:
        raise ImportError("the HTTP client needs httpx2: pip install 'penstock-streams[http]'") from None
    return httpx2


@cache
def _trust() -> ssl.SSLContext:
    """Reading all the authorities of the world takes longer than many a request: once is enough."""
    context: ssl.SSLContext = _library().create_ssl_context()
    return context


def request(
    method: str,
    url: str,
    *,
    headers: Headers | None = None,
    params: Mapping[str, Any] | None = None,
    content: Publisher[bytes] | bytes | str | None = None,
    timeout: float | None = 30.0,
    client: httpx2.AsyncClient | None = None,
) -> Call:
    """A request to be sent: ``receive()``, ``lines()``, ``ndjson()``, ``events()`` or ``answer()`` do that.

    ``content`` may be a publisher of bytes, which is asked for as much as the server takes. ``timeout`` says
    for how many seconds nothing may come while somebody waits for it; who reads slowly does not run into it.
    A ``client`` keeps its connections for the next request; without one, each request has its own.
    """
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
    )


class Options(TypedDict, total=False):
    """What can be said about a request; see :func:`request`."""

    headers: Headers | None
    params: Mapping[str, Any] | None
    timeout: float | None
    client: httpx2.AsyncClient | None


def get(url: str, **options: Unpack[Options]) -> Call:
    """Ask for what is at ``url``; the options are those of :func:`request`."""
    return request("GET", url, **options)


def post(url: str, content: Publisher[bytes] | bytes | str | None = None, **options: Unpack[Options]) -> Call:
    """Send something to ``url``; the options are those of :func:`request`."""
    return request("POST", url, content=content, **options)
