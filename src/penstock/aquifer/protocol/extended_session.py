"""A subscriber of the extended dialect: absolute credit, acknowledgement, frames on the shared data port.

``Next`` carries how far the gateway may go, in records and bytes, and how far the subscriber has come. All of
it is absolute: a message that is lost is made good by the next one, a repeated one changes nothing. What is
on its way is bounded by ``Limits`` even if the subscriber grants everything, since ØMQ would queue the rest;
and for a subscriber that takes frames in pieces, by what its line carries.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, Final

from msgspec import UNSET

from penstock.aquifer.limits import Limits
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
from penstock.aquifer.protocol.pieces import CutFrame
from penstock.aquifer.protocol.session import Event, LogView, Reply, Session, State, Table, refusal
from penstock.aquifer.records.batch import Batch

__all__ = ["ExtendedSession"]

_SOON: Final = 0.1
"""Seconds that a batch may wait for the grant that it fits into."""

_ANYTIME = {
    Event.NEXT: ("_grant", None),
    Event.CANCEL: ("_leave", State.CLOSED),
    Event.COMPLETE: ("_leave", State.CLOSED),
    Event.EXPIRED: (None, State.CLOSED),
    Event.TAKEN_OVER: (None, State.CLOSED),
    Event.REVOKED: (None, State.CLOSED),
    Event.EVICTED: (None, State.CLOSED),
    Event.CONTESTED: (None, State.CLOSED),
}


class ExtendedSession(Session):
    """The gateway's side of an extended subscription."""

    dialect = "extended"
    table: ClassVar[Table] = {
        State.JOINING: {**_ANYTIME, Event.JOINED: (None, State.STREAMING), Event.LEFT: (None, None)},
        State.STREAMING: {**_ANYTIME, Event.JOINED: (None, None), Event.LEFT: (None, State.JOINING)},
        State.ENDED: {
            **_ANYTIME,
            Event.NEXT: ("_ask_after_end", None),
            Event.JOINED: (None, State.STREAMING),
            Event.LEFT: (None, State.JOINING),
        },
        State.CLOSED: {},
    }

    def __init__(
        self,
        peer: bytes,
        log: LogView,
        start: int,
        limits: Limits,
        now: float,
        *,
        fields: SubscribeFields,
        topic: bytes,
        format: str,
    ) -> None:
        super().__init__(peer, log, start, limits, now)
        self.fields = fields
        """What it asked for in ``Subscribe.x``."""
        self.topic = topic
        self.format = format
        self.to = fields.to if fields.to is not UNSET else None
        self.keep = fields.keep if fields.keep is not UNSET else True
        self.name = fields.id if fields.id is not UNSET else None
        if fields.lease is not UNSET:
            # Bounded before it is divided: a peer may write more digits than a float can hold.
            longest = limits.max_lease
            if self.name is None:
                longest = min(longest, limits.max_nameless_lease)
            self.lease = max(min(fields.lease, longest * 1000) / 1000, 0.1)
        self.limit = start
        """Records before this offset may be sent."""
        self.limit_bytes: int | None = None
        """So many bytes may be sent in this session, if the subscriber counts them."""
        self.received = start
        """Records before this offset have arrived."""
        self.segment_use: list[int] | None = None
        """What the subscriber uses of the shelf, once it is known to see it: see ``NextFields.shelf``."""
        self.pace = Pace(limits.bytes_in_flight) if fields.pieces is not UNSET else None
        """How much its line carries; None if it takes whole frames only, or shares our memory."""
        self.cut: CutFrame | None = None
        """The frame that is being sent in pieces."""
        self._begun = _begun(fields)
        """How many bytes the subscriber has of the first frame, and how many records that had."""
        self.spoke = now
        """When the last frame was sent."""
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

    # ---------------------------------------------------------------- what it may get
    @property
    def stop(self) -> int:
        """The offset after the last record that this session can have, as far as is known."""
        return self.log.head if self.to is None else min(self.to, self.log.head)

    def credit(self) -> int:
        """What was granted, is there, and has room on the way."""
        if self.state is not State.STREAMING or len(self._in_flight) >= self.limits.frames_in_flight:
            return 0
        return max(min(self.limit, self.stop) - self.cursor, 0)

    def credit_bytes(self) -> int:
        """How many bytes of payload may be sent. While there are any, a record may go, however large."""
        room = self.limits.bytes_in_flight - (self.sent_bytes - self._received_bytes)
        if self.limit_bytes is not None:
            room = min(room, self.limit_bytes - self.sent_bytes)
        return room

    def line_has_room(self) -> bool:
        """Whether the line is through with enough of what is on its way."""
        if self.state is not State.STREAMING or len(self._in_flight) >= self.limits.frames_in_flight:
            return False
        return self.pace is None or self.pace.has_room(self.sent_bytes - self._received_bytes)

    @property
    def begun(self) -> int:
        """How many records the frame has of which the subscriber has the beginning; 0 if there is none."""
        return self._begun[1]

    def cut_up(self, batch: Batch) -> bool:
        """Whether it goes in pieces: it is more than the line carries in a moment, or was begun before."""
        (here, count), self._begun = self._begun, (0, 0)
        start = here if count == batch.count else 0
        if self.pace is None or (not start and batch.nbytes <= self.pace.message):
            return False
        self.cut = CutFrame(batch, start)
        return True

    def better_whole(self, count: int, nbytes: int, now: float) -> bool:
        """Whether so much, which is more than was granted, should wait for the next grant and not be cut.

        To cut a batch is as much work as to pack it. It need not be cut if its window has room for it, and if
        more is on its way than is left of the grant: then the subscriber will have dealt with half of its
        window soon, and grant more. If it does not, it gets what it has granted, a moment later.
        """
        left, on_way = self.limit - self.cursor, self.cursor - self.received
        room, bytes_on_way = self.credit_bytes(), self.sent_bytes - self._received_bytes
        return (
            (count <= left or on_way >= left >= count - on_way)
            and (nbytes <= room or bytes_on_way >= room >= nbytes - bytes_on_way)
            and now - self.spoke < _SOON
        )

    def sent(self, count: int, nbytes: int) -> None:
        """So many records were sent in one frame."""
        super().sent(count, nbytes)
        self._in_flight.append((self.cursor, self.sent_bytes))

    def wants_acknowledgement(self, count: int = 0, nbytes: int = 0) -> bool:
        """Whether the next frame, of so many records and bytes, should ask how far the subscriber has come.

        It has to come before the log or the way is full, or both ends would wait for one another: so the
        frame itself counts, which may be all that the log has room for.
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

    @property
    def exhausted(self) -> bool:
        """Whether everything was sent, and the end can be told."""
        if self.state is not State.STREAMING:
            return False
        # A range may reach beyond the end of the stream, and then ends with it.
        return any(end is not None and self.cursor >= end for end in (self.to, self.log.end))

    @property
    def failed(self) -> bool:
        """Whether the end that is to be told is a failure: not that of a range that was delivered."""
        return self.log.failure is not None and (self.to is None or self.cursor < self.to)

    def ended(self) -> None:
        """The end was told."""
        self.state = State.ENDED

    def tick(self, now: float) -> list[Reply]:
        """Answer a request for a counted batch when there are records, or it has waited long enough."""
        if self._waiting is None:
            return []
        envelope, wanted, deadline = self._waiting
        # After what was declared before; and what is gone from the log cannot be declared any more.
        first = max(self.cursor, self._declared, self.log.first)
        count = min(wanted, self.stop - first) if self.state is State.STREAMING else 0
        if count <= 0 and now < deadline and self.state is not State.ENDED:
            return []
        self._waiting = None
        if self.state is State.ENDED:
            return [Reply(envelope, self._last_words())]
        if count > 0:
            self._declared = first + count
            self.limit = max(self.limit, self._declared)
        return [self._declaration(envelope, first, max(count, 0))]

    def _last_words(self) -> Control:
        if self.failed:
            return refusal(self.log.failure or "", "SOURCE")
        return OnComplete(x=CompleteFields(end=self.cursor))

    def _declaration(self, envelope: tuple[bytes, ...], first: int, count: int) -> Reply:
        return Reply(envelope, OnNext(count, x=OnNextFields(first=first, head=self.log.head)))

    def waiting(self) -> list[tuple[bytes, ...]]:
        """The request for a counted batch that waits for records, if there is one."""
        return [] if self._waiting is None else [self._waiting[0]]

    # ---------------------------------------------------------------- the handlers of the table
    def _grant(self, message: Next, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        grant = extension(message.x) or NextFields()
        problem = self._problem(message, grant)
        if problem is not None:
            return [Reply(envelope, refusal(problem, "BAD"))]
        new = self._note_progress(grant, now)
        if grant.shelf is not UNSET and grant.shelf:
            self.segment_use = grant.shelf
            self.pace = None  # The line is this machine's memory.
        if grant.limit is UNSET:
            # One waits at a time; the one before gets its answer now, or it never would.
            before = [] if self._waiting is None else [self._declaration(self._waiting[0], self.cursor, 0)]
            self._waiting = (envelope, demand(message.count), now + self.limits.long_poll)
            return before + self.tick(now)
        limit = demand(grant.limit)
        if limit > self.limit:
            self.limit, new = limit, True
        if grant.limitb is not UNSET and (self.limit_bytes is None or grant.limitb > self.limit_bytes):
            self.limit_bytes, new = demand(grant.limitb), True
        self.repeats += not new
        return []

    def _problem(self, message: Next, grant: NextFields) -> str | None:
        if grant.limit is UNSET and message.count <= 0:
            return f"§3.9: Next must ask for at least one record, not {message.count}"
        for name in ("limit", "limitb", "ack", "got", "gotb"):
            value = getattr(grant, name)
            if value is not UNSET and value < 0:
                return f"x.{name} is {value}: offsets and bytes are never negative"
        for name in ("ack", "got"):
            value = getattr(grant, name)
            if value is not UNSET and value > self.cursor:
                return f"x.{name} is {value}, but no record beyond {self.cursor} was sent in this session"
        if grant.gotb is not UNSET and grant.gotb > self.sent_bytes:
            return f"x.gotb is {grant.gotb}, but only {self.sent_bytes} bytes were sent in this session"
        return None

    def _note_progress(self, grant: NextFields, now: float) -> bool:
        new = False
        if grant.ack is not UNSET and grant.ack > self.acknowledged:
            self.acknowledged, new = grant.ack, True
        got = grant.got if grant.got is not UNSET else grant.ack
        if got is not UNSET and got > self.received:
            self.received, new = got, True
            while grant.gotb is UNSET and self._in_flight and self._in_flight[0][0] <= got:
                self._arrived(self._in_flight[0][1])
        if grant.gotb is not UNSET and grant.gotb > self._received_bytes:
            new = True
            while self._in_flight and self._in_flight[0][1] <= grant.gotb:
                self._arrived(self._in_flight[0][1])
            self._received_bytes = grant.gotb
            if self.pace is not None:
                self.pace.arrived(grant.gotb, now)
        return new

    def _arrived(self, nbytes: int) -> None:
        self._in_flight.popleft()
        self._received_bytes = nbytes
        self._flagged_frames = max(self._flagged_frames - 1, 0)

    def _ask_after_end(self, message: Next, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        before = self.repeats
        replies = self._grant(message, envelope, now)
        if self.repeats > before and self.received >= self.cursor:
            # It asks again though it has everything: it has missed the end, which will be told once more.
            self.state = State.STREAMING
        return replies

    def _leave(self, _: Any, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        return [Reply(envelope, OnComplete(x=CompleteFields(end=self.cursor, cancelled=True)))]

    def describe(self) -> dict[str, Any]:
        """Also what was granted, and what is on its way."""
        return {
            **super().describe(),
            "limit": self.limit,
            "received": self.received,
            "in_flight": self.sent_bytes - self._received_bytes,
            "format": self.format,
            "repeats": self.repeats,
        }


def _begun(fields: SubscribeFields) -> tuple[int, int]:
    """What a subscriber has of its first frame, if what it says makes sense."""
    here = fields.pieces if fields.pieces is not UNSET else []
    if len(here) != 2 or min(here) <= 0 or not isinstance(fields.from_, int):
        return 0, 0
    return here[0], here[1]
