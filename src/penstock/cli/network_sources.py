"""What ``penstock gateway`` reads from the network: lines of a server, of anybody who connects, of a page.

All of it is the net layer's: while the gateway has no room nothing is asked for, the socket is not read, its
window closes, and the sender waits.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any, Final

from penstock.aquifer.endpoints import Endpoint
from penstock.cli.complaints import Complaint
from penstock.cli.gateway_sources import NETWORK, Origin, SourceOptions
from penstock.cli.line_splitter import LineSplitter, LineTooLong
from penstock.net import (
    BindFailed,
    ConnectFailed,
    Connection,
    Datagram,
    Inbound,
    NetError,
    Outbound,
    TcpClient,
    TcpServer,
    UdpOverflow,
    UdpServer,
)
from penstock.net.addresses import address_text
from penstock.net.framing import Decoder, frames
from penstock.spec import Publisher
from penstock.streams import Flux, Retry, Sinks, schedulers

__all__ = ["HttpLines", "ListeningLines", "ServerLines", "UdpLines", "open_network_source"]

_log = logging.getLogger("penstock.cli")

_RECEIVE_BUFFER: Final = 1024 * 1024
"""Fixed, or the system would let it grow to many times that before the sender has to wait."""
_WAITING: Final = 4096
"""Datagrams that wait for the gateway."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 30.0
"""Seconds between attempts to find a server again."""
_FOR_EVER: Final = 2**62
_LAST_WORD: Final = 5.0
"""Seconds in which a sender that was refused may hang up by itself."""
_CHUNKS: Final = 16
"""Chunks of lines that wait between the connections of a listening source and the gateway."""


class _Lost(Exception):
    """The connection to a server has ended, and is made again."""


class _Again(Retry):
    """Says what happened before it waits."""

    def pause(self, attempt: int, error: BaseException) -> float:
        """Seconds to wait before the next attempt."""
        pause = super().pause(attempt, error)
        _log.warning("%s; connecting again in %.1f s", error, pause)
        return pause


