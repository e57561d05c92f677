"""Messages over WebSocket: from a server to which the feed connects, or from those who connect to the feed.

Each message is a record. While the gateway has no space the socket is not read, and the sender waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.delivery import BadRecord, Delivery
from penstock.feeds.connected import ConnectedFeed, ConnectionLost
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.http_listener import LISTENER_PARAMETERS, HttpListener, ListenerAddress
from penstock.feeds.lines import BadLines, LineTooLong, OnBadLine
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.feeds.rendezvous import FeedClosed, Rendezvous
from penstock.feeds.senders import DATA, DEMAND, SenderLedger, SenderVisit
from penstock.feeds.server_access import TLS_PARAMETERS, TOKEN_PARAMETERS, ServerAccess
from penstock.net import NetError
from penstock.spec import Publisher

if TYPE_CHECKING:
    from penstock.net.http import Http, WebSocketConnection, WebSocketInbound, WebSocketOutbound

__all__ = ["SCHEMES", "WebSocketFeed", "WebSocketListenFeed"]

_log = logging.getLogger("penstock.feeds")

_ACK: Final = "{count}"
"""What the number stands for in the template of an acknowledgement."""
_REFUSED: Final = 1008
_UNREADABLE: Final = 1007
_GOING_AWAY: Final = 1001
_TOO_LARGE: Final = 1009
_LONGEST_REASON: Final = 120
"""Bytes of the reason of a close."""
_LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a message that is received although it may be bad, or four times the longest record if that is
more. A longer one is refused before it has arrived, and the connection with it."""


class _Messages:
    """Makes records of messages."""

    def __init__(self, options: FeedOptions, default: OnBadLine | None = None) -> None:
        self.bad = options.bad_lines(default)
        self.longest = options.max_line if self.bad.policy == "fail" else max(_LARGEST, 4 * options.max_line)
        """Bytes of a message that is received at all. One that ends its connection need not arrive."""
        self._max = options.max_line
        self._decode = options.decoder()

    def records(self, message: bytes | str) -> list[Any]:
        """The record of a message; none if it is bad and may be skipped, otherwise ValueError."""
        data = message.encode() if isinstance(message, str) else message
        try:
            if len(data) > self._max:
                raise LineTooLong(f"has {len(data)} bytes; allow more with max_line (--max-line)")
            return [data if self._decode is None else self._decode(data)]
        except (ValueError, RecursionError, OverflowError) as error:
            return list(self.bad.refuse(error, data, at="a message"))

    def refused(self, code: int | None) -> list[BadRecord]:
        """What takes the place of a message of which nothing has arrived, if the connection ended with 1009.

        ValueError if a bad message is an error.
        """
        if code != _TOO_LARGE:
            return []
        error = f"has more than {self.longest} bytes; allow more with max_line (--max-line)"
        return self.bad.refuse(LineTooLong(error), at="a message", size=self.longest + 1)


