"""The receiving side of a connection as its user sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.net.errors import NetError
from penstock.net.receiver import Receiver
from penstock.net.transport import Loop
from penstock.streams import Flux
from penstock.streams.spi import PublisherSource, Stream, bare_source, flux_of

if TYPE_CHECKING:
    from penstock.net.connection import Connection

__all__ = ["Inbound", "ReceiveSource", "is_receive_on", "is_untouched_receive"]


class ReceiveSource(PublisherSource):
    """The top of a stream of what a connection receives."""

    ahead = 2  # a chunk may have a quarter of a megabyte

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(receiver)
        self.label = "receive()"
        self.loop = receiver.loop

    def runs_on(self) -> str:
        """The loop that the socket is read on."""
        return "event loop of the connection"


def is_receive_on(stream: Stream[Any], loop: Loop) -> bool:
    """Whether this is what a connection on this loop receives, with nothing between."""
    source = bare_source(stream)
    return isinstance(source, ReceiveSource) and source.loop is loop


def is_untouched_receive(stream: Stream[Any], receiver: Receiver) -> bool:
    """Whether this is what this one receives, with nothing between, and nobody has begun with it."""
    source = bare_source(stream)
    return isinstance(source, ReceiveSource) and source.publisher is receiver and receiver.untouched


class Inbound:
    """What a connection receives; it has one subscriber in its life."""

    def __init__(self, connection: Connection, receiver: Receiver) -> None:
        """Made by a connection."""
        self._connection = connection
        self._receiver = receiver

    def receive(self) -> Flux[bytes]:
        """The bytes as they come in, in chunks of whatever size the network makes of them.

        Emits when bytes have come and there is demand.
        Backpressures when there is none: the socket is paused, and the sender waits.
        Completes when the peer has sent its last byte and all were given.
        Cancels when its subscriber cancels; the connection stays, and is read no more but for the read-ahead.
        """
        return flux_of(ReceiveSource(self._receiver))

    def receive_objects(self) -> Flux[Any]:
        """What the ``framing`` of the server or client makes of the bytes."""
        framing = self._connection.settings.framing
        if framing is None:
            raise NetError(
                "receive_objects() needs to know where an object ends: configure framing(lines()), "
                "framing(length_prefixed()) or another, or use receive()"
            )
        return framing.frames(self.receive())

    def with_connection(self, use: Callable[[Connection], object]) -> Inbound:
        """Call ``use`` with the connection, now."""
        use(self._connection)
        return self

    @property
    def connection(self) -> Connection:
        """The connection that this is a side of."""
        return self._connection