class ServerLines(Origin):
    """A server to which we connect, and which sends lines.

    The end of a connection is not the end of the lines: it is made again, with pauses that grow from a fifth
    of a second to half a minute while the server is not there. With ``once`` it is the end.
    """

    def __init__(self, host: str, port: int, options: SourceOptions, *, once: bool = False) -> None:
        self._bad = self.bad = options.bad_lines()
        self._splitter = LineSplitter(options.longest, options.decode, self._bad)
        self._once = once
        self._closed = False
        self._scheduler = schedulers.single("penstock-source")
        self.name = f"{host}:{port}"
        self._client = TcpClient.create().host(host).port(port).option("SO_RCVBUF", _RECEIVE_BUFFER)
        try:
            # Now, so that a wrong address is told at once.
            self._first: Connection | None = self._client.connect_now()
        except ConnectFailed as error:
            self._scheduler.close()
            raise Complaint(str(error).replace(" to ", " to tcp://", 1), 1) from None
        self._connection = self._first

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The lines that the server sends, whatever the journal has already."""
        chunks: Flux[bytes] = Flux.defer(self._connected)
        if not self._once:
            chunks = chunks.retry_when(
                _Again(
                    _FOR_EVER,
                    _FIRST_PAUSE,
                    _LONGEST_PAUSE,
                    only=(NetError, _Lost),
                    transient=True,
                    scheduler=lambda: self._scheduler,
                )
            )
        return frames(chunks, lambda: _InLines(self._splitter))

    def _connected(self) -> Publisher[bytes]:
        """What comes over one connection; its end is an error, unless it is the end of all."""
        connection, self._first = self._first, None
        if connection is None:
            connection = self._client.connect_now()
            self._connection = connection
            _log.warning("connected again to %s", self.name)
        if self._closed:
            connection.abort()
        received = connection.inbound.receive()
        if not self._once:
            lost = _Lost(f"{self.name} has closed the connection")
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
            )

    def close(self) -> None:
        """Hang up."""
        self._closed = True
        self._connection.abort()
        self._connection.on_dispose().block(5)
        self._scheduler.close()


class ListeningLines(Origin):
    """A port to which anybody connects and sends lines, several at a time.

    With ``acknowledge`` there is one sender at a time, who is told how many lines have come so far when it
    connects and how many are in the journal from then on, one number to a line. A sender that keeps what is
    not in the journal, as ``penstock send --acknowledged`` does, loses nothing and repeats nothing, whoever
    of the two is killed.

    One sender cannot end the lines of the others: if a line of it is bad, it is told and cut off, or with
    ``skip`` the line is left out.
    """

    def __init__(
        self,
        host: str,
        port: int,
        options: SourceOptions,
        *,
        acknowledge: bool = False,
        buffer: int = _RECEIVE_BUFFER,
    ) -> None:
        self._options = options
        self._acknowledge = acknowledge
        self.bad = options.bad_lines()
        self._sink = Sinks.unicast(_CHUNKS)
        self._accepted = 0
        """Lines that came, those of earlier runs included."""
        self._sender: Connection | None = None
        self._turn = asyncio.Lock()
        self._told = -1
        server = TcpServer.create().host(host).port(port).option("SO_RCVBUF", buffer)
        # Nothing is read before we are called: who connects earlier waits.
        self._ready = Sinks.one()
        try:
            self._server = server.handle(self._take).bind_now()
        except BindFailed as error:
            raise Complaint(str(error), 1) from None
        self.name = f"lines sent to {self._server.where}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The lines of whoever connects."""
        self._accepted = journalled
        self._ready.try_value(True)
        return frames(self._sink.flux(), _OfLists)

    def journalled(self, head: int) -> None:
        """So many lines are safe: tell the sender."""
        sender = self._sender
        if sender is not None and head > self._told:
            self._told = head
            sender.on_loop(sender.transport.write, b"%d\n" % head)

    def close(self) -> None:
        """Take no more."""
        self._server.close_now(0)

    async def _take(self, inbound: Inbound, outbound: Outbound) -> None:
        await self._ready.mono()
        if not self._acknowledge:
            await self._take_lines(inbound)
            return
        if self._sender is not None:
            # The newest one counts: the older one may be dead without anybody having noticed.
            self._sender.abort()
        async with self._turn:
            self._sender = connection = inbound.connection
            self._told = -1
            connection.transport.write(b"%d\n" % self._accepted)
            try:
                await self._take_lines(inbound)
            finally:
                self._sender = None

    async def _take_lines(self, inbound: Inbound) -> None:
        assert self.bad is not None
        label, settings = inbound.connection.label, (self._options.longest, self._options.decode)
        before = self._accepted if self._acknowledge else 0
        splitter = LineSplitter(*settings, self.bad, label=label, number=before)
        listen_until: float | None = None
        try:
            async for chunk in inbound.receive():
                if listen_until is not None:
                    if time.monotonic() > listen_until:
                        return
                    continue
                try:
                    await self._take_elements(splitter.feed(chunk))
                except ValueError as error:
                    # This sender sends what cannot be a record. The others are none the worse for it.
                    _log.warning("%s; this sender is cut off", error)
                    splitter.forget()
                    if not self._acknowledge:
                        return
                    # Closed with something unread, a connection is reset, and the reason may not arrive.
                    inbound.connection.transport.write(str(error).removeprefix(f"{label}: ").encode() + b"\n")
                    listen_until = time.monotonic() + _LAST_WORD
        finally:
            lost = splitter.forget()
            if lost:
                _log.warning("%s ended in the middle of a line; its %d bytes are left out", label, lost)

    async def _take_elements(self, elements: Iterable[Any]) -> None:
        whole: list[Any] = []
        try:
            whole.extend(elements)
        finally:
            # The lines before a bad one are lines.
            if whole:
                await self._sink.emit(whole)
                self._accepted += len(whole)


