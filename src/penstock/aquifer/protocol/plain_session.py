"""A subscriber that knows nothing but the document: Next, OnNext, and so many records.

It has a data port of its own, so that its demand is nobody else's. Its next request acknowledges the batch
before. A batch is bounded in records and in bytes, whatever was asked for. The answer to a request waits a
little for records (``Limits.long_poll``), because a peer that gets
``OnNext(0)`` at once asks again at once.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, Final

from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import Next, OnComplete, OnError, OnNext, demand
from penstock.aquifer.protocol.session import Event, LogView, Reply, Session, State, Table

__all__ = ["PlainSession"]

_TRIAL: Final = 0.1
"""Seconds that a second connection has to show up at the port, before the first one is served."""

_ANYTIME = {
    Event.CANCEL: ("_leave", State.CLOSED),
    Event.COMPLETE: ("_leave", State.CLOSED),
    Event.EXPIRED: (None, State.CLOSED),
    Event.TAKEN_OVER: (None, State.CLOSED),
    Event.REVOKED: (None, State.CLOSED),
    Event.EVICTED: (None, State.CLOSED),
    Event.CONTESTED: (None, State.CLOSED),
}


class PlainSession(Session):
    """The gateway's side of a plain subscription."""

    dialect = "plain"
    table: ClassVar[Table] = {
        State.JOINING: {
            **_ANYTIME,
            Event.NEXT: ("_ask", None),
            Event.ERROR: ("_rewind", None),
            Event.JOINED: ("_welcome", State.STREAMING),
            Event.LEFT: (None, None),
        },
        State.STREAMING: {
            **_ANYTIME,
            Event.NEXT: ("_ask", None),
            Event.ERROR: ("_rewind", None),
            Event.JOINED: (None, None),
            Event.LEFT: (None, State.JOINING),
        },
        State.ENDED: {
            **_ANYTIME,
            Event.NEXT: ("_tell_end", None),
            Event.JOINED: (None, None),
            Event.LEFT: (None, None),
        },
        State.CLOSED: {},
    }

    def __init__(self, peer: bytes, log: LogView, start: int, limits: Limits, now: float) -> None:
        super().__init__(peer, log, start, limits, now)
        self._waiting: deque[tuple[tuple[bytes, ...], int, float]] = deque()
        """Requests without an answer: envelope, records wanted, time by which to answer."""
        self._declared = start
        """Records before this offset have been declared by an ``OnNext``."""
        self._trial = False
        """Whether who has joined is not taken for the subscriber yet: the next request gets nothing."""

    def credit(self) -> int:
        """What was declared and is not sent yet."""
        return self._declared - self.cursor if self._joined else 0

    @property
    def _joined(self) -> bool:
        return self.state is State.STREAMING and not self._trial

    def skip_to(self, offset: int) -> None:
        """Nothing that was declared may be missing: a plain peer cannot see a gap, so its stream fails."""
        super().skip_to(offset)
        self._declared = max(self._declared, offset)

    def tick(self, now: float) -> list[Reply]:
        """Answer the requests that can be answered, or have waited long enough."""
        if not self._waiting:
            return []
        return self._answer_all(None, (), now)

    def waiting(self) -> list[tuple[bytes, ...]]:
        """The requests that wait for records."""
        return [envelope for envelope, _, _ in self._waiting]

    # ---------------------------------------------------------------- the handlers of the table
    def _ask(self, message: Next, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        if message.count <= 0:
            self.state = State.CLOSED
            text = f"§3.9: Next must ask for at least one record, not {message.count}"
            return [Reply(envelope, OnError(text))]
        if len(self._waiting) >= self.limits.requests_in_waiting:
            text = f"{len(self._waiting)} requests wait for their answer already: wait for OnNext before Next"
            return [Reply(envelope, OnError(text))]
        # Who asks for more has dealt with what it got.
        self.acknowledged = self.cursor
        patience = _TRIAL if self._trial and not self._waiting else self.limits.long_poll
        self._waiting.append((envelope, demand(message.count), now + patience))
        return self._answer_all(None, (), now)

    def _welcome(self, _: Any, __: tuple[bytes, ...], now: float) -> list[Reply]:
        # Without a key, anybody can be the first to connect to the port, and would get what is meant for the
        # subscriber, which would lose it. So the first request is answered with nothing, a moment later: if
        # the subscriber itself connects meanwhile, there are two, and neither is served.
        self._trial = not self.owner
        if self._trial and self._waiting:
            envelope, wanted, _ = self._waiting[0]
            self._waiting[0] = envelope, wanted, now + _TRIAL
        return self._answer_all(None, (), now)

    def _answer_all(self, _: Any, __: tuple[bytes, ...], now: float) -> list[Reply]:
        replies: list[Reply] = []
        while self._waiting:
            envelope, wanted, deadline = self._waiting[0]
            joined = self._joined
            if self.overtaken:
                self.state = State.CLOSED
                self._waiting.clear()
                text = (
                    f"records {self.cursor} to {self.log.first - 1} are gone: this subscriber was too slow; "
                    f"the oldest still available is {self.log.first}: subscribe again"
                )
                return [*replies, Reply(envelope, OnError(text))]
            there = self.log.head - self._declared if joined else 0
            if joined and self._at_the_end():
                self.state = State.ENDED
                for waiting, _, _ in self._waiting:
                    replies += self._tell_end(None, waiting, now)
                self._waiting.clear()
                break
            if not there and now < deadline:
                break
            self._waiting.popleft()
            if self.state is State.STREAMING:
                self._trial = False
            count = min(wanted, there, self.limits.plain_batch)
            if count:
                # In bytes, too: it may ask for many and read none, and they would all wait here.
                count = self.log.fitting(self._declared, count, self.limits.bytes_in_flight)
            self._declared += count
            replies.append(Reply(envelope, OnNext(count)))
        return replies

    def _at_the_end(self) -> bool:
        # Compared with the end itself: the log may have grown, and ended, since its head was looked at. And
        # what was declared is sent before the end is told, or it never would be.
        end = self.log.end
        return end is not None and self._declared >= end and self.cursor >= self._declared

    def _rewind(self, _: Any, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        # What was declared since the last acknowledgement will be declared, and sent, again.
        self.cursor = self._declared = self.acknowledged
        return [Reply(envelope, OnError("resending data", recoverable=True))]

    def _leave(self, _: Any, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        return [Reply(envelope, OnComplete())]

    def _tell_end(self, _: Any, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        self.acknowledged = self.cursor
        if self.log.failure is not None:
            return [Reply(envelope, OnError(self.log.failure))]
        return [Reply(envelope, OnComplete())]
