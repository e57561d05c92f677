"""The lines of a response over HTTP. Needs the extra ``http``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, ClassVar, Final, cast

from penstock.delivery import Delivery
from penstock.feeds.connected import ConnectedFeed, ConnectionLost
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.lines import LineSplitter
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.net import NetError
from penstock.spec import Publisher
from penstock.streams import Flux

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

    def __init__(self, url: str, options: FeedOptions, *, name: str | None = None) -> None:
        super().__init__(name or url)
        self._url = url
        self._options = options
        self._restart = options.restart or "never"
        self.bad = self._bad = options.bad_lines()

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the lines, however many records the journal holds."""
        self._response()  # A package that is missing, or a wrong URL, is told at once.
        return super().__call__(journalled)

    def _response(self) -> Flux[bytes]:
        from penstock.net import http

        return http.get(self._url, timeout=None).receive()

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
            # What an `async for` over a Flux uses can be closed, as every asynchronous generator.
            iterator = cast("AsyncGenerator[bytes, None]", aiter(self._response()))
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
            if isinstance(error, http.BadStatus) and not _may_pass(error.status):
                raise
            raise ConnectionLost(str(error)) from error


def _may_pass(status: int) -> bool:
    return status >= _SERVER_ERRORS or status in _PASSING


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    if not url.rest:
        raise BadFeed(f"{url.text!r} has no host; write {url.scheme}://HOST/PATH")
    return HttpFeed(url.text, options, name=url.shown)


SCHEMES = tuple(
    Scheme(
        name,
        f"{name}://HOST/PATH",
        "the lines of a response, for as long as the server sends them",
        _open,
        options=frozenset({"restart"}),
    )
    for name in ("http", "https")
)