class UdpLines(Origin):
    """A port to which anybody sends datagrams, each of them a line.

    A sender of UDP cannot be made to wait. What comes while the gateway has no room is dropped, counted, and
    told.
    """

    def __init__(self, host: str, port: int, options: SourceOptions) -> None:
        # Anybody can send one: a bad one is no reason to end what the others send, unless told so.
        self._bad = self.bad = options.bad_lines("skip")
        self._options = options
        self._told = 0
        server = UdpServer.create().host(host).port(port).overflow(UdpOverflow.DROP_NEWEST, capacity=_WAITING)
        try:
            self._channel = server.bind_now()
        except BindFailed as error:
            raise Complaint(str(error), 1) from None
        self.name = f"datagrams sent to {address_text(self._channel.address)}"

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The datagrams, without an end of line if they have one."""
        return self._channel.inbound.receive().flat_map_iterable(self._element)

    def _element(self, datagram: Datagram) -> Iterable[Any]:
        line = datagram.data.removesuffix(b"\n").removesuffix(b"\r")
        sender = address_text(datagram.address)
        if len(line) > self._options.longest:
            self._bad.refuse(
                LineTooLong(f"a datagram from {sender} has {len(line)} bytes; allow more with --max-line")
            )
            return ()
        try:
            return (line if self._options.decode is None else self._options.decode(line),)
        except (ValueError, RecursionError, OverflowError) as error:
            self._bad.refuse(ValueError(f"a datagram from {sender}: {error}"))
            return ()

    def journalled(self, head: int) -> None:
        """Say what was dropped since the last time."""
        metrics = self._channel.metrics
        dropped = metrics.dropped + (metrics.kernel_dropped or 0)
        if dropped > self._told:
            _log.warning("%d datagrams came while there was no room, and were dropped", dropped - self._told)
            self._told = dropped

    def close(self) -> None:
        """Take no more."""
        self._channel.close_now(0)


class HttpLines(Origin):
    """The lines of a page that a server sends, for as long as it sends."""

    def __init__(self, url: str, options: SourceOptions) -> None:
        self._url = url
        self._splitter = LineSplitter(options.longest, options.decode, options.bad_lines())
        self.bad = self._splitter.bad
        self.name = url

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The lines, whatever the journal has already."""
        from penstock.net import http

        # A page that is cut off is an error, so its end is the end of its last line.
        page = http.get(self._url, timeout=None).receive()
        return frames(page, lambda: _InLines(self._splitter, end_is_newline=True))

    def close(self) -> None:
        """The request is cancelled with its lines."""


class _InLines(Decoder[Any]):
    """The elements of chunks: as a framing, because that asks for one chunk at a time."""

    def __init__(self, splitter: LineSplitter, *, end_is_newline: bool = False) -> None:
        super().__init__()
        self._splitter = splitter
        self._end_is_newline = end_is_newline

    def cut(self, chunk: bytes) -> Iterable[Any]:
        return self._splitter.feed(chunk)

    def rest(self) -> list[Any]:
        return list(self._splitter.finish()) if self._end_is_newline else []


class _OfLists(Decoder[Any]):
    """The elements of lists, in the same way."""

    def feed(self, chunk: Any) -> Iterable[Any]:
        return list(chunk)

    def cut(self, chunk: bytes) -> Iterable[Any]:
        return [chunk]

    def rest(self) -> list[Any]:
        return []


def open_network_source(text: str, options: SourceOptions) -> Origin:
    """The source with this address."""
    address, _, query = text.partition("?")
    scheme, _, place = address.partition("://")
    if scheme == "tcp":
        _check_query(text, query, "once")
        endpoint = _endpoint(text, place)
        if not endpoint.is_one_place:
            raise Complaint(f"--source {text}: name the host and the port of one server")
        return ServerLines(endpoint.host, endpoint.port, options, once=bool(query))
    if scheme == "tcp-listen":
        _check_query(text, query, "acknowledge")
        if query and options.on_bad_line == "skip":
            raise Complaint(
                f"--source {text}: the sender counts the lines that are safe, so none can be left out: "
                "--on-bad-line skip and ?acknowledge exclude each other"
            )
        return ListeningLines(*_listening(text, place, options), options, acknowledge=bool(query))
    if scheme == "udp":
        return UdpLines(*_listening(text, place, options), options)
    if scheme in ("http", "https") and place:
        return HttpLines(text, options)
    raise Complaint(f"--source {text!r} is not known; write {NETWORK}")


def _check_query(text: str, query: str, allowed: str) -> None:
    if query not in ("", allowed):
        raise Complaint(f"--source {text}: after the ? there can be {allowed}, and nothing else")


def _endpoint(text: str, place: str) -> Endpoint:
    try:
        return Endpoint.parse(f"tcp://{place}")
    except ValueError as error:
        scheme = text.partition("://")[0]
        raise Complaint(f"--source {text}: {str(error).replace('tcp://', f'{scheme}://')}") from None


def _listening(text: str, place: str, options: SourceOptions) -> tuple[str, int]:
    """Where to listen; only on this machine, unless somebody has said that the network can be trusted."""
    endpoint = _endpoint(text, place)
    if not (endpoint.is_loopback or options.insecure):
        here = str(Endpoint("127.0.0.1", endpoint.port)).replace("tcp://", f"{text.partition('://')[0]}://")
        raise Complaint(
            f"--source {text} can be reached from other machines, and everybody there could write into the "
            f"log. Listen at {here}, or say that this is what you want: --insecure"
        )
    return "0.0.0.0" if endpoint.host == "*" else endpoint.host, endpoint.port
