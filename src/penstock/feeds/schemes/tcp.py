"""Lines over TCP: from a server to which the feed connects, or from anybody who connects to the feed.

While the gateway has no space the feed requests nothing, the socket is not read, its window closes, and the
sender waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any, Final

from penstock.delivery import FeedState
from penstock.feeds.connected import RECONNECT, down
from penstock.feeds.feed import BadFeed, Feed, FeedOptions, FeedUnavailable
from penstock.feeds.lines import ElementDecoder, LineSplitter, OnBadLine
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.feeds.senders import DATA, DEMAND, WORKING, SenderLedger, SenderVisit
from penstock.net import (
    BindFailed,
    ConnectFailed,
    Connection,
    Inbound,
    NetError,
    Outbound,
    TcpClient,
    TcpServer,
)
from penstock.net.framing import Decoder, frames
from penstock.spec import Publisher
from penstock.streams import EmissionFailed, Flux, Retry, Sink, SinkOne, Sinks, schedulers

__all__ = ["SCHEMES", "TcpFeed", "TcpListenFeed"]

_log = logging.getLogger("penstock.feeds")

_RECEIVE_BUFFER: Final = 1024 * 1024
"""Bytes. A fixed size: the system would let it grow to many times that before the sender has to wait."""
_FOR_EVER: Final = 2**62
_REFUSAL_TIME: Final = 5.0
"""Seconds in which a sender that was refused may disconnect by itself."""
_CHUNKS: Final = 16
"""Chunks of lines that may wait between the connections of a listening feed and the gateway."""
_UNREAD: Final = 4096
"""Bytes of numbers that may wait for a sender that does not read them. The next number says it all."""


class _ConnectionLost(Exception):
    """The server has closed the connection; the feed reconnects."""


class _Reconnect(Retry):
    """A retry that logs why it reconnects, and lets the feed note it."""

    def __init__(self, feed: TcpFeed) -> None:
        super().__init__(
            _FOR_EVER,
            RECONNECT.first,
            RECONNECT.longest,
            RECONNECT.jitter,
            only=(NetError, _ConnectionLost),
            transient=True,
            scheduler=lambda: feed._scheduler,
        )
        object.__setattr__(self, "feed", feed)

    feed: TcpFeed

    def pause(self, attempt: int, error: BaseException) -> float:
        """Seconds to wait before the next attempt."""
        pause = super().pause(attempt, error)
        self.feed.state = down(self.feed.state, error, attempt, pause)
        _log.warning("reconnecting in %.1f s: %s", pause, error)
        return pause


class TcpFeed(Feed):
    """A server that sends lines.

    When the connection ends, the feed reconnects, with pauses that grow from a fifth of a second to half a
    minute while the server is not there. A server that is not there in the beginning is looked for as well:
    the feed is then down. With ``once``, the end of the connection is the end of the feed, and a server that
    is not there is an error.
    """

    def __init__(self, host: str, port: int, options: FeedOptions, *, once: bool = False) -> None:
        self.bad = options.bad_lines()
        self._splitter = LineSplitter(options.max_line, options.decoder(), self.bad)
        self._once = once
        self._closed = False
        self._scheduler = schedulers.single("penstock-feed")
        self.name = f"{host}:{port}"
        client = TcpClient.create().host(host).port(port).option("SO_RCVBUF", _RECEIVE_BUFFER)
        # A server that is gone without a word would be waited for, for ever.
        self._client = client.keep_alive()
        self._first: Connection | None = None
        try:
            # Now, so that a server that is not there is known at once.
            self._first = self._client.connect_now()
            self.state = FeedState("up")
        except ConnectFailed as error:
            told = str(error).replace(" to ", " to tcp://", 1)
            if once:
                self._scheduler.close()
                raise FeedUnavailable(told) from None
            self.state = FeedState("down", reason=told, attempts=1)
            self.note = f"the feed goes on looking for the server: {told}"
        self._connection = self._first

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the lines that the server sends, however many records the journal holds."""
        chunks: Flux[bytes] = Flux.defer(self._connected)
        if not self._once:
            chunks = chunks.retry_when(_Reconnect(self))
        return frames(chunks, lambda: ElementDecoder(self._splitter))

    def _connected(self) -> Publisher[bytes]:
        """Return the bytes of one connection; unless ``once``, its end is an error that is retried."""
        connection, self._first = self._first, None
        if connection is None:
            connection = self._client.connect_now()
            self._connection = connection
            self.state = FeedState("up")
            _log.warning("connected to %s", self.name, extra={"feed": self.name})
        if self._closed:
            connection.abort()
        received = connection.inbound.receive()
        if not self._once:
            lost = _ConnectionLost(f"{self.name} has closed the connection")
            received = received.concat_with(Flux.error(lost))
        return received.do_finally(lambda end: self._leave(connection))

    def _leave(self, connection: Connection) -> None:
        connection.close()
        lost = self._splitter.forget()
        if lost and not self._closed:
            _log.warning(
                "the connection to %s ended in the middle of a line; its %d bytes are left out",
                self.name,
                lost,
                extra={"feed": self.name},
            )

    def close(self) -> None:
        """Disconnect."""
        self._closed = True
        if self._connection is not None:
            self._connection.abort()
            self._connection.on_dispose().block(5)
        self._scheduler.close()


