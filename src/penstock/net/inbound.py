"""The receiving side of a connection as its user sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.net.errors import NetError
from penstock.net.receiver import Receiver
from penstock.net.transport import EventLoop
from penstock.streams import Flux
from penstock.streams.spi import PublisherSource, Stream, bare_source, flux_of

if TYPE_CHECKING:
    from penstock.net.connection import Connection

__all__ = ["Inbound", "ReceiveSource", "is_receive_on", "is_untouched_receive"]


class ReceiveSource(PublisherSource):
    """The source of ``receive()``."""

    ahead = 2  # a chunk may be a quarter of a megabyte

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver)
        self.label = "receive()"
        self.loop = receiver.loop

    def bare(self) -> Flux[bytes]:
        """The chunks without any operator."""
        return flux_of(self)

    def runs_on(self) -> str:
        """The loop that the socket is read on."""
        return "event loop of the connection"


def is_receive_on(stream: Stream[Any], loop: EventLoop) -> bool:
    """Whether this stream is the bare ``receive()`` of a connection on this loop."""
    source = bare_source(stream)
    return isinstance(source, ReceiveSource) and source.loop is loop


def is_untouched_receive(stream: Stream[Any], receiver: Receiver) -> bool:
    """Whether this stream is the bare ``receive()`` of this receiver, and nobody has subscribed yet."""
    source = bare_source(stream)
    return isinstance(source, ReceiveSource) and source.publisher is receiver and receiver.untouched


class Inbound:
    """What a connection receives. It has one subscriber in its life."""

    def __init__(self, connection: Connection, receiver: Receiver) -> None:
        """Made by a connection."""
        self._connection = connection
        self._receiver = receiver

    def receive(self) -> Flux[bytes]:
        """The bytes as they arrive, in chunks of any size.

        Emits when bytes have arrived and there is demand.
        Backpressures when there is none: the socket is paused, and the peer has to wait.
        Completes when the peer has ended its side and every byte has been emitted.
        Cancels when its subscriber cancels; the connection stays open, and only the read-ahead is still read.
        """
        return flux_of(ReceiveSource(self._receiver))

    def receive_objects(self) -> Flux[Any]:
        """The objects that the ``framing`` of the server or client finds in the bytes."""
        framing = self._connection.settings.framing
        if framing is None:
            raise NetError(
                "receive_objects() needs a framing to find the objects: configure framing(lines()), "
                "framing(length_prefixed()) or another one, or use receive()"
            )
        return framing.frames(self.receive())

    def with_connection(self, use: Callable[[Connection], object]) -> Inbound:
        """Call ``use`` with the connection, now."""
        use(self._connection)
        return self

    def waiting_bytes(self) -> tuple[int | None, int | None]:
        """How many bytes have arrived and wait for the subscriber, and after how many the socket is paused.

        Any thread may ask.
        """
        return self._receiver.waiting_bytes()

    @property
    def connection(self) -> Connection:
        """The connection that this side belongs to."""
        return self._connection
