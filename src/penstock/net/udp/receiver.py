"""What a UDP socket receives, as a Publisher of datagrams.

The socket is read as long as there may be a subscriber: datagrams that stay in the system's buffer would only
be dropped there, the newest ones first, without a word. Datagrams without demand wait in a bounded queue.
When that is full, the overflow policy decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.net.errors import DatagramOverflow
from penstock.net.labels import address_text
from penstock.net.sole_publisher import SolePublisher, tell_end
from penstock.net.udp.datagram import Datagram, DatagramQueue, OverflowSettings
from penstock.net.udp.sender import SocketOwner
from penstock.net.udp.transport import DatagramTransport
from penstock.spec import UNBOUNDED

__all__ = ["DatagramReceiver"]

_A_TURN: Final = 64
"""Datagrams to read before others on the event loop get their turn."""
_A_LAST_TURN: Final = 4096
"""The same when the socket is being closed."""
_LARGEST: Final = 65_536


class DatagramReceiver(SolePublisher[Datagram]):
    """The receiving side of one socket. It is its own Subscription, since it has one subscriber.

    Every signal is given on the event loop; requests may come from any thread.
    """

    def __init__(
        self,
        owner: SocketOwner,
        transport: DatagramTransport,
        overflow: OverflowSettings,
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
            # Nothing was there: we were woken for an error that the sender has fetched meanwhile.
            self._transport.renew()

    def _read(self, most: int) -> int:
        """Read up to ``most`` datagrams. Returns how many reads brought something, if only an error."""
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
            except BaseException as fault:
                self._subscriber_failed(fault, "on_next")
            finally:
                self._emitting = False
            if self._ended:
                self._drain()
        elif not self._waiting.put(datagram):
            self.end(
                DatagramOverflow(
                    f"{self._owner.label} a datagram from {address_text(datagram.address)} found "
                    f"{self._overflow.capacity:,} waiting and no demand; request more at a time, let more "
                    "wait with overflow(…, capacity=…), or choose a policy that drops"
                )
            )

    def end(self, error: BaseException | None) -> None:
        """Nothing more will arrive. What waits is still emitted."""
        if self._ended:
            return
        self._stop_reading()
        self._ended = True
        self._error = error
        if not self._queue and not self._emitting:
            self._finish()

    def finish(self) -> None:
        """Read what has arrived up to now, then end."""
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
        except BaseException as fault:
            self._subscriber_failed(fault, "on_next")
        finally:
            self._emitting = False
        if self._ended and not self._queue:
            self._finish()

    def _finish(self) -> None:
        subscriber = self._subscriber
        if subscriber is None:
            return  # a later subscriber gets the end
        self._release()
        tell_end(subscriber, self._error)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.ignore_readable()

    # ---------------------------------------------------------------- what others may see
    @property
    def dropped(self) -> int:
        """Datagrams that were read and dropped."""
        return self._waiting.dropped

    @property
    def taken(self) -> bool:
        """Whether there is a subscriber, or was one."""
        return self._taken_by is not None

    @property
    def over(self) -> bool:
        """Whether everything has been emitted, or the subscriber has cancelled."""
        return self._cancelled or (self._ended and not self._queue)

    def discard(self, error: BaseException | None) -> None:
        """Drop what waits and end now: time is up."""
        self._queue.clear()
        self.end(error)
        self._drain()
