"""The two sides of a UDP socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.net.outbound import SendChain, SendPublisher
from penstock.net.udp.datagram import Datagram
from penstock.net.udp.receiver import DatagramReceiver
from penstock.spec import Publisher
from penstock.streams import Flux, Mono
from penstock.streams.spi import PublisherSource, as_flux, as_stream, flux_of

if TYPE_CHECKING:
    from penstock.net.udp.channel import UdpChannel

__all__ = ["UdpInbound", "UdpOutbound"]


class _ReceiveSource(PublisherSource):
    """The source of ``receive()``."""

    def __init__(self, receiver: DatagramReceiver) -> None:
        super().__init__(receiver)
        self.label = "receive()"

    def runs_on(self) -> str:
        """The loop that the socket is read on."""
        return "event loop of the socket"


class UdpInbound:
    """What a UDP socket receives. It has one subscriber in its life."""

    def __init__(self, channel: UdpChannel, receiver: DatagramReceiver) -> None:
        """Made by a channel."""
        self._channel = channel
        self._receiver = receiver

    def receive(self) -> Flux[Datagram]:
        """The datagrams as they arrive, each with the address of its sender.

        Emits when a datagram has arrived and there is demand.
        Backpressures nobody, because a UDP sender cannot be made to wait: datagrams without demand are kept
        up to the capacity of ``overflow()``; beyond it they are dropped, or the stream fails.
        Completes when the socket is closed and everything that arrived has been emitted.
        Cancels when its subscriber cancels; the socket is not read any more, and can still send.
        """
        return flux_of(_ReceiveSource(self._receiver))

    def with_channel(self, use: Callable[[UdpChannel], object]) -> UdpInbound:
        """Call ``use`` with the socket's channel, now."""
        use(self._channel)
        return self

    @property
    def channel(self) -> UdpChannel:
        """The channel that this side belongs to, with its addresses, groups and counts."""
        return self._channel


class UdpOutbound(SendChain):
    """What to send from a UDP socket, in order.

    Nothing happens before somebody subscribes to it, awaits it, or returns it from a handler. It completes
    when the system has accepted every datagram, which does not mean that they arrive.
    """

    def __init__(self, channel: UdpChannel, before: Mono[Any] | None = None) -> None:
        """Made by a channel, and by each of the methods below."""
        super().__init__(before)
        self._channel = channel

    # ---------------------------------------------------------------- what to send
    def send(self, data: Publisher[Datagram] | Publisher[bytes] | Datagram | bytes) -> UdpOutbound:
        """Send every datagram of a publisher, or just this one. On a connected socket bytes are enough.

        The publisher is asked for as much as the socket takes and ``pace()`` allows. A datagram that is too
        large ends the send with :class:`~penstock.net.DatagramTooLarge`. One that the network refuses is
        counted, and the send goes on.
        """
        if isinstance(data, bytes | bytearray | memoryview):
            data = Mono.just(bytes(data))
        elif isinstance(data, Datagram):
            data = Mono.just(data)
        return self._and(flux_of(PublisherSource(SendPublisher(self._channel, as_stream(data, "send()")))))

    def send_object(self, thing: Any) -> UdpOutbound:
        """Send an object, or every object of a publisher, encoded by the ``encoder``."""
        encode = self._channel.settings.encoder
        if isinstance(thing, Publisher):
            return self.send(as_flux(as_stream(thing, "send_object()")).map(encode))
        return self.send(Mono.defer(lambda: Mono.just(encode(thing))))

    def keep_open(self) -> UdpOutbound:
        """Never complete: for a handler whose socket stays open until somebody closes it."""
        return self._and(Mono.never())

    def _behind(self, before: Mono[Any]) -> UdpOutbound:
        return UdpOutbound(self._channel, before)

    def with_channel(self, use: Callable[[UdpChannel], object]) -> UdpOutbound:
        """Call ``use`` with the socket's channel, now."""
        use(self._channel)
        return self

    @property
    def channel(self) -> UdpChannel:
        """The channel that this side belongs to."""
        return self._channel
