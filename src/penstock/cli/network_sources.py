"""What ``penstock gateway`` reads from the network: lines of a server, of anybody who connects, of a page.

All of it is the net layer's: while the gateway has no room nothing is asked for, the socket is not read, its
window closes, and the sender waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from penstock.aquifer.endpoints import Endpoint
from penstock.cli.complaints import Complaint
from penstock.cli.gateway_sources import NETWORK, Decode, LineTooLong, Origin, numbered
from penstock.net import (
    BindFailed,
    ConnectFailed,
    Connection,
    Datagram,
    Inbound,
    Outbound,
    TcpClient,
    TcpServer,
    UdpOverflow,
    UdpServer,
)
from penstock.net.addresses import address_text
from penstock.net.framing import FrameTooLong, FrameTruncated, delimited
from penstock.spec import Publisher
from penstock.streams import Flux, Sinks

__all__ = ["HttpLines", "ListeningLines", "ServerLines", "UdpLines", "open_network_source"]

_log = logging.getLogger("penstock.cli")

_RECEIVE_BUFFER: Final = 1024 * 1024
"""Fixed, or the system would let it grow to many times that before the sender has to wait."""
_WAITING: Final = 4096
"""Datagrams that wait for the gateway."""
_CHUNKS: Final = 16
"""Chunks of lines that wait between the connections of a listening source and the gateway."""


def _as_lines(chunks: Flux[bytes], longest: int, decode: Decode | None) -> Flux[Any]:
    cut = chunks.transform(delimited(b"\n", longest)).on_error_map(
        lambda error: _too_long(longest), on=FrameTooLong
    )
    return cut if decode is None else cut.map(numbered(decode))


def _too_long(longest: int) -> LineTooLong:
    return LineTooLong(
        f"a line has more than {longest} bytes; allow more with --max-line, or is this not a text with lines?"
    )


class ServerLines(Origin):
    """A server to which we connect, and which sends lines; the end of the connection is their end."""

    def __init__(self, host: str, port: int, longest: int, decode: Decode | None) -> None:
        self._settings = longest, decode
        self.name = f"{host}:{port}"
        client = TcpClient.create().host(host).port(port).option("SO_RCVBUF", _RECEIVE_BUFFER)
        try:
            self._connection = client.connect_now()
        except ConnectFailed as error:
            raise Complaint(str(error).replace(" to ", " to tcp://", 1), 1) from None

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The lines that the server sends, whatever the journal has already."""
        received = self._connection.inbound.receive().do_finally(lambda end: self._connection.close())
        return _as_lines(received, *self._settings)

    def close(self) -> None:
        """Hang up."""
        self._connection.abort()
        self._connection.on_dispose().block(5)


class ListeningLines(Origin):
    """A port to which anybody connects and sends lines, several at a time.

    With ``acknowledge`` there is one sender at a time, who is told how many lines have come so far when it
    connects and how many are in the journal from then on, one number to a line. A sender that keeps what is
    not in the journal, as ``penstock send --acknowledged`` does, loses nothing and repeats nothing, whoever
    of the two is killed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        longest: int,
        decode: Decode | None,
        *,
        acknowledge: bool = False,
        buffer: int = _RECEIVE_BUFFER,
    ) -> None:
        self._longest = longest
        self._decode = decode
        self._acknowledge = acknowledge
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
        received: Flux[Any] = self._sink.flux().concat_map(Flux.from_iterable)
        return received if self._decode is None else received.map(numbered(self._decode))

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
        decoder = delimited(b"\n", self._longest, must_end=True).decoder()
        try:
            async for chunk in inbound.receive():
                await self._take_chunk(decoder.feed(chunk))
            decoder.finish()
        except FrameTruncated as error:
            _log.warning("%s %s; this line is left out", inbound.connection.label, error)
        except FrameTooLong:
            raise _too_long(self._longest) from None

    async def _take_chunk(self, cut: Iterable[bytes]) -> None:
        whole: list[bytes] = []
        try:
            whole.extend(cut)
        finally:
            # The lines before one that is too long are lines.
            if whole:
                await self._sink.emit(whole)
                self._accepted += len(whole)


class UdpLines(Origin):
    """A port to which anybody sends datagrams, each of them a line.

    A sender of UDP cannot be made to wait. What comes while the gateway has no room is dropped, counted, and
    told.
    """

    def __init__(self, host: str, port: int, longest: int, decode: Decode | None) -> None:
        self._longest = longest
        self._decode = decode
        self._told = 0
        server = UdpServer.create().host(host).port(port).overflow(UdpOverflow.DROP_NEWEST, capacity=_WAITING)
        try:
            self._channel = server.bind_now()
        except BindFailed as error:
            raise Complaint(str(error), 1) from None
        self.name = f"datagrams sent to {address_text(self._channel.address)}"

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The datagrams, without an end of line if they have one."""
        received: Flux[Any] = self._channel.inbound.receive().map(self._line)
        return received if self._decode is None else received.map(numbered(self._decode))

    def _line(self, datagram: Datagram) -> bytes:
        line = datagram.data.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) > self._longest:
            raise LineTooLong(f"a datagram has {len(line)} bytes; allow more with --max-line")
        return line

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

    def __init__(self, url: str, longest: int, decode: Decode | None) -> None:
        self._url = url
        self._settings = longest, decode
        self.name = url

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The lines, whatever the journal has already."""
        from penstock.net import http

        return _as_lines(http.get(self._url, timeout=None).receive(), *self._settings)

    def close(self) -> None:
        """The request is cancelled with its lines."""


def open_network_source(text: str, longest: int, decode: Decode | None) -> Origin:
    """The source with this address."""
    address, _, query = text.partition("?")
    scheme, _, place = address.partition("://")
    if scheme == "tcp":
        return ServerLines(*_host_and_port(text, place), longest, decode)
    if scheme == "tcp-listen":
        if query not in ("", "acknowledge"):
            raise Complaint(f"--source {text}: after the ? there can be acknowledge, and nothing else")
        return ListeningLines(*_host_and_port(text, place), longest, decode, acknowledge=bool(query))
    if scheme == "udp":
        return UdpLines(*_host_and_port(text, place), longest, decode)
    if scheme in ("http", "https") and place:
        return HttpLines(text, longest, decode)
    raise Complaint(f"--source {text!r} is none; write {NETWORK}")


def _host_and_port(text: str, place: str) -> tuple[str, int]:
    try:
        endpoint = Endpoint.parse(f"tcp://{place}")
    except ValueError as error:
        raise Complaint(f"--source {text}: {error}") from None
    if not endpoint.is_one_place and endpoint.port:
        raise Complaint(f"--source {text}: name the host and the port of one server")
    return endpoint.host, endpoint.port
