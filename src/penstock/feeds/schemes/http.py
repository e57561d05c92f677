"""The lines of a response over HTTP. Needs the extra ``http``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from penstock.delivery import Delivery
from penstock.feeds.connected import ConnectedFeed, ConnectionLost
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.lines import LineSplitter
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.feeds.server_access import TLS_PARAMETERS, TOKEN_PARAMETERS, ServerAccess
from penstock.net import NetError
from penstock.spec import Publisher
from penstock.streams import Flux

if TYPE_CHECKING:
    from httpx2 import AsyncClient

__all__ = ["SCHEMES", "HttpFeed", "ResponseCut"]

_PASSING: Final = frozenset({408, 425, 429})
_SERVER_ERRORS: Final = 500
"""Answers of a server that may have another one later: these, and those from here on."""


class ResponseCut(Exception):
    """The connection ended before the response did."""


class HttpFeed(ConnectedFeed):
    """The lines of a response, for as long as the server sends them.

    A server that is not there, or that cannot answer at the moment, is asked again, with pauses that grow to
    half a minute: the feed is then down. The end of the response is the end of the feed. A response that is
    cut short is an error: if the feed asked again, a server that has only one answer would send its first
    lines twice. ``restart`` is for servers that continue: with on-failure the feed asks again after a cut,
    with always also after the end of a response.
    """

    lost: ClassVar[tuple[type[BaseException], ...]] = (ConnectionLost,)

    def __init__(
        self,
        url: str,
        options: FeedOptions,
        *,
        name: str | None = None,
        access: ServerAccess | None = None,
    ) -> None:
        super().__init__(name or url)
        self._url = url
        self._access = access or ServerAccess()
        self._options = options
        self._restart = options.restart or "never"
        self.bad = self._bad = options.bad_lines()

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the lines, however many records the journal holds."""
        self._response()  # A package that is missing, or a wrong URL, is told at once.
        return super().__call__(journalled)

    def _response(self, client: AsyncClient | None = None) -> Flux[bytes]:
        from penstock.net import http

        return http.get(self._url, timeout=None, headers=self._access.headers, client=client).receive()

    def _client(self) -> AbstractAsyncContextManager[AsyncClient | None]:
        """A client that trusts other certificates than usual, if they are named."""
        if self._access.context is None:
            return nullcontext()
        import httpx2

        return httpx2.AsyncClient(verify=self._access.context)

    async def connection(self) -> AsyncGenerator[Any, None]:
        """Ask for the response, and yield its lines."""
        splitter = LineSplitter(self._options.max_line, self._options.decoder(), self._bad)
        try:
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    for delivery in self._lines_of(chunk, splitter):
                        yield delivery
        except (ConnectionLost, ResponseCut):
            self._leave_out_the_rest(splitter)
            raise
        # A response that is cut short is an error, so its end also ends its last line.
        last = list(splitter.finish())
        if last:
            yield Delivery(last)
        if self._restart == "always":
            raise ConnectionLost("the response has ended")

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        from penstock.net import http

        begun = False
        try:
            async with self._client() as client:
                # What an `async for` over a Flux uses can be closed, as every asynchronous generator.
                iterator = cast("AsyncGenerator[bytes, None]", aiter(self._response(client)))
                async with aclosing(iterator) as chunks:
                    async for chunk in chunks:
                        if not begun:
                            begun = True
                            self.connected()
                        yield chunk
        except NetError as error:
            if begun and self._restart == "never":
                raise ResponseCut(
                    f"the response of {self.name} was cut short: {error}; if the server continues where it "
                    "was, --restart on-failure asks again"
                ) from error
            self._access.check_certificate(self.name, error)
            if isinstance(error, http.BadStatus) and not _may_pass(error.status):
                self._access.check_status(self.name, error.status)
                raise
            raise ConnectionLost(str(error)) from error


def _may_pass(status: int) -> bool:
    return status >= _SERVER_ERRORS or status in _PASSING


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    if not url.rest:
        raise BadFeed(f"{url.text!r} has no host; write {url.scheme}://HOST/PATH")
    return HttpFeed(url.target, options, name=url.shown_target, access=ServerAccess.of(url))


SCHEMES = tuple(
    Scheme(
        name,
        f"{name}://HOST/PATH",
        "the lines of a response, for as long as the server sends them",
        _open,
        separator="#",
        parameters={**TOKEN_PARAMETERS, **(TLS_PARAMETERS if name == "https" else {})},
        options=frozenset({"restart"}),
    )
    for name in ("http", "https")
)
