"""``outbound.send(inbound.receive())`` with nothing in between: a socket feeds another one, or itself.

If it is the same socket, an :class:`Echo` takes the transport's events. Each chunk is counted and written,
with nothing else of ours on the way, and a full write buffer pauses reading. The end and the errors are those
of any other send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.net.sender import StreamSender
from penstock.net.transport import Transport
from penstock.spec import UNBOUNDED

if TYPE_CHECKING:
    from penstock.net.bridge import Bridge

__all__ = ["Echo", "LoopSender"]


class LoopSender(StreamSender):
    """A StreamSender for what a connection on the same loop receives: bytes, on this thread.

    It asks once, for everything. When this socket is full the other one is held back, whatever was asked of
    it, so demand would bound nothing that is not bounded already.
    """

    __slots__ = ()

    def on_next(self, data: bytes, /) -> None:
        """Write it, without a look at the thread, the type and the demand."""
        self._bytes += len(data)
        self._outstanding -= 1
        self._write(data)

    def _refill(self) -> None:
        subscription = self._subscription
        if self._asked or subscription is None or not self._writable:
            return
        self._asked = self._outstanding = UNBOUNDED
        subscription.request(UNBOUNDED)


class Echo:
    """Takes the transport's events in place of the bridge, until the peer has sent its last byte."""

    __slots__ = ("_bridge", "_full", "_sender", "_transport", "data_received")

    def __init__(self, bridge: Bridge, transport: Transport, sender: StreamSender) -> None:
        self._bridge = bridge
        self._sender = sender
        self._transport = transport
        self.data_received: Callable[[bytes], None] = sender.on_next
        self._full = False
        transport.set_protocol(self)

    def pause_writing(self) -> None:
        """The transport holds as many bytes as it should, so no more are read."""
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The transport has room again."""
        self._full = False
        self._transport.resume_reading()

    def eof_received(self) -> bool | None:
        """The peer has sent its last byte: flush, then the send is complete."""
        cut = self._bridge.connection.cut_off()
        self.finish(cut)
        return self._bridge.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self._bridge.connection_lost(error)

    def finish(self, why: BaseException | None) -> None:
        """Give the transport back, and end the send as ``receive()`` would: complete, or with this error."""
        self._give_back()
        if why is None:
            self._sender.on_complete()
        else:
            self._sender.on_error(why)

    def cancel(self) -> None:
        """The send was cancelled: give the transport back."""
        if not self._transport.is_closing():
            self._give_back()
        self._sender.cancel()

    def _give_back(self) -> None:
        self._transport.set_protocol(self._bridge)
        if self._full:
            # The transport says it once, and has said it to us: the next sends have to wait.
            self._bridge.pause_writing()