class _Acknowledgements:
    """Tells the other side how many of its messages are in the journal; one message may be for many."""

    def __init__(self, outbound: WebSocketOutbound, template: str | None) -> None:
        self._outbound = outbound
        self._template = template
        self._loop = asyncio.get_running_loop()
        self._safe = 0
        self._changed = asyncio.Event()

    def after(self, count: int) -> Callable[[], None] | None:
        """What to call, from any thread, when the first ``count`` messages are safe."""
        return None if self._template is None else partial(self._tell, count)

    def _tell(self, count: int) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note, count)

    def _note(self, count: int) -> None:
        self._safe = count
        self._changed.set()

    async def _send(self) -> None:
        assert self._template is not None
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._outbound.send(self._template.replace(_ACK, str(self._safe)))
            except (NetError, OSError):
                return  # The connection is gone; whoever reads it says so.

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send them as long as the block runs."""
        task = None if self._template is None else asyncio.ensure_future(self._send())
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])


class WebSocketFeed(ConnectedFeed):
    """The messages of a server. When the connection ends, the feed reconnects."""

    lost: ClassVar[tuple[type[BaseException], ...]] = (OSError, EOFError, TimeoutError, NetError)

    def __init__(
        self,
        url: str,
        options: FeedOptions,
        *,
        name: str | None = None,
        hello: str | None = None,
        ack: str | None = None,
        access: ServerAccess | None = None,
    ) -> None:
        super().__init__(name or url)
        self._messages = _Messages(options)
        self.bad: BadLines = self._messages.bad
        self._url = url
        self._access = access or ServerAccess()
        self._hello = hello
        self._ack = ack

    async def connection(self) -> AsyncGenerator[Any, None]:
        """Connect, say hello, and yield the messages."""
        from penstock.net.http import WebSocketClosed

        async with await self._opened() as connection:
            self.connected()
            if self._hello is not None:
                await connection.outbound.send(self._hello)
            acknowledgements = _Acknowledgements(connection.outbound, self._ack)
            count = 0
            async with acknowledgements.sending():
                try:
                    async for message in connection.inbound.receive():
                        count += 1
                        yield Delivery(self._messages.records(message), stored=acknowledgements.after(count))
                except WebSocketClosed as closed:
                    for bad in self._messages.refused(closed.code):
                        yield Delivery([bad])
                    raise
            code = connection.inbound.close_code
            for bad in self._messages.refused(code):
                yield Delivery([bad])
            raise ConnectionLost(f"the server has closed the connection with {code}")

    async def _opened(self) -> WebSocketConnection:
        from penstock.net.http import BadStatus, ws

        client = ws(self._url, headers=self._access.headers, max_length=self._messages.longest)
        if self._access.context is not None:
            client = client.secure(self._access.context)
        try:
            connection = await client.connect()
        except BadStatus as error:
            self._access.check_status(self.name, error.status)
            raise
        except NetError as error:
            self._access.check_certificate(self.name, error)
            raise
        assert connection is not None
        return connection


class WebSocketListenFeed(Feed):
    """A port to which anybody can connect and send messages. A bad message disconnects its sender alone."""

    def __init__(self, address: ListenerAddress, options: FeedOptions, *, ack: str | None = None) -> None:
        self._messages = _Messages(options, "fail")
        self.bad: BadLines = self._messages.bad
        self.senders = self._ledger = SenderLedger()
        self._address = address
        self._ack = ack
        self._listener = HttpListener(address, longest_message=self._messages.longest)
        self._rendezvous: Rendezvous
        self._listener.start(self._application)
        self.name = f"messages sent to {self._listener.where.replace('http', 'ws', 1)}"

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._listener.port

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return a delivery for each message."""
        return self._rendezvous.publisher()

    def close(self) -> None:
        """Stop listening, and disconnect the senders."""
        self._listener.close(self._rendezvous.close)

    def _application(self, loop: asyncio.AbstractEventLoop) -> Http:
        from penstock.net.http import Http

        self._rendezvous = Rendezvous(loop)
        return Http().ws(self._address.path, self._converse)

    async def _converse(self, inbound: WebSocketInbound, outbound: WebSocketOutbound) -> None:
        given = dict(inbound.scope["headers"]).get(b"authorization")
        if not self._address.admits(None if given is None else given.decode("latin-1")):
            await outbound.close(_REFUSED, "this address needs the header Authorization: Bearer TOKEN")
            return
        acknowledgements = _Acknowledgements(outbound, self._ack)
        host, port = inbound.scope.get("client") or ("unnamed", 0)
        with self._ledger.visit(f"{host}:{port}") as visit:
            async with acknowledgements.sending():
                try:
                    await self._receive(inbound, acknowledgements, visit)
                except FeedClosed:
                    await outbound.close(_GOING_AWAY, "the gateway is being stopped")
                except ValueError as error:
                    _log.warning("%s; this sender is disconnected", error)
                    if inbound.close_code is None:  # Otherwise the server has refused the message itself.
                        reason = str(error).encode()[:_LONGEST_REASON].decode(errors="ignore")
                        await outbound.close(_UNREADABLE, reason)

    async def _receive(
        self, inbound: WebSocketInbound, acknowledgements: _Acknowledgements, visit: SenderVisit
    ) -> None:
        """Offer the messages of one sender, to the end."""
        from penstock.net.http import WebSocketClosed

        count = 0
        try:
            async for message in inbound.receive():
                records = self._messages.records(message)
                count += 1
                visit.doing, visit.held = DEMAND, len(message)
                await self._rendezvous.offer(Delivery(records, stored=acknowledgements.after(count)))
                visit.doing, visit.held = DATA, 0
                visit.took(len(records), len(message))
        except WebSocketClosed as closed:
            letters = self._messages.refused(closed.code)
            if letters:
                await self._rendezvous.offer(Delivery(letters))
            raise


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    access = ServerAccess.of(url)
    try:
        import websockets.asyncio.client  # noqa: F401 - Otherwise the feed would fail when it is read.
    except ImportError as error:
        raise BadFeed(
            "feeds of WebSocket need websockets 15 or newer: pip install 'penstock-streams[http]'"
        ) from error
    given = url.parameters
    return WebSocketFeed(
        url.target,
        options,
        name=url.shown_target,
        hello=given.get("hello"),
        ack=given.get("ack"),
        access=access,
    )


def _listen(url: FeedUrl, options: FeedOptions) -> Feed:
    address = ListenerAddress(url, options, tls=url.scheme.startswith("wss"))
    url.refuse_on_a_loop()
    return WebSocketListenFeed(address, options, ack=url.parameters.get("ack"))


_ACK_HELP: Final = "what to send when records are in the journal; {count} is how many of this connection"

SCHEMES = (
    *(
        Scheme(
            name,
            f"{name}://HOST/PATH",
            "the messages that a server sends over WebSocket; a feed whose connection is lost reconnects",
            _open,
            separator="#",
            parameters={
                "hello": "what to send first, after each connect",
                "ack": _ACK_HELP,
                **TOKEN_PARAMETERS,
                **(TLS_PARAMETERS if name == "wss" else {}),
            },
        )
        for name in ("ws", "wss")
    ),
    *(
        Scheme(
            f"{name}-listen",
            f"{name}-listen://HOST:PORT/PATH",
            "the messages of everybody who connects with WebSocket",
            _listen,
            parameters={"ack": _ACK_HELP, **LISTENER_PARAMETERS},
        )
        for name in ("ws", "wss")
    ),
)
