"""What comes in from a socket, as a Publisher of bytes: nothing is read that was not asked for, or nearly.

The queue between the socket and the subscriber is bounded in bytes and in elements, with hysteresis: at the
bound the socket is paused, its window closes and the sender waits; when most of the queue is gone, reading
goes on. A little read-ahead without demand is on purpose: while a socket is paused nobody hears that the peer
has gone. ``read_ahead=0`` reads nothing before it is asked for.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol
from weakref import WeakKeyDictionary

from penstock.net.flush import push_out
from penstock.net.sole_publisher import SolePublisher, tell_end
from penstock.spec import UNBOUNDED, Subscriber

__all__ = ["MOST_CHUNKS", "Receiver", "Turn"]

MOST_CHUNKS: Final = 32
"""Chunks that wait at most, whatever their size."""
_NOBODY: Final = "nobody: the connection is being closed"
_ALL: Final = sys.maxsize
"""The read-ahead of a connection that is being closed."""


class Receiver(SolePublisher[bytes]):
    """One direction of one connection. Every signal is given on the event loop; requests come from anywhere.

    It is its own Subscription: a connection has one receiving subscriber in its life.
    """

    __slots__ = (
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
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, read_ahead: int) -> None:
        super().__init__(loop)
        self._high = read_ahead
        self._transport: Any = None
        self._turn = Turn.of(loop)
        self._on_next: Callable[[bytes], object] = self._hold
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._held = False
        self._withheld = 0
        """Demand that is not served while somebody holds us back."""
        self._paused = False
        self._ended = False
        self._told = False
        """Whether the end was given to a subscriber."""
        self._error: BaseException | None = None

    # ---------------------------------------------------------------- what the socket calls
    def open(self, transport: Any) -> None:
        """The connection is there."""
        self._transport = transport
        if not self._high:
            self._pause()
            # uvloop forgets a pause that is made while the connection is being made.
            self.loop.call_soon(self._pause_again)
            if transport.get_extra_info("ssl_object") is not None:
                self.loop.call_soon(push_out, transport)

    def take(self, data: bytes) -> None:
        """A chunk has come: straight to the subscriber if it waits for one; then nothing is queued."""
        demand = self._demand
        if demand:
            if demand < UNBOUNDED:  # §3.17
                self._demand = demand - 1
            turn = self._turn
            turn.active = True
            try:
                self._on_next(data)
            except Exception as fault:
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
        """Nothing more will come; what is queued is still given."""
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
        self._release()
        self._drop_queue()
        if not self._high:
            self._pause()

    # ---------------------------------------------------------------- what whoever sends it on calls
    def hold_back(self) -> None:
        """Give nothing until :meth:`go_on`, whatever has been asked for; on the event loop only."""
        if not self._held:
            self._held = True
            self._withheld, self._demand = self._demand, 0
            if not self._high:
                self._pause()

    def go_on(self) -> None:
        """Give again what has been asked for."""
        if self._held:
            self._held = False
            owed, self._withheld = self._withheld, 0
            if owed:
                self._request(owed)

    # ---------------------------------------------------------------- between the two
    def _hold(self, data: bytes) -> None:
        if not self._cancelled:
            self._queue.append(data)
        # Without a subscriber it is dropped, but not read for ever: only until an idle peer's end is heard.
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
        except Exception as fault:
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

    # ---------------------------------------------------------------- the socket's tap
    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._ended:
            self._paused = True
            self._transport.pause_reading()

    def _pause_again(self) -> None:
        if self._paused and not self._ended:
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and not self._ended and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def discard(self, why: BaseException) -> None:
        """Read on without anybody to give it to, so that the peer's end is heard; before a close.

        A subscriber that is there has not heard of the peer's end, and may miss bytes: it gets this error.
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
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def stop(self, why: BaseException) -> None:
        """Receive no more, although the peer may send more; what has come is still given, then this error."""
        self._pause()
        self.end(why)

    def hand_over(self) -> list[bytes]:
        """Leave the socket to somebody else; returns what has come already."""
        waiting = list(self._queue)
        self._taken_by = "an echo: outbound.send(inbound.receive())"
        self._drop_queue()
        self._release()
        if self._paused:
            self._resume()
        return waiting

    def take_back(self) -> None:
        """Have the socket again, which may be paused, with nobody to give anything to."""
        self._paused = True
        if self._high:
            self._resume()
        else:
            self._transport.pause_reading()

    # ---------------------------------------------------------------- for those who look
    @property
    def waiting(self) -> int:
        """Bytes that wait for the subscriber."""
        return self._queued

    @property
    def paused(self) -> bool:
        """Whether the socket is not being read."""
        return self._paused

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for bytes, and they may still come."""
        return self._demand > 0 and not self._ended

    @property
    def ended(self) -> bool:
        """Whether nothing more will come; what has come may still wait."""
        return self._ended

    @property
    def heard(self) -> bool:
        """Whether a subscriber has been told of the end, or is going to be told."""
        return self._told or self._subscriber is not None

    @property
    def taken(self) -> bool:
        """Whether it has, or had, a subscriber."""
        return self._taken_by is not None and self._taken_by is not _NOBODY

    @property
    def untouched(self) -> bool:
        """Whether nobody has subscribed, and it is not at its end."""
        return self._taken_by is None and not self._ended


class Joining(Protocol):
    """Keeps what it is given until the turn is over."""

    def end_burst(self) -> None:
        """Write it."""
        ...


class Turn:
    """What the receivers and senders of one event loop share."""

    __slots__ = ("active", "joining")

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Turn]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.active = False
        """A chunk is being dealt with."""
        self.joining: list[Joining] = []

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Turn:
        """The turns of this loop."""
        turn = cls._of.get(loop)
        if turn is None:
            turn = cls._of[loop] = cls()
        return turn

    def end(self) -> None:
        """The chunk has been dealt with."""
        self.active = False
        while self.joining:
            self.joining.pop().end_burst()
