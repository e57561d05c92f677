"""Server-sent events over HTTP: a restart asks the server for what follows the last event that is stored."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.delivery import Delivery
from penstock.feeds.connected import ConnectedFeed, ConnectionLost
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.lines import LineTooLong
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.feeds.server_access import TLS_PARAMETERS, TOKEN_PARAMETERS, ServerAccess
from penstock.net.framing import BadFrame, FrameTooLong
from penstock.net.http import Event, EventDecoder, WrongEvent

__all__ = ["SCHEMES", "EventFeed"]

_MARK: Final = "last-event-id"
_OK: Final = 200
_NO_CONTENT: Final = 204
_CONNECT: Final = 10.0
"""Seconds for connecting."""
_SHORTEST_PAUSE: Final = 0.05
"""Seconds between two connections, whatever the server says in ``retry:``."""
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
"""A server that is gone without a word is noticed after a minute."""
_NOT_IN_A_HEADER: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class EventFeed(ConnectedFeed):
    """The data of server-sent events. The id of the last one is stored with it, and sent when connecting.

    A server that honours ``Last-Event-ID`` gives each event exactly once. An answer of 204 ends the feed.
    """

    def __init__(
        self,
        url: str,
        options: FeedOptions,
        *,
        name: str | None = None,
        access: ServerAccess | None = None,
    ) -> None:
        super().__init__(name or url)
        self.bad = self._bad = options.bad_lines()
        self._url = url
        self._access = access or ServerAccess()
        self._decode = options.decoder()
        self._longest = options.max_line
        self._last: str | None = None

    def resume(self, marks: Mapping[str, str]) -> None:
        """Continue after the last event that is in the journal."""
        self._last = marks.get(_MARK)

    async def connection(self) -> AsyncGenerator[Any, None]:
        """Ask for the events after the last one, and yield them."""
        httpx2 = _library()
        headers: dict[str, str | bytes] = {"accept": "text/event-stream", "cache-control": "no-cache"}
        headers |= self._access.headers
        if self._last:
            headers["last-event-id"] = self._last.strip().encode()
        decoder = EventDecoder(self._longest, keep_wrong=self._bad.policy != "fail")
        patience = httpx2.Timeout(None, connect=_CONNECT)
        # Events may be hours apart. The system finds out whether the server is still there.
        transport = httpx2.AsyncHTTPTransport(verify=self._access.context or True, socket_options=_KEEP_ALIVE)
        try:
            async with (
                httpx2.AsyncClient(timeout=patience, follow_redirects=True, transport=transport) as client,
                client.stream("GET", self._url, headers=headers) as response,
            ):
                if response.status_code == _NO_CONTENT:
                    return
                if response.status_code != _OK:
                    self._access.check_status(self.name, response.status_code)
                    raise ConnectionLost(f"the server answers with status {response.status_code}")
                kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                if kind != "text/event-stream":
                    raise ConnectionLost(
                        f"the server answers with {kind or 'no content type'}, but server-sent events are "
                        "text/event-stream; check the address"
                    )
                self.connected()
                async for chunk in response.aiter_bytes():
                    for event in decoder.feed(chunk):
                        yield self._taken(event)
        except (BadFrame, FrameTooLong) as error:
            # With the policy fail alone, so this raises. Otherwise there is a WrongEvent, and others follow.
            self._bad.refuse(self._fault(error), at="an event" if isinstance(error, FrameTooLong) else "")
        except httpx2.HTTPError as error:
            self._access.check_certificate(self.name, error)
            raise ConnectionLost(str(error) or type(error).__name__) from error
        raise ConnectionLost("the server has ended the stream")

    def _taken(self, event: Event) -> Delivery:
        if event.retry is not None:
            first = min(max(event.retry / 1000, _SHORTEST_PAUSE), self.backoff.longest)
            self.backoff = replace(self.backoff, first=first)
        if event.id is not None:
            if _NOT_IN_A_HEADER.search(event.id):
                error = ValueError(f"the event id {event.id!r} has characters that no header can have")
                return Delivery(self._bad.refuse(error, event.data.encode()))
            self._last = event.id
        if isinstance(event, WrongEvent):
            return self._refused(event)
        return self._delivery(event.data)

    def _refused(self, event: WrongEvent) -> Delivery:
        """Skip an event, or hand it on as a bad one; its id is stored, so that it is not sent again."""
        at = f"event {event.id}" if event.id is not None else "an event"
        # What is missing of one that is too long is not known: its size says that there was more.
        size = event.error.length if isinstance(event.error, FrameTooLong) else None
        records = self._bad.refuse(self._fault(event.error), event.data.encode(), at=at, size=size)
        return Delivery(records, {_MARK: self._last} if self._last is not None else {})

    def _fault(self, error: Exception | None) -> Exception:
        if isinstance(error, FrameTooLong):
            return LineTooLong(f"has more than {self._longest} bytes; allow more with max_line (--max-line)")
        return ValueError(str(error))

    def _delivery(self, text: str) -> Delivery:
        records: list[Any] = []
        data = text.encode()
        try:
            if data:
                records = [data if self._decode is None else self._decode(data)]
        except (ValueError, RecursionError, OverflowError) as error:
            records = list(self._bad.refuse(error, data, at=f"event {self._last}"))
        return Delivery(records, {_MARK: self._last} if self._last is not None else {})


def _library() -> Any:
    try:
        import httpx2
    except ModuleNotFoundError as error:
        raise BadFeed("server-sent events need httpx2: pip install 'penstock-streams[http]'") from error
    return httpx2


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    access = ServerAccess.of(url)
    _library()
    return EventFeed(url.target.removeprefix("sse+"), options, name=url.shown_target, access=access)


SCHEMES = tuple(
    Scheme(
        f"sse+{name}",
        f"sse+{name}://HOST/PATH",
        "the data of server-sent events; the feed reconnects, and continues after the last event",
        _open,
        separator="#",
        parameters={**TOKEN_PARAMETERS, **(TLS_PARAMETERS if name == "https" else {})},
    )
    for name in ("http", "https")
)
