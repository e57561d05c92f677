"""What comes in from a UDP socket, as a Publisher of datagrams.

The socket is read as long as somebody may want what it has: to leave datagrams in the system's buffer would
only have the system drop them, the newest ones, without a word. What comes without demand waits in a bounded
queue, and the overflow policy decides when that is full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.net.errors import DatagramOverflow
from penstock.net.labels import address_text
from penstock.net.sole_publisher import SolePublisher, tell_end
from penstock.net.udp.datagram import Datagram, DatagramQueue, Overflow
from penstock.net.udp.sender import SocketOwner
from penstock.net.udp.transport import DatagramTransport
from penstock.spec import UNBOUNDED

__all__ = ["DatagramReceiver"]

_A_TURN: Final = 64
"""Datagrams that are read before others on the event loop get their turn."""
_A_LAST_TURN: Final = 4096
"""The same when there will be no other turn."""
_LARGEST: Final = 65_536


class DatagramReceiver(SolePublisher[Datagram]):
    """The receiving side of one socket. Signals are given on the event loop; requests come from anywhere.

    It is its own Subscription: a socket has one receiving subscriber in its life.
    """

    def __init__(
        self,
        owner: SocketOwner,
        transport: DatagramTransport,
        overflow: Overflow,
        watch: Callable[[Datagram], object] | None,
    ) -> None:
        super().__init__(transport.loop)
        self._owner = owner
        self._transport = transport
        self._waiting = DatagramQueue(overflow)
        self._queue = self._waiting.queue
        self._overflow = overflow
        self._watch = watch
        self._reading = False
        self._ended = False
        self._error: BaseException | None = None

    # ---------------------------------------------------------------- what the socket calls
    def open(self) -> None:
        """Begin to read."""
        self._reading = True
        self._transport.watch_readable(self._readable)

    def _readable(self) -> None:
        if not self._read(_A_TURN):
            # Nothing there after all: an error woke us that somebody else has fetched meanwhile.
            self._transport.renew()

    def _read(self, most: int) -> int:
        """Read what there is, up to ``most``; returns how many calls brought something, if only an error."""
        peer = self._owner.peer
        counts = self._owner.counts
        receive, receive_from = self._transport.recv, self._transport.recvfrom
        for done in range(most):
            if not self._reading:
                return done
            try:
                if peer is None:
                    data, address = receive_from(_LARGEST)
                else:
                    data, address = receive(_LARGEST), peer
            except (BlockingIOError, InterruptedError):
                return done
            except OSError as error:
                if self._owner.network_said(error):
                    continue
                self._owner.broken(error)
                return done
            counts.received += 1
            datagram = Datagram(data, address)
            if self._watch is not None:
                self._watch(datagram)
            self._take(datagram)
        return most

    def _take(self, datagram: Datagram) -> None:
        subscriber = self._subscriber
        if self._demand and subscriber is not None and not self._queue:
            self._demand -= 1
            self._emitting = True
            try:
                subscriber.on_next(datagram)
            except Exception as fault:
                self._subscriber_failed(fault, "on_next")
            finally:
                self._emitting = False
            if self._ended:
                self._drain()
        elif not self._waiting.put(datagram):
            self.end(
                DatagramOverflow(
                    f"{self._owner.label} a datagram from {address_text(datagram.address)} found "
                    f"{self._overflow.capacity:,} waiting and no demand; ask for more at a time, allow more "
                    "with overflow(…, capacity=…), or choose what to drop"
                )
            )

    def end(self, error: BaseException | None) -> None:
        """Nothing more will come; what waits is still given."""
        if self._ended:
            return
        self._stop_reading()
        self._ended = True
        self._error = error
        if not self._queue and not self._emitting:
            self._finish()

    def finish(self) -> None:
        """Take what has come up to now, and no more."""
        if self._reading:
            self._read(_A_LAST_TURN)
        self.end(None)

    # ---------------------------------------------------------------- what the subscriber asks for
    @property
    def _name(self) -> str:
        return self._owner.label

    def _begin(self) -> None:
        self._drain()

    def _asked(self, n: int) -> None:
        self._demand = min(self._demand + n, UNBOUNDED)
        self._drain()

    def _cancel(self) -> None:
        if self._cancelled:
            return
        self._release()
        self._queue.clear()
        self._stop_reading()

    # ---------------------------------------------------------------- between the two
    def _drain(self) -> None:
        if self._emitting:
            return
        self._emitting = True
        try:
            while self._demand and self._queue and self._subscriber is not None:
                self._demand -= 1
                self._subscriber.on_next(self._queue.popleft())
        except Exception as fault:
            self._subscriber_failed(fault, "on_next")
        finally:
            self._emitting = False
        if self._ended and not self._queue:
            self._finish()

    def _finish(self) -> None:
        subscriber = self._subscriber
        if subscriber is None:
            return  # whoever subscribes yet gets the end
        self._release()
        tell_end(subscriber, self._error)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.ignore_readable()

    # ---------------------------------------------------------------- for those who look
    @property
    def dropped(self) -> int:
        """Datagrams that were read and given to nobody."""
        return self._waiting.dropped

    @property
    def taken(self) -> bool:
        """Whether it has, or had, a subscriber."""
        return self._taken_by is not None

    @property
    def over(self) -> bool:
        """Whether everything has been given, or nobody wants it."""
        return self._cancelled or (self._ended and not self._queue)

    def discard(self, error: BaseException | None) -> None:
        """Give nothing more to anybody but the end: time is up."""
        self._queue.clear()
        self.end(error)
        self._drain()
