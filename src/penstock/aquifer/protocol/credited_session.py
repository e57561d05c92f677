"""What an extended subscriber may get: its credit, how far it has come, and what is on its way.

``Next`` carries credit, in records and bytes, and how far the subscriber has come. All figures are absolute:
the next message makes up for a lost one, and a repeated one changes nothing. What is on its way is bounded by
``Limits`` however much credit there is, because ØMQ would queue the rest; and for a subscriber that takes
frames in pieces, by what its line carries.
"""

from __future__ import annotations

from collections import deque

from msgspec import UNSET, UnsetType

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.hop_clock import Doing
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log
from penstock.aquifer.protocol.key_filter import KeyFilter
from penstock.aquifer.protocol.messages import (
    CompleteFields,
    Control,
    Next,
    NextFields,
    OnComplete,
    OnNext,
    OnNextFields,
    SubscribeFields,
    demand,
    extension,
)
from penstock.aquifer.protocol.pace import Pace
from penstock.aquifer.protocol.session import Reply, Session, SessionState, refusal
from penstock.aquifer.records import Partition
from penstock.aquifer.security import Caller
from penstock.aquifer.status import SessionStatus
from penstock.spec import UNBOUNDED

__all__ = ["CreditedSession"]


class CreditedSession(Session):
    """A session whose subscriber gives credit and says what has arrived; it sends nothing itself."""

    def __init__(
        self,
        peer: bytes,
        log: Log,
        start: int,
        limits: Limits,
        now: float,
        caller: Caller,
        number: int = 0,
        *,
        fields: SubscribeFields,
        format: str,
    ) -> None:
        super().__init__(peer, log, start, limits, now, caller, number)
        self.fields = fields
        """What it asked for in ``Subscribe.x``."""
        self.format = format
        self.to = fields.to if fields.to is not UNSET else None
        self.filter: KeyFilter | None = None
        """Finds the records that it wants; None if it wants all."""
        if (wanted := _wanted(fields)) is not None:
            self.filter = KeyFilter(log, wanted, format, start)
        self.left_out = 0
        """How many records it was told of, and did not want."""
        self.credit_end = start
        """Its credit: records before this offset may be sent."""
        self.credit_end_bytes: int | None = None
        """So many bytes may be sent in this session, if the subscriber counts them."""
        self.received = start
        """Records before this offset have arrived."""
        self.segment_use: list[int] | None = None
        """The payloads that the subscriber uses in shared memory, once it is known to see it."""
        self.pace = Pace(limits.bytes_in_flight) if fields.pieces is not UNSET else None
        """How much its line carries; None if it takes whole frames only, or shares our memory."""
        self.redelivered: int | UnsetType = UNSET
        """How many records its subscriber has delivered again, if it has said so."""
        self.repeats = 0
        """Requests that said nothing new."""
        self._in_flight: deque[tuple[int, int]] = deque()
        """The frames on their way: the offset after each, and the bytes sent up to and with it."""
        self._received_bytes = 0
        self._waiting: tuple[tuple[bytes, ...], int, float] | None = None
        """A request without ``limit`` that has no answer yet: envelope, count, time by which to answer."""
        self._declared = start
        """Records before this offset have been declared in answer to such a request."""
        self._flag_bytes = min(log.ack_every_bytes, limits.bytes_in_flight // 4)
        self._flagged_records = start
        self._flagged_bytes = 0
        self._flagged_frames = 0

    # ---------------------------------------------------------------- how far it goes
    @property
    def stop(self) -> int:
        """The offset after the last record that this session can have, as far as is known."""
        return self.log.head if self.to is None else min(self.to, self.log.head)

    @property
    def exhausted(self) -> bool:
        """Whether everything was sent, and the end can be told."""
        if self._state is not SessionState.STREAMING:
            return False
        # A range may reach beyond the end of the stream, and then ends with it.
        return any(end is not None and self.cursor >= end for end in (self.to, self.log.end))

    @property
    def failed(self) -> bool:
        """Whether the stream ends with a failure, and not with the end of a range that was delivered."""
        return self.log.failure is not None and (self.to is None or self.cursor < self.to)

    # ---------------------------------------------------------------- what it may get
    def credit(self) -> int:
        """How many records of its credit the log has, and the line can take."""
        if self._state is not SessionState.STREAMING or len(self._in_flight) >= self.limits.frames_in_flight:
            return 0
        return max(min(self.credit_end, self.stop) - self.cursor, 0)

    def credit_bytes(self) -> int:
        """How many bytes may be sent. While it is above zero, a record of any size may go."""
        left_bytes = self.limits.bytes_in_flight - (self.sent_bytes - self._received_bytes)
        if self.credit_end_bytes is not None:
            left_bytes = min(left_bytes, self.credit_end_bytes - self.sent_bytes)
        return left_bytes

    def doing(self) -> Doing:
        """What the gateway does for this subscriber at the moment."""
        if self._reached >= self.stop:
            return Doing.WAITING_FOR_DATA
        free = self.credit() and self.credit_bytes() > 0 and self.line_is_free()
        return Doing.WORKING if free else Doing.WAITING_FOR_DEMAND

    @property
    def _reached(self) -> int:
        """The offset before which there is nothing left to send."""
        return self.cursor if self.filter is None else max(self.cursor, self.filter.seen)

    @property
    def overtaken(self) -> bool:
        """Whether records that it has not got yet, and may want, are gone."""
        return super().overtaken and self._reached < self.log.first

    def line_is_free(self) -> bool:
        """Whether little enough is on its way that more may be sent."""
        if self._state is not SessionState.STREAMING or len(self._in_flight) >= self.limits.frames_in_flight:
            return False
        return self.pace is None or self.pace.may_send(self.sent_bytes - self._received_bytes)

    # ---------------------------------------------------------------- what is on its way
    def sent(self, count: int, nbytes: int, left_out: int = 0) -> None:
        """So many records were sent in one frame, without those that were left out."""
        super().sent(count, nbytes)
        self._in_flight.append((self.cursor, self.sent_bytes))
        if left_out:
            # Credit is for records that come: the subscriber counts in the same way when it has the frame.
            self.left_out += left_out
            self.sent_records -= left_out
            self.credit_end = min(self.credit_end + left_out, UNBOUNDED)

    def wants_acknowledgement(self, count: int = 0, nbytes: int = 0) -> bool:
        """Whether the next frame, of so many records and bytes, should ask how far the subscriber has come.

        It has to come before the log or the way is full, or both ends would wait for one another: so the
        frame itself counts, which may fill the log alone.
        """
        records, size = self.cursor + count, self.sent_bytes + nbytes
        frames = len(self._in_flight) + 1
        flag_bytes = self._flag_bytes if self.pace is None else min(self._flag_bytes, self.pace.ask_every)
        if (
            records - self._flagged_records < self.log.ack_every_records
            and size - self._flagged_bytes < flag_bytes
            and frames - self._flagged_frames < self.limits.frames_in_flight // 4
        ):
            return False
        self._flagged_records, self._flagged_bytes, self._flagged_frames = records, size, frames
        return True

    def asked(self, now: float) -> None:
        """What was sent last asks for an acknowledgement."""
        if self.pace is not None:
            self.pace.asked(self.sent_bytes, self._received_bytes, now)

    # ---------------------------------------------------------------- what its subscriber says
    def _take_credit(self, message: Next, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        fields = extension(message.x) or NextFields()
        problem = self._problem(message, fields)
        if problem is not None:
            return [Reply(envelope, refusal(problem, ErrorCode.BAD))]
        new = self._note_progress(fields, now)
        if fields.shelf is not UNSET and fields.shelf:
            self.segment_use = fields.shelf
            self.pace = None  # The line is this machine's memory.
        if fields.limit is UNSET:
            # One waits at a time; the one before gets its answer now, or it never would.
            before = [] if self._waiting is None else [self._declaration(self._waiting[0], self.cursor, 0)]
            self._waiting = (envelope, demand(message.count), now + self.limits.long_poll)
            return before + self.tick(now)
        limit = demand(fields.limit)
        if limit > self.credit_end:
            self.credit_end, new = limit, True
        if fields.limitb is not UNSET and (
            self.credit_end_bytes is None or fields.limitb > self.credit_end_bytes
        ):
            self.credit_end_bytes, new = demand(fields.limitb), True
        self.repeats += not new
        if fields.again is not UNSET:
            self.redelivered = fields.again
        return []

    def _problem(self, message: Next, fields: NextFields) -> str | None:
        if fields.limit is UNSET and self.filter is not None:
            return "a subscription to some records needs x.limit in Next: they cannot be counted beforehand"
        if fields.limit is UNSET and message.count <= 0:
            return f"§3.9: Next must ask for at least one record, not {message.count}"
        for name in ("limit", "limitb", "ack", "got", "gotb", "again"):
            value = getattr(fields, name)
            if value is not UNSET and value < 0:
                return f"x.{name} is {value}: offsets and bytes are never negative"
        for name in ("ack", "got"):
            value = getattr(fields, name)
            if value is not UNSET and value > self.cursor:
                return f"x.{name} is {value}, but no record beyond {self.cursor} was sent in this session"
        if fields.gotb is not UNSET and fields.gotb > self.sent_bytes:
            return f"x.gotb is {fields.gotb}, but only {self.sent_bytes} bytes were sent in this session"
        return None

    def _note_progress(self, fields: NextFields, now: float) -> bool:
        new = False
        if fields.ack is not UNSET and fields.ack > self.acknowledged:
            self.acknowledged, new = fields.ack, True
        got = fields.got if fields.got is not UNSET else fields.ack
        if got is not UNSET and got > self.received:
            self.received, new = got, True
            while fields.gotb is UNSET and self._in_flight and self._in_flight[0][0] <= got:
                self._arrived(self._in_flight[0][1])
        if fields.gotb is not UNSET and fields.gotb > self._received_bytes:
            new = True
            while self._in_flight and self._in_flight[0][1] <= fields.gotb:
                self._arrived(self._in_flight[0][1])
            self._received_bytes = fields.gotb
            if self.pace is not None:
                self.pace.arrived(fields.gotb, now)
        return new

    def note_last_acknowledgement(self, offset: int) -> None:
        """Its subscriber has left, and says in another place what it had acknowledged."""
        if self.acknowledged < offset <= self.cursor:
            self.acknowledged = offset

    def _arrived(self, nbytes: int) -> None:
        self._in_flight.popleft()
        self._received_bytes = nbytes
        self._flagged_frames = max(self._flagged_frames - 1, 0)

    def tick(self, now: float) -> list[Reply]:
        """Answer a request for a counted batch when there are records, or it has waited long enough."""
        if self._waiting is None:
            return []
        envelope, wanted, deadline = self._waiting
        # After what was declared before; records that are gone from the log cannot be declared.
        first = max(self.cursor, self._declared, self.log.first)
        count = min(wanted, self.stop - first) if self._state is SessionState.STREAMING else 0
        if count <= 0 and now < deadline and self._state is not SessionState.ENDED:
            return []
        self._waiting = None
        if self._state is SessionState.ENDED:
            return [Reply(envelope, self._last_words())]
        if count > 0:
            self._declared = first + count
            self.credit_end = max(self.credit_end, self._declared)
        return [self._declaration(envelope, first, max(count, 0))]

    def _last_words(self) -> Control:
        if self.failed:
            return refusal(self.log.failure or "", ErrorCode.SOURCE)
        return OnComplete(x=CompleteFields(end=self.cursor))

    def _declaration(self, envelope: tuple[bytes, ...], first: int, count: int) -> Reply:
        return Reply(envelope, OnNext(count, x=OnNextFields(first=first, head=self.log.head)))

    def waiting(self) -> list[tuple[bytes, ...]]:
        """The request that waits for records, if there is one."""
        return [] if self._waiting is None else [self._waiting[0]]

    def status(self) -> SessionStatus:
        """Also its credit, and what is on its way."""
        status = super().status()
        status.credit = self.credit_end
        status.received = self.received
        status.in_flight = self.sent_bytes - self._received_bytes
        status.format = self.format
        status.repeats = self.repeats
        status.redelivered = self.redelivered
        if self.fields.keys is not UNSET:
            status.keys = len(self.fields.keys)
        if self.filter is not None:
            status.left_out = self.left_out
        if self.fields.group is not UNSET:
            status.member = self.fields.group.member
        return status


def _wanted(fields: SubscribeFields) -> list[bytes] | Partition | None:
    """The keys of a subscriber, or its partition; None if it wants all records."""
    if fields.keys is not UNSET:
        return fields.keys
    return Partition.of_id(fields.id) if fields.group is not UNSET and fields.id is not UNSET else None
