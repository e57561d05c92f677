"""The lines of a response over HTTP. Needs the extra ``http``."""

from __future__ import annotations

from typing import Any

from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.lines import ElementDecoder, LineSplitter
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.net.framing import frames
from penstock.spec import Publisher

__all__ = ["SCHEMES", "HttpFeed"]


class HttpFeed(Feed):
    """The lines of a response, for as long as the server sends them."""

    def __init__(self, url: str, options: FeedOptions, *, name: str | None = None) -> None:
        self._url = url
        self.bad = options.bad_lines()
        self._splitter = LineSplitter(options.max_line, options.decoder(), self.bad)
        self.name = name or url

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the lines, however many records the journal holds."""
        from penstock.net import http

        # A response that is cut short is an error, so its end also ends its last line.
        response = http.get(self._url, timeout=None).receive()
        return frames(response, lambda: ElementDecoder(self._splitter, end_is_newline=True))


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    if not url.rest:
        raise BadFeed(f"{url.text!r} has no host; write {url.scheme}://HOST/PATH")
    return HttpFeed(url.text, options, name=url.shown)


SCHEMES = tuple(
    Scheme(
        name, f"{name}://HOST/PATH", "the lines of a response, for as long as the server sends them", _open
    )
    for name in ("http", "https")
)
