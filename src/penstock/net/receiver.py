"""What a transport receives, as a Publisher of bytes: hardly anything is read that was not asked for.

The queue between the socket and the subscriber is bounded in bytes and in chunks. When it is full the socket
is paused: its window closes, and the peer has to wait. When most of the queue is gone, reading goes on. A
little is read without demand on purpose: while a socket is paused, nobody learns that the peer has gone.
With ``read_ahead=0`` nothing is read before somebody asks for it.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final, Protocol
from weakref import WeakKeyDictionary

from penstock.net.sole_publisher import SolePublisher, tell_end
from penstock.net.transport import EventLoop, Transport
from penstock.spec import UNBOUNDED, Subscriber
from penstock.streams import StageState
from penstock.streams.spi import Glimpse, Link

__all__ = ["MOST_CHUNKS", "Receiver", "Turn"]

MOST_CHUNKS: Final = 32
"""This many chunks wait at most, whatever their size."""
_NOBODY: Final = "nobody: the connection is being closed"
_ALL: Final = sys.maxsize
"""The read-ahead of a connection that is being closed."""


class Burst(Protocol):
    """Elements that a sender keeps until the turn is over."""

    def end_burst(self) -> None:
        """Write them."""
        ...


class Turn:
    """What the receivers and senders of one event loop share, so that what arrives together leaves together.

    A chunk may hold hundreds of lines, and each of them is an element that somebody sends on before the next
    one comes. What is sent while a chunk is being handled is kept until that is done, and then written as
    one. Nothing waits for a timer or for another turn of the loop.
    """

    __slots__ = ("active", "joining")

    _of: ClassVar[WeakKeyDictionary[EventLoop, Turn]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.active = False
        """A chunk is being handled."""
        self.joining: list[Burst] = []

    @classmethod
    def of(cls, loop: EventLoop) -> Turn:
        """The one that belongs to this loop."""
        turn = cls._of.get(loop)
        if turn is None:
            turn = cls._of[loop] = cls()
        return turn

    def end(self) -> None:
        """The chunk has been handled: write what was sent meanwhile."""
        self.active = False
        while self.joining:
            self.joining.pop().end_burst()


class Receiver(SolePublisher[bytes], Link):
    """The receiving direction of one connection. It is its own Subscription, since it has one subscriber.

    Every signal is given on the event loop; requests may come from any thread.
    """

    meter_kind: ClassVar[str] = "connection"
    __slots__ = (
        "__weakref__",
        "_ended",
        "_error",
        "_held",
        "_high",
        "_on_next",
        "_paused",
        "_queue",
        "_queued",
        "_told",
        "_transport",
        "_turn",
        "_withheld",
        "dropped",
    )

    def __init__(self, loop: EventLoop, read_ahead: int) -> None:
        super().__init__(loop)
        self._high = read_ahead
        self._transport: Transport | None = None
        self._turn = Turn.of(loop)
        self._on_next: Callable[[bytes], object] = self._hold
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._held = False
        self._withheld = 0
        """Demand that is not served while we are held back."""
        self._paused = False
        self._ended = False
        self._told = False
        """Whether a subscriber has heard of the end."""
        self._error: BaseException | None = None
        self.dropped = False
        """Whether something was received that nobody has taken, and nobody will."""

    # ---------------------------------------------------------------- what the transport calls
    def open(self, transport: Transport) -> None:
        """The connection is up."""
        self._transport = transport
        if not self._high:
            self._pause()
            # uvloop forgets a pause that is made while the connection is being made.
            self.loop.call_soon(self._pause_again)

    def take(self, data: bytes) -> None:
        """A chunk has arrived: it goes straight to the subscriber if there is demand, or is queued."""
        demand = self._demand
        if demand:
            if demand < UNBOUNDED:  # §3.17
                self._demand = demand - 1
            turn = self._turn
            turn.active = True
            try:
                self._on_next(data)
            except BaseException as fault:
                self._subscriber_failed(fault, "on_next")
            finally:
                turn.active = False
                if turn.joining:
                    turn.end()
            if not self._high and not self._demand:
                self._pause()
            return
        self._hold(data)

    def end(self, error: BaseException | None) -> None:
        """Nothing more will arrive. What is queued is still given."""
        if self._ended:
            return
        self._ended = True
        self._error = error
        if not self._queue:
            self._finish()

    # ---------------------------------------------------------------- what the subscriber asks for
    @property
    def _name(self) -> str:
        return "this connection"

    def _keep(self, subscriber: Subscriber[bytes]) -> None:
        super()._keep(subscriber)
        self._on_next = subscriber.on_next

    def _begin(self) -> None:
        if self._queue:
            self._drain()
        elif self._ended:
            self._finish()

    def _asked(self, n: int) -> None:
        if self._held:
            self._withheld = min(self._withheld + n, UNBOUNDED)
            return
        self._demand = min(self._demand + n, UNBOUNDED)
        if self._queue:
            if not self._emitting:
                self._drain()
        elif self._paused:
            self._resume()

    def _cancel(self) -> None:
        if self._cancelled:
            return
        unfinished = getattr(self._subscriber, "unfinished", None)  # a framing with half a frame
        self.dropped = bool(self._queue)
        self._release()
        self._drop_queue()
        if not self._high:
            self._pause()
        if unfinished is not None and unfinished():
            self.dropped = True

    # ---------------------------------------------------------------- what a sender of these chunks calls
    def hold_back(self) -> bool:
        """Give nothing until :meth:`go_on`, whatever was asked for. False on another loop's thread."""
        if get_ident() != self._thread:
            return False
        if not self._held:
            self._held = True
            self._withheld, self._demand = self._demand, 0
            if not self._high:
                self._pause()
        return True

    def go_on(self) -> None:
        """Give again what was asked for."""
        if self._held:
            self._held = False
            owed, self._withheld = self._withheld, 0
            if owed:
                self._request(owed)

    # ---------------------------------------------------------------- between the two
    def _hold(self, data: bytes) -> None:
        if not self._cancelled:
            self._queue.append(data)
        else:
            self.dropped = True
        # Without a subscriber it is dropped. But a peer may not go on for ever: a pause follows at the bound.
        self._queued += len(data)
        if not self._paused and (self._queued >= self._high or len(self._queue) >= MOST_CHUNKS):
            self._pause()

    def _drain(self) -> None:
        queue, turn = self._queue, self._turn
        outermost, turn.active = not turn.active, True
        self._emitting = True
        try:
            while self._demand and queue:
                self._demand -= 1
                data = queue.popleft()
                self._queued -= len(data)
                self._on_next(data)
        except BaseException as fault:
            self._subscriber_failed(fault, "on_next")
        finally:
            self._emitting = False
            if outermost:
                turn.end()
        if self._cancelled:
            return
        if self._ended and not queue:
            self._finish()
        elif self._paused and (
            self._demand or (self._queued * 4 <= self._high > 0 and len(queue) * 4 <= MOST_CHUNKS)
        ):
            self._resume()

    def _finish(self) -> None:
        subscriber = self._subscriber
        if self._cancelled or subscriber is None:
            return
        self._release()
        self._told = True
        tell_end(subscriber, self._error)

    def _release(self) -> None:
        super()._release()
        self._on_next = self._hold

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._queued = 0

    # ---------------------------------------------------------------- pausing the transport
    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._ended:
            self._paused = True
            self._transport.pause_reading()

    def _pause_again(self) -> None:
        if self._transport is not None and self._paused and not self._ended:
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and not self._ended and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def discard(self, why: BaseException) -> None:
        """Read on, so that the peer's end is seen, and throw away what arrives; for a close.

        A subscriber that is still there may miss bytes, so it fails with this error.
        """
        subscriber = self._subscriber
        if self._taken_by is None:
            self._taken_by = _NOBODY
        self._high = _ALL
        self._drop_queue()
        if not self._cancelled:
            self._release()
            if subscriber is not None:
                tell_end(subscriber, why)
        transport = self._transport
        if transport is not None and self._paused and not transport.is_closing():
            self._paused = False
            transport.resume_reading()

    def stop(self, why: BaseException) -> None:
        """Stop receiving, although the peer may send more. What is queued is still given, then this error."""
        self._pause()
        self.end(why)

    def hand_over(self) -> list[bytes]:
        """Leave the transport to an echo. Returns what has arrived already."""
        waiting = list(self._queue)
        self._taken_by = "an echo: outbound.send(inbound.receive())"
        self._drop_queue()
        self._release()
        if self._paused:
            self._resume()
        return waiting

    def take_back(self) -> None:
        """Take the transport from an echo that was cancelled; it may be paused. There is no subscriber."""
        self._paused = True
        if self._high:
            self._resume()
        elif self._transport is not None:
            self._transport.pause_reading()

    # ---------------------------------------------------------------- what others may see
    @property
    def waiting(self) -> int:
        """Bytes that wait for the subscriber."""
        return self._queued

    def waiting_bytes(self) -> tuple[int | None, int | None]:
        """The bytes that wait for the subscriber, and after how many the socket is paused."""
        return self._queued, self._high if self._high < _ALL else None

    def glimpse(self) -> Glimpse | None:
        """Whether the socket is paused because nobody wants more, or is waited for; from any thread."""
        if self._ended or self._cancelled:
            return None
        return Glimpse(0 if self._paused else 1)

    def meter_state(self) -> StageState:
        """The queue in front of the subscriber, in chunks."""
        return StageState("socket", self._demand, 0, len(self._queue), MOST_CHUNKS, "event loop", self._ended)

    @property
    def settled(self) -> bool:
        """Whether everything that has arrived was taken, and nobody waits for more."""
        return not (self._queue or self.dropped or self._ended or self._subscriber is not None)

    @property
    def paused(self) -> bool:
        """Whether the transport is not being read."""
        return self._paused

    @property
    def wanted(self) -> bool:
        """Whether there is demand, and bytes may still arrive."""
        return self._demand > 0 and not self._ended

    @property
    def ended(self) -> bool:
        """Whether nothing more will arrive. Some chunks may still be queued."""
        return self._ended

    @property
    def heard(self) -> bool:
        """Whether a subscriber has heard of the end, or is going to."""
        return self._told or self._subscriber is not None

    @property
    def taken(self) -> bool:
        """Whether there is a subscriber, or was one."""
        return self._taken_by is not None and self._taken_by is not _NOBODY

    @property
    def untouched(self) -> bool:
        """Whether nobody has subscribed yet, and it is not at its end."""
        return self._taken_by is None and not self._ended
