"""What goes out of a UDP socket: a Subscriber that sends, and asks for as much as the socket takes.

A full socket buffer stops the demand until there is room. That is all the backpressure that UDP has: the
network and the receiver drop what is too much for them and say nothing. So no more than a handful goes out in
one turn of the event loop, and ``pace()`` bounds how many do in a second.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.net.errors import ConnectionAborted, NetError
from penstock.net.metrics import UdpCounters
from penstock.net.udp.datagram import Address, Datagram, as_datagram, refusal
from penstock.net.udp.pace import Pacer
from penstock.net.udp.transport import Readiness
from penstock.spec import Subscription, none_element, none_error, none_subscription
from penstock.streams.spi import asks_main_thread_to_stop

__all__ = ["BUDGET", "MOST_DATAGRAMS", "DatagramSender", "SenderOwner"]

MOST_DATAGRAMS: Final = 64
"""Datagrams that are asked for ahead at most, and sent in one turn of the loop."""
BUDGET: Final = 256 * 1024
"""Bytes that are asked for ahead, about."""
_ATTEMPTS: Final = 4
"""How often a datagram is tried whose way out is barred by the refusal of an earlier one."""
_NO_WAY: Final = frozenset(
    getattr(errno, name)
    for name in ("ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN")
    if hasattr(errno, name)
)
"""There is no way to the address now; there may be one for the next datagram."""
_NO_BUFFERS_PAUSE: Final = 0.002
"""Seconds until the next attempt where a full queue of the interface is an error and no event follows."""


class SenderOwner(Protocol):
    """What a sender has to know of the socket that it belongs to."""

    counts: UdpCounters
    peer: Address | None

    @property
    def label(self) -> str:
        """The socket in the log."""
        ...

    def network_said(self, error: OSError) -> bool:
        """Whether an error came from the network and means nothing to the socket itself; it is told then."""
        ...


class DatagramSender:
    """Sends the elements of one source from one socket; then tells ``done`` with None or an error.

    Elements may come from any thread; everything else happens on the event loop.
    """

    def __init__(
        self,
        owner: SenderOwner,
        loop: asyncio.AbstractEventLoop,
        opened: socket.socket,
        readiness: Readiness,
        pacer: Pacer | None,
        watch: Callable[[Datagram], object] | None,
        done: Callable[[BaseException | None], object],
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._thread = get_ident()
        self._socket = opened
        self._readiness = readiness
        self._pacer = pacer
        self._watch = watch
        self._done: Callable[[BaseException | None], object] | None = done
        self._subscription: Subscription | None = None
        self._left = 0
        """Elements that were asked for and have not come."""
        self._target = MOST_DATAGRAMS
        """Elements to be asked for ahead."""
        self._mean = 0
        """The size of an element, about."""
        self._taken = 0
        """Elements that came."""
        self._waiting: deque[Datagram] = deque()
        """Elements that came when the socket was full, or too early."""
        self._held = False
        """Whether something must happen before the next one can be sent: room in the socket, or time."""
        self._timer: asyncio.TimerHandle | None = None
        self._elsewhere: deque[Any] = deque()
        """Signals that came on other threads."""
        self._asking = False
        self._scheduled = False
        self._finishing = False
        self._source_error: BaseException | None = None

    # ---------------------------------------------------------------- Subscriber
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Ask for the first elements."""
        if subscription is None:
            raise none_subscription()
        if self._subscription is not None or self._done is None:
            subscription.cancel()  # §2.5
            return
        self._subscription = subscription
        if get_ident() == self._thread:
            self._refill()
        else:
            self._loop.call_soon_threadsafe(self._refill)

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
            datagram = as_datagram(element, self._owner.peer, self._socket.family, self._owner.label)
        except NetError as refused:
            self._end(refused, cancel=True)
            return
        self._left -= 1
        self._taken += 1
        self._mean += (len(datagram.data) - self._mean) >> 3
        self._waiting.append(datagram)
        if not self._held:
            self._send_waiting()
        self._refill_soon()

    def on_error(self, error: BaseException, /) -> None:
        """The source failed: what it gave before is sent, then the error goes on."""
        if error is None:
            raise none_error()
        self._source_ended(error)

    def on_complete(self) -> None:
        """The source is at its end: when the system has taken everything, so are we."""
        self._source_ended(None)

    # ---------------------------------------------------------------- what the channel calls
    def lost(self, why: str) -> None:
        """The socket is closed; what it had not taken is told as an error, never as an end."""
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

    def cancel(self) -> None:
        """Nobody wants to know any more: stop asking, and send nothing more."""
        if get_ident() != self._thread:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.cancel)
            return
        if self._done is not None:
            self._done = None
            self._stop(cancel=True)

    # ---------------------------------------------------------------- demand
    def _refill_soon(self) -> None:
        """A source that never waits must not keep the loop for itself: what it gives next is for later."""
        if self._finishing or self._scheduled or self._held or self._left > self._target >> 1:
            return
        self._scheduled = True
        self._loop.call_soon(self._refill)

    def _refill(self) -> None:
        self._scheduled = False
        subscription = self._subscription
        if subscription is None or self._held or self._finishing or self._asking:
            return
        self._target = max(1, min(MOST_DATAGRAMS, BUDGET // max(1, self._mean)))
        n = self._target - self._left
        if n <= 0:
            return
        self._left += n
        self._asking = True
        try:
            subscription.request(n)
        except BaseException as fault:
            self._end(fault, cancel=True)  # §3.16
            if asks_main_thread_to_stop(fault):
                raise
        finally:
            self._asking = False

    # ---------------------------------------------------------------- the socket
    def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            if self._pacer is not None:
                pause = self._pacer.take(self._loop.time())
                if pause > 0:
                    self._hold_for(pause)
                    return
            if not self._send(waiting[0]):
                if self._pacer is not None:
                    self._pacer.give_back()
                return
            if waiting:
                waiting.popleft()
        if self._finishing:
            self._end(self._source_error, cancel=False)

    def _send(self, datagram: Datagram) -> bool:
        """Whether the next one may follow: this one was sent, or there is no way to send it."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if self._owner.peer is None:
                    self._socket.sendto(datagram.data, datagram.address)
                else:
                    self._socket.send(datagram.data)
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
                if error.errno in _NO_WAY:
                    self._owner.counts.unsent += 1
                    return True
                self._end(refusal(datagram, error, self._socket, self._owner.label), cancel=True)
                return False
            self._owner.counts.sent += 1
            if self._watch is not None:
                self._watch(datagram)
            return True
        raise AssertionError("every attempt ends in one of the ways above")

    def _hold_until_writable(self) -> None:
        if not self._held:
            self._held = True
            self._readiness.watch_writable(self._go_on_writable)

    def _go_on_writable(self) -> None:
        self._readiness.ignore_writable()
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

    # ---------------------------------------------------------------- other threads
    def _from_elsewhere(self, signal: Any) -> None:
        self._elsewhere.append(signal)
        if len(self._elsewhere) == 1 and not self._loop.is_closed():
            # Whoever put the first one in wakes the loop; the loop empties all of it.
            self._loop.call_soon_threadsafe(self._take_elsewhere)

    def _take_elsewhere(self) -> None:
        arrived = self._elsewhere
        while arrived:
            signal = arrived[0]
            if type(signal) is _End:
                self._source_ended(signal.error)
            else:
                self.on_next(signal)
            arrived.popleft()

    # ---------------------------------------------------------------- ends
    def _source_ended(self, error: BaseException | None) -> None:
        if get_ident() != self._thread:
            self._from_elsewhere(_End(error))
            return
        if self._done is None or self._finishing:
            return
        self._subscription = None
        self._finishing = True
        self._source_error = error
        if not self._waiting:
            self._end(error, cancel=False)

    def _end(self, error: BaseException | None, *, cancel: bool) -> None:
        done, self._done = self._done, None
        self._stop(cancel=cancel)
        if done is not None:
            done(error)

    def _stop(self, *, cancel: bool) -> None:
        subscription, self._subscription = self._subscription, None
        self._waiting.clear()
        self._readiness.ignore_writable()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if cancel and subscription is not None:
            subscription.cancel()


class _End:
    """The end of a source, on its way from another thread."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
