"""A UDP socket as its user holds it: its two sides, its handler, its groups and counts, and its end."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from _thread import get_ident
from collections.abc import Callable
from typing import Any, Final

from penstock.net.errors import ConnectionAborted, NetError, SendRefused
from penstock.net.handler import HandlerRun, handler_stream, tells_failure
from penstock.net.labels import address_text
from penstock.net.lifecycle import CloseReport, ConnectionState, tell_state
from penstock.net.lookup import addresses_of
from penstock.net.loops import Disposable
from penstock.net.metrics import UdpCounters, UdpMetrics, kernel_dropped
from penstock.net.sender import Done, FlushRule
from penstock.net.transport import call_on
from penstock.net.udp.datagram import Address, Datagram
from penstock.net.udp.multicast import Interface, Membership
from penstock.net.udp.receiver import DatagramReceiver
from penstock.net.udp.sender import DatagramSender
from penstock.net.udp.settings import UdpSettings
from penstock.net.udp.sides import UdpInbound, UdpOutbound
from penstock.net.udp.transport import AsyncioDatagramTransport
from penstock.streams.spi import Stream, connect
from penstock.token_bucket import TokenBucket

__all__ = ["UdpChannel", "open_channel"]

_log = logging.getLogger("penstock.net")

_FROM_THE_NETWORK: Final = frozenset(
    getattr(errno, name)
    for name in (
        "ECONNREFUSED",
        "ECONNRESET",
        "EHOSTUNREACH",
        "EHOSTDOWN",
        "ENETUNREACH",
        "ENETDOWN",
        "ENONET",
        "ENOPROTOOPT",
        "EPROTO",
        "EMSGSIZE",
        "EACCES",
    )
    if hasattr(errno, name)
)
"""Errors that ICMP may report for an earlier datagram. The socket still works."""


class UdpChannel(Disposable):
    """A UDP socket. ``bind()`` and ``connect()`` return one; a handler gets its two sides.

    ::

        async with await UdpClient.create().host("localhost").port(9000).connect() as channel:
            await channel.outbound.send(b"ping")
            answer = await channel.inbound.receive().first()

    Every method may be called from any thread, except those that wait and those that join or leave a group.
    """

    def __init__(self, settings: UdpSettings, opened: socket.socket, peer: Address | None) -> None:
        """Made by ``UdpServer.bind()`` and ``UdpClient.connect()``."""
        super().__init__(asyncio.get_running_loop())
        self.id = os.urandom(4).hex()
        """Eight characters that identify this socket in every line of the log."""
        self.settings = settings
        self.socket = opened
        """The socket itself, for what this class does not offer."""
        self.peer = peer
        """The address that a client's socket is connected to."""
        self.counts = UdpCounters()
        self.address: Address = opened.getsockname()
        """The address of the socket."""
        self._thread = get_ident()
        self._transport = AsyncioDatagramTransport(self.loop, opened)
        self._receiver = DatagramReceiver(self, self._transport, settings.overflow, self._watching("READ"))
        pace = settings.pace
        self._pace = (
            None if pace is None else TokenBucket(pace.datagrams_per_second, pace.burst, self.loop.time())
        )
        self._sender: DatagramSender | None = None
        self._handler: HandlerRun | None = None
        self._kernel_dropped: int | None = None
        self._network_heard = False
        self._closed = False
        self.inbound = UdpInbound(self, self._receiver)
        """The receiving side."""
        self.outbound = UdpOutbound(self)
        """The sending side."""

    # ---------------------------------------------------------------- what it is
    @property
    def host(self) -> str:
        """The host part of the address."""
        return str(self.address[0])

    @property
    def port(self) -> int:
        """The port of the socket: the real one, even if it was bound to 0."""
        return int(self.address[1])

    @property
    def label(self) -> str:
        """``[id, L:local - R:remote]``, with ``!`` instead of ``-`` once it is closed."""
        remote = "*" if self.peer is None else address_text(self.peer)
        return f"[{self.id}, L:{address_text(self.address)} {'!' if self._closed else '-'} R:{remote}]"

    @property
    def closed(self) -> bool:
        """Whether the socket is closed."""
        return self._closed

    @property
    def metrics(self) -> UdpMetrics:
        """What the socket has done so far."""
        counts = self.counts
        return UdpMetrics(
            datagrams_received=counts.received,
            datagrams_sent=counts.sent,
            dropped=self._receiver.dropped,
            kernel_dropped=self._kernel_dropped if self._closed else kernel_dropped(self.socket),
            refused=counts.refused,
            unsent=counts.unsent,
            data_received=counts.bytes_received,
            data_sent=counts.bytes_sent,
        )

    def __repr__(self) -> str:
        return f"<UdpChannel {self.label}>"

    # ---------------------------------------------------------------- multicast
    def join(self, group: str, *, interface: Interface = None) -> None:
        """Receive what is sent to a multicast group, on this interface or on one that the system chooses."""
        Membership(group, interface).join(self.socket)
        _log.debug("%s joined %s", self.label, group)

    def leave(self, group: str, *, interface: Interface = None) -> None:
        """Leave a multicast group; the interface is the one that was joined on."""
        Membership(group, interface).leave(self.socket)
        _log.debug("%s left %s", self.label, group)

    # ---------------------------------------------------------------- the beginning
    def begin(self) -> None:
        """Begin: start reading, tell the observers, run the handler."""
        self._tell(ConnectionState.CONNECTED)
        self._receiver.open()
        self._tell(ConnectionState.CONFIGURED)
        handler = self.settings.handler
        if handler is None:
            return
        with tells_failure(self._handler_done):
            self._run(handler(self.inbound, self.outbound))

    def _run(self, work: Any) -> None:
        stream = handler_stream(work, "socket")
        self._handler = HandlerRun(self._handler_done)
        connect(stream, self._handler)

    def _handler_done(self, error: BaseException | None) -> None:
        if error is not None and not (self._closed and isinstance(error, ConnectionAborted)):
            if isinstance(error, NetError | ConnectionError):
                _log.warning("%s the handler failed: %s", self.label, error)
            else:
                _log.error("%s the handler failed: %r", self.label, error, exc_info=error)
        self.on_loop(self._close)

    # ---------------------------------------------------------------- what its sides call
    def network_said(self, error: OSError) -> bool:
        """Whether the network reported this error; then it is counted and logged, and nothing ends."""
        if error.errno not in _FROM_THE_NETWORK:
            return False
        if isinstance(error, ConnectionRefusedError | ConnectionResetError):
            self.counts.refused += 1
        _log.log(
            logging.DEBUG if self._network_heard else logging.INFO,
            "%s the network reports: %s; datagrams may be lost, the streams go on",
            self.label,
            error.strerror or error,
        )
        self._network_heard = True
        self._transport.renew()
        return True

    def broken(self, error: OSError) -> None:
        """The socket cannot be used any more."""
        aborted = ConnectionAborted(f"{self.label} the socket failed: {error}")
        aborted.__cause__ = error
        _log.warning("%s", aborted)
        self._receiver.end(aborted)
        # A handler that receives learns of it, after what has arrived.
        self._close(cancel_handler=not self._receiver.taken)

    def start_sending(
        self,
        stream: Stream[Any],
        flush: FlushRule | None,
        done: Done,
        written: int = 0,
    ) -> Callable[[], object]:
        """Send the elements of a stream. Returns a function that stops it. On the event loop only.

        Each datagram is a write of its own, so ``flush`` and ``written`` do not matter here.
        """
        if self._closed:
            raise ConnectionAborted(f"{self.label} the socket was closed before this send began")
        if self._sender is not None:
            raise SendRefused(
                f"{self.label} another send is under way on this socket; chain this one after it with "
                "outbound.send(…).send(…), or merge the publishers"
            )

        def ended(error: BaseException | None) -> None:
            self._sender = None
            done(error)

        self._sender = sender = DatagramSender(
            self, self._transport, self._pace, self._watching("WRITE"), ended
        )
        connect(stream, sender)
        return self._stop_sending

    def _stop_sending(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()

    def on_loop(self, call: Callable[..., object], *arguments: Any) -> bool:
        """Make a call on the socket's event loop: now if we are on it. False if that loop is closed."""
        if get_ident() == self._thread:
            call(*arguments)
            return True
        return call_on(self.loop, call, *arguments)

    # ---------------------------------------------------------------- the end
    def close(self) -> None:
        """Close now and cancel the handler. :meth:`aclose` lets it finish."""
        self.on_loop(self._close)

    async def _close_within(self, grace: float) -> CloseReport:
        if self._closed:
            return CloseReport(0, ())
        self._receiver.finish()
        handler = self._handler
        if handler is None or handler.over:
            self._close()
            return CloseReport(1, ())
        try:
            await asyncio.wait_for(self._over.wait(), max(grace, 0))
        except TimeoutError:
            label = self.label
            _log.warning("%s was cut off: its handler was still running %g s after the close", label, grace)
            handler.cancel()
            self._receiver.discard(ConnectionAborted(f"{label} was closed before everything was received"))
            self._close()
            return CloseReport(0, (label,))
        return CloseReport(1, ())

    def _close(self, *, cancel_handler: bool = True) -> None:
        if self._closed:
            return
        self._receiver.end(None)
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.lost("the socket was closed")
        self._kernel_dropped = kernel_dropped(self.socket)
        self._closed = True
        self._transport.close()
        self._tell(ConnectionState.DISCONNECTING)
        self._is_over()
        if self._handler is not None and cancel_handler:
            self._handler.cancel()

    # ---------------------------------------------------------------- observers, wiretap and counts
    def _tell(self, state: ConnectionState) -> None:
        tell_state(self, state, self.settings.wiretap, self.settings.observers)

    def _watching(self, event: str) -> Callable[[Datagram], object] | None:
        """What to do with each datagram that is read or written, if anything: count it, log it."""
        tap, counts = self.settings.wiretap, self.counts
        if tap is None and not self.settings.metered:
            return None

        def watch(datagram: Datagram) -> None:
            if event == "READ":
                counts.bytes_received += len(datagram.data)
            else:
                counts.bytes_sent += len(datagram.data)
            if tap is not None:
                tap.tell(self.label, f"{event} {address_text(datagram.address)}", datagram.data)

        return watch


async def open_channel(
    settings: UdpSettings,
    attach: Callable[[socket.socket, Address], Address | None],
    *,
    listening: bool,
) -> UdpChannel:
    """Open a channel; ``attach`` binds or connects its socket, and returns the peer if there is one.

    Every address of the host is tried. If none works, the OSError of the last one is raised.
    """
    async with asyncio.timeout(settings.lookup_timeout):
        found = await addresses_of(
            settings.host,
            settings.port,
            type=socket.SOCK_DGRAM,
            proto=socket.IPPROTO_UDP,
            flags=socket.AI_PASSIVE if listening else 0,
        )
    failed: OSError | None = None
    for family, kind, protocol, _, address in found:
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setblocking(False)
            for option in settings.options:
                # Before the socket is bound: SO_REUSEADDR and others mean nothing afterwards.
                option.apply(opened)
            if settings.multicast is not None:
                settings.multicast.apply(opened)
            peer = attach(opened, address)
            for membership in settings.memberships:
                membership.join(opened)
            channel = UdpChannel(settings, opened, peer)
            if settings.loops is not None and not channel._move_in(settings.loops):
                channel.close()
                raise settings.loops.is_closed()
            channel.begin()
            return channel
        except OSError as error:
            opened.close()
            failed = error
        except BaseException:
            opened.close()
            raise
    raise failed or OSError(f"{settings.where} has no address")
