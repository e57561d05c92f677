"""What a connection writes: one send at a time, and small ones together.

A send that finds another one under way is refused, or waits in a queue, if the settings say so. Bytes that a
coroutine awaits need no send of their own: the first ones of a turn of the event loop are written at once,
those that follow in the same turn are written together.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.net.echo import Echo
from penstock.net.errors import ConnectionAborted, SendRefused
from penstock.net.identity import LoopBound
from penstock.net.inbound import is_untouched_receive
from penstock.net.receiver import Receiver
from penstock.net.send_queue import SendQueue
from penstock.net.sender import Done, FlushRule, StreamSender
from penstock.net.sender_choice import sender_for
from penstock.net.transport import HIGH_WATER
from penstock.streams.spi import Stream

if TYPE_CHECKING:
    from penstock.net.bridge import Bridge
    from penstock.net.connection import Connection

__all__ = ["ConnectionOutput"]


class ConnectionOutput(LoopBound):
    """The direction of a connection that goes to the peer; used on its event loop only."""

    __slots__ = (
        "_bridge",
        "_connection",
        "_echo",
        "_joined",
        "_joined_bytes",
        "_queue",
        "_receiver",
        "_send_was_begun",
        "_transport",
        "_write",
        "closed",
        "ended",
        "send_was_made",
        "sender",
        "sends_at_once",
        "writable",
    )

    def __init__(self, connection: Connection, bridge: Bridge, receiver: Receiver) -> None:
        """Made by the connection, as a part of it."""
        super().__init__(connection.transport)
        settings = connection.settings
        self._connection = connection
        self._bridge = bridge
        self._receiver = receiver
        self._transport = connection.transport
        self.sender: StreamSender | None = None
        """The send that is under way."""
        self.writable = True
        """Whether the transport has room."""
        self.closed = False
        """Whether the connection is closed, or is being closed: no send begins any more."""
        self.ended = False
        """Whether this direction was closed, and the other one was not."""
        self.send_was_made = False
        """Whether ``outbound.send()`` was called, by anybody."""
        self.sends_at_once = 0
        self._send_was_begun = False
        self._echo: Echo | None = None
        self._joined: list[bytes] | None = None
        """Bytes that were sent after the first ones in this turn of the loop; None if none were sent."""
        self._joined_bytes = 0
        self._queue = SendQueue(queued) if (queued := settings.queued_sends) else None
        self._write: Callable[[bytes], None] = connection.transport.write
        if connection.traffic is not None:
            self._write = connection.traffic.counting_sent(self._write)
        if settings.wiretap is not None:
            self._write = settings.wiretap.tapped(lambda: connection.label, "WRITE", self._write)

    @property
    def label(self) -> str:
        """The name of the connection in the log."""
        return self._connection.label

    @property
    def was_forgotten(self) -> bool:
        """Whether a send was made and nobody has subscribed to it."""
        return self.send_was_made and not self._send_was_begun and not self.sends_at_once

    @property
    def flushing(self) -> bool:
        """Whether a send has nothing more to write, and waits for its bytes to leave."""
        return self.sender is not None and self.sender.flushing

    # ---------------------------------------------------------------- sends
    def start_sending(
        self,
        stream: Stream[Any],
        flush: FlushRule | None,
        done: Done,
        written: int = 0,
    ) -> Callable[[], object]:
        """Write the elements of a stream. Returns a function that stops it. On the event loop only.

        Bytes that have been ``written`` already count as the first element of this send.
        """
        self._send_was_begun = True
        if self.sender is not None and self._queue is not None:
            self._check_open()

            def begin() -> Callable[[], object]:
                return self.start_sending(stream, flush, done, written)

            take_out = self._queue.add(self.label, begin, done)
            return lambda: self.on_loop(take_out)
        self._check_free()
        self.write_joined()

        def ended(error: BaseException | None) -> None:
            if self.sender is sender:
                self.sender = self._echo = None
            done(error)
            self._free()

        sender, start = sender_for(stream, self._transport, self._write, self.writable, flush, ended)
        self.sender = sender
        if written:
            sender.wrote(written)
        may_fuse = flush is None and self._connection.settings.may_fuse
        if may_fuse and is_untouched_receive(stream, self._receiver):
            for data in self._receiver.hand_over():
                sender.on_next(data)
            self._echo = Echo(self._bridge, self._transport, sender)
            return lambda: self.on_loop(self._stop_echo, sender)
        start()
        return lambda: self.on_loop(self._stop_sending, sender)

    def sent_at_once(self, data: bytes) -> bool | None:
        """Write now if possible. Returns whether there is room for more, or None if nothing was written."""
        if (
            self.sender is not None
            or not self.writable
            or self.closed
            or self.ended
            or get_ident() != self._thread
        ):
            return None
        joined = self._joined
        if joined is None:
            # The first of this turn leaves at once. Those that follow are written together.
            self._joined = []
            self._loop.call_soon(self._end_turn)
            self._write(data)
        else:
            joined.append(data)
            self._joined_bytes += len(data)
            if self._joined_bytes >= HIGH_WATER:
                self.write_joined()
        return self.writable

    def _end_turn(self) -> None:
        self.write_joined()
        self._joined = None

    def write_joined(self) -> None:
        """Write what was sent in this turn of the loop; always before something else is written."""
        if self._joined_bytes:
            data, self._joined, self._joined_bytes = b"".join(self._joined or ()), [], 0
            self._write(data)

    def end(self, done: Done) -> None:
        """Close this direction after what was sent; the peer may go on sending."""
        if self.sender is not None and self._queue is not None:

            def begin() -> Callable[[], object]:
                self.end(done)
                return lambda: None

            self._check_open()
            self._queue.add(self.label, begin, done)
            return
        self._check_free()
        if not self._transport.can_write_eof():
            raise SendRefused(
                f"{self.label} TLS cannot close one direction only: end the handler, or close the connection"
            )
        self.write_joined()
        self.ended = True
        self._transport.end()
        done(None)

    def _stop_sending(self, sender: StreamSender) -> None:
        if self.sender is sender:
            self.sender = None
        sender.cancel()
        self._free()

    def _stop_echo(self, sender: StreamSender) -> None:
        echo = self._echo
        if echo is not None and self.sender is sender:
            self._echo = self.sender = None
            echo.cancel()
            self._receiver.take_back()
            self._free()

    def _free(self) -> None:
        """A send is over: the next one begins, or the connection may be left unused."""
        if self._queue is not None:
            self._queue.go_on(lambda: self.sender is None)
        if self._connection.peer_has_ended and self.sender is None:
            self._connection.expect_use()

    def _check_open(self) -> None:
        if self.closed:
            raise self._closed_before("the connection was closed")
        if self.ended:
            raise SendRefused(f"{self.label} this side has ended its direction with end(): it cannot send")

    def _check_free(self) -> None:
        self._check_open()
        if self.sender is not None:
            raise SendRefused(
                f"{self.label} another send is under way on this connection; chain this one after it with "
                "outbound.send(…).send(…), merge the publishers, or configure queue_sends()"
            )

    def _closed_before(self, why: str) -> ConnectionAborted:
        return ConnectionAborted(f"{self.label} {why} before this send began")

    # ---------------------------------------------------------------- what the connection calls
    def pause(self) -> None:
        """The transport holds as many bytes as it should."""
        self.writable = False
        if self.sender is not None:
            self.sender.pause()

    def resume(self) -> bool:
        """The transport has room again. Returns whether there is a send that was told so."""
        self.writable = True
        sender = self.sender
        if sender is None:
            return False
        sender.resume()
        return True

    def finish_echo(self, why: BaseException) -> None:
        """Nothing more is received: what is sent as it comes in ends with that."""
        if self._echo is not None:
            echo, self._echo = self._echo, None
            echo.finish(why)

    def close(self, why: str) -> bool:
        """Let the sends fail, the one under way and those that wait. Returns whether one was under way."""
        self.closed = True
        sender, self.sender = self.sender, None
        self.fail_waiting(why)
        if sender is not None:
            sender.lost(why)
        return sender is not None

    def abort(self) -> None:
        """Begin no send any more, and drop what was sent in this turn of the loop."""
        self.closed = True
        self._joined_bytes = 0

    def cut(self) -> StreamSender | None:
        """The socket is closed: write nothing more. Returns the send under way; tell it why."""
        self.abort()
        self.writable = False
        self._echo = None
        sender, self.sender = self.sender, None
        # What is received may be what is sent. That error cannot say what was written, so the sender's does.
        if sender is not None:
            sender.ignore_end()
        return sender

    def fail_waiting(self, why: str) -> None:
        """The sends that wait for their turn will not have one."""
        if self._queue is not None:
            self._queue.fail(lambda: self._closed_before(why))
