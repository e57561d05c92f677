"""The sender of a UDP socket: it asks for as much as the socket takes.

A full socket buffer stops the demand until there is room. That is all the backpressure that UDP has: the
network and the receiver drop what is too much for them and say nothing. So only a handful of datagrams goes
out in one turn of the event loop, and ``pace()`` bounds how many do in a second.
"""

from __future__ import annotations

import errno
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.net.errors import ConnectionAborted, NetError
from penstock.net.metrics import UdpCounters
from penstock.net.sender import Done, Sender
from penstock.net.transport import TimerHandle
from penstock.net.udp.datagram import Address, Datagram, as_datagram, refusal
from penstock.net.udp.transport import DatagramTransport
from penstock.spec import none_element
from penstock.token_bucket import TokenBucket

__all__ = ["BUDGET", "MOST_DATAGRAMS", "DatagramSender", "SocketOwner"]

MOST_DATAGRAMS: Final = 64
"""The demand for datagrams never exceeds this, nor does what is sent in one turn of the loop."""
BUDGET: Final = 256 * 1024
"""About this many bytes are asked for ahead."""
_ATTEMPTS: Final = 4
"""How often a datagram is tried if the refusal of an earlier one is in its way."""
_UNREACHABLE: Final = frozenset(
    getattr(errno, name)
    for name in ("ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN")
    if hasattr(errno, name)
)
"""The address cannot be reached now. The next datagram may get through."""
_NO_BUFFERS_PAUSE: Final = 0.002
"""Seconds until the next attempt where the interface's queue is full, which is an error without an event."""


class SocketOwner(Protocol):
    """What a sender or receiver needs of the channel that it belongs to."""

    counts: UdpCounters
    peer: Address | None

    @property
    def label(self) -> str:
        """The socket's name in the log."""
        ...

    def network_said(self, error: OSError) -> bool:
        """Whether the network reported this error; then it has been logged, and the socket still works."""
        ...

    def broken(self, error: OSError) -> None:
        """The socket cannot be used any more."""
        ...


class DatagramSender(Sender):
    """Sends the elements of one source from one socket, each as a datagram."""

    __slots__ = (
        "_asking",
        "_held",
        "_mean",
        "_owner",
        "_pace",
        "_taken",
        "_timer",
        "_transport",
        "_waiting",
        "_watch",
    )

    def __init__(
        self,
        owner: SocketOwner,
        transport: DatagramTransport,
        pace: TokenBucket | None,
        watch: Callable[[Datagram], object] | None,
        done: Done,
    ) -> None:
        super().__init__(transport.loop, done, target=MOST_DATAGRAMS)
        self._owner = owner
        self._transport = transport
        self._pace = pace
        self._watch = watch
        self._mean = 0
        """The size of an element, about."""
        self._taken = 0
        """Elements that came."""
        self._waiting: deque[Datagram] = deque()
        """Elements that came while the socket was full, or before their time."""
        self._held = False
        """Nothing can be sent before something happens: the socket has room, or time passes."""
        self._timer: TimerHandle | None = None
        self._asking = False

    # ---------------------------------------------------------------- elements
    def on_next(self, element: Datagram | bytes, /) -> None:
        """Send an element, or keep it until the socket takes it."""
        if element is None:
            raise none_element("send()")
        if get_ident() != self._thread:
            self._from_elsewhere(element)
            return
        if self._done is None:
            return  # §2.8
        try:
            datagram = as_datagram(
                element, self._owner.peer, self._transport.socket.family, self._owner.label
            )
        except NetError as refused:
            self._end(refused, cancel=True)
            return
        self._outstanding -= 1
        self._taken += 1
        self._mean += (len(datagram.data) - self._mean) >> 3
        self._waiting.append(datagram)
        if not self._held:
            self._send_waiting()
        self._refill_soon()

    # ---------------------------------------------------------------- what the channel calls
    def lost(self, why: str) -> None:
        """The socket is closed. That is an error which says what had not been sent, never a completion."""
        if self._done is None:
            return
        size = sum(len(datagram.data) for datagram in self._waiting)
        left = len(self._waiting)
        sent = self._taken - left
        self._end(
            ConnectionAborted(
                f"{self._owner.label} {why} while sending: {sent:,} datagrams had gone, {left:,} with "
                f"{size:,} bytes had not",
                elements=sent,
                unsent=size,
            ),
            cancel=True,
        )

    # ---------------------------------------------------------------- demand
    def _refill_soon(self) -> None:
        """In the next turn of the loop, so that a source which never waits cannot keep the loop busy."""
        if self._finishing or self._scheduled or self._held or self._outstanding > self._target >> 1:
            return
        self._scheduled = True
        self._loop.call_soon(self._refill)

    def _refill(self) -> None:
        self._scheduled = False
        subscription = self._subscription
        if subscription is None or self._held or self._finishing or self._asking:
            return
        self._target = max(1, min(MOST_DATAGRAMS, BUDGET // max(1, self._mean)))
        n = self._target - self._outstanding
        if n <= 0:
            return
        self._outstanding += n
        self._asking = True
        try:
            self._ask(subscription, n)
        finally:
            self._asking = False

    # ---------------------------------------------------------------- the socket
    def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            if self._pace is not None:
                pause = self._pace.take(self._loop.time())
                if pause > 0:
                    self._hold_for(pause)
                    return
            if not self._send(waiting[0]):
                if self._pace is not None:
                    self._pace.give_back()
                return
            if waiting:
                waiting.popleft()
        if self._finishing:
            self._end(self._source_error, cancel=False)

    def _send(self, datagram: Datagram) -> bool:
        """Whether the next one may follow: this one was sent, or cannot be sent at all."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if self._owner.peer is None:
                    self._transport.sendto(datagram.data, datagram.address)
                else:
                    self._transport.send(datagram.data)
            except (BlockingIOError, InterruptedError):
                self._hold_until_writable()
                return False
            except OSError as error:
                if error.errno == errno.ENOBUFS:
                    self._hold_for(_NO_BUFFERS_PAUSE)
                    return False
                if self._owner.network_said(error) and attempt < _ATTEMPTS:
                    # Most likely the answer to an earlier datagram, which only kept this one from being sent.
                    continue
                if error.errno in _UNREACHABLE:
                    self._owner.counts.unsent += 1
                    return True
                self._end(refusal(datagram, error, self._transport.socket, self._owner.label), cancel=True)
                return False
            self._owner.counts.sent += 1
            if self._watch is not None:
                self._watch(datagram)
            return True
        raise AssertionError("every attempt ends in one of the ways above")

    def _hold_until_writable(self) -> None:
        if not self._held:
            self._held = True
            self._transport.watch_writable(self._go_on_writable)

    def _go_on_writable(self) -> None:
        self._transport.ignore_writable()
        self._go_on()

    def _hold_for(self, seconds: float) -> None:
        self._held = True
        self._timer = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._held = False
        self._timer = None
        self._send_waiting()
        if self._done is not None and not self._held:
            self._refill()

    # ---------------------------------------------------------------- the end
    def _finish(self) -> None:
        if not self._waiting:
            self._end(self._source_error, cancel=False)

    def _stop(self, *, cancel: bool) -> None:
        self._waiting.clear()
        self._transport.ignore_writable()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super()._stop(cancel=cancel)