class TcpListenFeed(Feed):
    """A port to which anybody can connect and send lines, several senders at a time.

    With ``acknowledge`` there is one sender at a time. When it connects, it receives the number of lines that
    have arrived so far, and from then on the number of lines that are in the journal, one number per line. A
    sender that resends what is not in the journal, as :class:`penstock.feeds.LineSender` does, loses nothing
    and duplicates nothing, even if either side is killed.

    A bad line never ends the lines of the other senders: its sender is disconnected, or the line is skipped.
    """

    def __init__(
        self,
        host: str,
        port: int,
        options: FeedOptions,
        *,
        acknowledge: bool = False,
        buffer: int = _RECEIVE_BUFFER,
    ) -> None:
        self._options = options
        self._acknowledge = acknowledge
        self.bad = options.bad_lines("fail")  # The sender of a bad line is disconnected, and nobody else.
        self.senders = self._ledger = SenderLedger()
        self._sink: Sink[Any] = Sinks.unicast(_CHUNKS)
        self._accepted = 0
        """How many lines have arrived, including those of earlier runs."""
        self._sender: Connection | None = None
        self._newest: Connection | None = None
        """The sender that connected last; it may wait for its turn."""
        self._turn = asyncio.Lock()
        self._told = -1
        # A sender that is gone without a word would keep its connection for ever.
        server = TcpServer.create().host(host).port(port).option("SO_RCVBUF", buffer).keep_alive()
        # Nothing is read before the feed is called: earlier connections wait.
        self._ready: SinkOne[Any] = Sinks.one()
        try:
            self._server = server.handle(self._take).bind_now()
        except BindFailed as error:
            raise FeedUnavailable(str(error)) from None
        self.name = f"lines sent to {self._server.where}"

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    @property
    def on_bad_record(self) -> OnBadLine:
        """What its gateway should do; a sender that counts lines could not tell which one is missing."""
        return "fail" if self._acknowledge else super().on_bad_record

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the lines of every sender, as they arrive."""
        self._accepted = journalled
        self._ready.try_value(True)
        return frames(self._sink.flux(), _ListDecoder)

    def journalled(self, head: int) -> None:
        """Tell the sender how many lines are in the journal."""
        sender = self._sender
        if sender is not None and head > self._told:
            sender.on_loop(self._tell, sender, head)

    def _tell(self, sender: Connection, head: int) -> None:
        """On the loop, where senders come and go: another one would otherwise count as told."""
        unread = sender.transport.get_write_buffer_size()
        # A number that is left out is told later: the gateway says it again and again.
        if sender is self._sender and head > self._told and unread < _UNREAD:
            self._told = head
            sender.transport.write(b"%d\n" % head)

    def close(self) -> None:
        """Stop listening, and disconnect the senders."""
        self._server.close_now(0)

    async def _take(self, inbound: Inbound, outbound: Outbound) -> None:
        await self._ready.mono()
        if not self._acknowledge:
            await self._take_lines(inbound)
            return
        if self._sender is not None:
            # The newest sender wins: the older connection may be dead without either side having noticed.
            self._sender.abort()
        self._newest = connection = inbound.connection
        async with self._turn:
            if self._newest is not connection:
                return
            self._sender = connection
            self._told = -1
            connection.transport.write(b"%d\n" % self._accepted)
            try:
                await self._take_lines(inbound)
            finally:
                self._sender = None

    async def _take_lines(self, inbound: Inbound) -> None:
        assert self.bad is not None
        connection, options = inbound.connection, self._options
        before = self._accepted if self._acknowledge else 0
        splitter = LineSplitter(
            options.max_line, options.decoder(), self.bad, label=connection.label, number=before
        )
        with self._ledger.visit(connection.remote) as visit:
            visit.queue = inbound.waiting_bytes
            try:
                await self._take_chunks(inbound, splitter, visit)
            except EmissionFailed:
                splitter.forget()  # The gateway is being closed, and takes no more lines.
            finally:
                lost = splitter.forget()
                if lost:
                    label = connection.label
                    _log.warning("%s ended in the middle of a line; its %d bytes are left out", label, lost)

    async def _take_chunks(self, inbound: Inbound, splitter: LineSplitter, visit: SenderVisit) -> None:
        label = inbound.connection.label
        refused_until: float | None = None
        async for chunk in inbound.receive():
            if refused_until is not None:
                if time.monotonic() > refused_until:
                    return
                continue
            visit.doing, visit.held = WORKING, len(chunk)
            made, error = splitter.take(chunk)
            # The lines before a bad one are good.
            if made:
                visit.doing = DEMAND
                await self._sink.emit(made)
                self._accepted += len(made)
            visit.took(len(made), len(chunk))
            visit.doing, visit.held = DATA, 0
            if error is not None:
                # Only the sender of the bad line is disconnected.
                _log.warning("%s; this sender is disconnected", error)
                splitter.forget()
                if not self._acknowledge:
                    return
                # A connection that is closed with unread bytes is reset, and the reason may not arrive.
                inbound.connection.transport.write(str(error).removeprefix(f"{label}: ").encode() + b"\n")
                refused_until = time.monotonic() + _REFUSAL_TIME


class _ListDecoder(Decoder[Any]):
    """Takes lists of elements apart, one list at a time."""

    def feed(self, chunk: Any) -> Iterable[Any]:
        return list(chunk)

    def cut(self, chunk: bytes) -> Iterable[Any]:
        return [chunk]

    def rest(self) -> list[Any]:
        return []


def _open_tcp(url: FeedUrl, options: FeedOptions) -> Feed:
    server = url.server()
    url.refuse_on_a_loop()
    return TcpFeed(*server, options, once="once" in url.flags)


def _open_tcp_listen(url: FeedUrl, options: FeedOptions) -> Feed:
    acknowledge = "acknowledge" in url.flags
    policy = options.on_bad_line
    if acknowledge and policy in ("skip", "dead-letter"):
        raise BadFeed(
            f"{url.text}: the sender counts the lines that are in the journal, so none can be left out: "
            f"?acknowledge and on_bad_line={policy!r} (--on-bad-line {policy}) exclude each other"
        )
    listener = url.listener(options)
    url.refuse_on_a_loop()
    return TcpListenFeed(*listener, options, acknowledge=acknowledge)


SCHEMES = (
    Scheme(
        "tcp",
        "tcp://HOST:PORT",
        "the lines that a server sends; the feed reconnects when the connection is lost",
        _open_tcp,
        flags={"once": "the end of the connection is the end of the feed"},
    ),
    Scheme(
        "tcp-listen",
        "tcp-listen://HOST:PORT",
        "the lines of everybody who connects",
        _open_tcp_listen,
        flags={"acknowledge": "one sender at a time, which is told how many lines are in the journal"},
    ),
)
