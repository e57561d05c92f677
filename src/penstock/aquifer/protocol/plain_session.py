"""A plain subscriber: it knows nothing but the document, which has Next, OnNext and a count.

It has a data port of its own, so that its demand is its own. Its next request acknowledges the batch before.
A batch is bounded in records and in bytes, however much was requested. The answer to a request waits a little
for records (``Limits.long_poll``), because a peer that gets ``OnNext(0)`` at once asks again at once.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, Final

from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log
from penstock.aquifer.protocol.messages import Next, OnComplete, OnError, OnNext, demand
from penstock.aquifer.protocol.session import (
    ENDINGS,
    Reply,
    Session,
    SessionEvent,
    SessionState,
    Table,
)
from penstock.aquifer.records import values_of
from penstock.aquifer.security import Caller

__all__ = ["PlainSession"]

_TRIAL: Final = 0.1
"""Seconds that a second connection has to show up at the port, before the first one is served."""


class PlainSession(Session):
    """The gateway's side of a plain subscription."""

    dialect = "plain"

    def __init__(
        self,
        peer: bytes,
        log: Log,
        start: int,
        limits: Limits,
        now: float,
        caller: Caller,
        number: int = 0,
    ) -> None:
        super().__init__(peer, log, start, limits, now, caller, number)
        self._waiting: deque[tuple[tuple[bytes, ...], int, float]] = deque()
        """Requests without an answer: envelope, records wanted, time by which to answer."""
        self._declared = start
        """Records before this offset have been declared by an ``OnNext``."""
        self._trial = False
        """Whether the peer that has joined may not be the subscriber: the next request gets nothing."""

    def credit(self) -> int:
        """What was declared and is not sent yet."""
        return self._declared - self.cursor if self._joined else 0

    @property
    def _joined(self) -> bool:
        return self._state is SessionState.STREAMING and not self._trial

    def next_values(self) -> list[bytes]:
        """The next records to send, which count as sent from now on; empty if there are none."""
        credit = self.credit()
        batch = None if not credit or self.overtaken else self.log.find(self.cursor)
        if batch is None:
            return []
        batch = self.log.expanded(batch)
        start = self.cursor - batch.first
        values = values_of(batch)[start : start + credit]
        self.sent(len(values), batch.nbytes * len(values) // batch.count)
        return values

    def skip_to(self, offset: int) -> None:
        """Declare nothing before ``offset``: a plain peer cannot see a gap, so its stream fails."""
        super().skip_to(offset)
        self._declared = max(self._declared, offset)

    def tick(self, now: float) -> list[Reply]:
        """Answer the requests that can be answered, or have waited long enough."""
        return self._answer_all(now) if self._waiting else []

    def waiting(self) -> list[tuple[bytes, ...]]:
        """The requests that wait for records."""
        return [envelope for envelope, _, _ in self._waiting]

    # ---------------------------------------------------------------- the handlers of the table
    def _request(self, message: Next, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        if message.count <= 0:
            self.handle(SessionEvent.VIOLATED, now)
            text = f"§3.9: Next must ask for at least one record, not {message.count}"
            return [Reply(envelope, OnError(text))]
        if len(self._waiting) >= self.limits.requests_in_waiting:
            text = f"{len(self._waiting)} requests wait for their answer already: wait for OnNext before Next"
            return [Reply(envelope, OnError(text))]
        # A peer that asks for more has dealt with what it got.
        self.acknowledged = self.cursor
        patience = _TRIAL if self._trial and not self._waiting else self.limits.long_poll
        self._waiting.append((envelope, demand(message.count), now + patience))
        return self._answer_all(now)

    def _welcome(self, _: object, __: tuple[bytes, ...], now: float) -> list[Reply]:
        # Without a key, anybody can be the first to connect to the port, and would get the subscriber's
        # records. So the first request is answered with nothing, a moment later: if the subscriber itself
        # connects meanwhile, there are two connections, and neither is served.
        self._trial = not self.owner
        if self._trial and self._waiting:
            envelope, wanted, _deadline = self._waiting[0]
            self._waiting[0] = envelope, wanted, now + _TRIAL
        return self._answer_all(now)

    def _rewind(self, _: object, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        # What was declared since the last acknowledgement will be declared, and sent, again.
        self.cursor = self._declared = self.acknowledged
        return [Reply(envelope, OnError("resending data", recoverable=True))]

    def _leave(self, _: object, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        return [Reply(envelope, OnComplete())]

    def _tell_end(self, _: object, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        self.acknowledged = self.cursor
        if self.log.failure is not None:
            return [Reply(envelope, OnError(self.log.failure))]
        return [Reply(envelope, OnComplete())]

    _anytime: ClassVar[dict[SessionEvent, tuple[Any, SessionState | None]]] = {
        **ENDINGS,
        SessionEvent.CANCEL: (_leave, SessionState.CLOSED),
        SessionEvent.COMPLETE: (_leave, SessionState.CLOSED),
    }
    table: ClassVar[Table] = {
        SessionState.JOINING: {
            **_anytime,
            SessionEvent.NEXT: (_request, None),
            SessionEvent.ERROR: (_rewind, None),
            SessionEvent.JOINED: (_welcome, SessionState.STREAMING),
            SessionEvent.LEFT: (None, None),
            SessionEvent.VIOLATED: (None, SessionState.CLOSED),
            SessionEvent.OVERTAKEN: (None, SessionState.CLOSED),
        },
        SessionState.STREAMING: {
            **_anytime,
            SessionEvent.NEXT: (_request, None),
            SessionEvent.ERROR: (_rewind, None),
            SessionEvent.JOINED: (None, None),
            SessionEvent.LEFT: (None, SessionState.JOINING),
            SessionEvent.VIOLATED: (None, SessionState.CLOSED),
            SessionEvent.OVERTAKEN: (None, SessionState.CLOSED),
            SessionEvent.END_TOLD: (None, SessionState.ENDED),
        },
        SessionState.ENDED: {
            **_anytime,
            SessionEvent.NEXT: (_tell_end, None),
            SessionEvent.JOINED: (None, None),
            SessionEvent.LEFT: (None, None),
        },
        SessionState.CLOSED: {},
    }

    # ---------------------------------------------------------------- answers
    def _answer_all(self, now: float) -> list[Reply]:
        replies: list[Reply] = []
        while self._waiting:
            envelope, wanted, deadline = self._waiting[0]
            if self.overtaken:
                text = (
                    f"records {self.cursor} to {self.log.first - 1} are gone: this subscriber was too slow; "
                    f"the oldest still available is {self.log.first}: subscribe again"
                )
                self.handle(SessionEvent.OVERTAKEN, now)
                self._waiting.clear()
                return [*replies, Reply(envelope, OnError(text))]
            if self._joined and self._at_the_end():
                self.handle(SessionEvent.END_TOLD, now)
                for waiting, _, _ in self._waiting:
                    replies += self._tell_end(None, waiting, now)
                self._waiting.clear()
                break
            available = self.log.head - self._declared if self._joined else 0
            if not available and now < deadline:
                break
            self._waiting.popleft()
            if self._state is SessionState.STREAMING:
                self._trial = False
            count = min(wanted, available, self.limits.plain_batch)
            if count:
                # Bounded in bytes, too: a peer may ask for many and read none, and they would all wait here.
                count = self.log.fitting(self._declared, count, self.limits.bytes_in_flight)
            self._declared += count
            replies.append(Reply(envelope, OnNext(count)))
        return replies

    def _at_the_end(self) -> bool:
        # Compared with the end itself: the log may have grown, and ended, since its head was looked at. And
        # what was declared is sent before the end is told, or it never would be.
        end = self.log.end
        return end is not None and self._declared >= end and self.cursor >= self._declared
