"""A subscriber of the extended dialect: absolute credit, acknowledgement, frames on the shared data port.

``Next`` carries credit, in records and bytes, and how far the subscriber has come. All figures are absolute:
the next message makes up for a lost one, and a repeated one changes nothing. What is on its way is bounded by
``Limits`` however much credit there is, because ØMQ would queue the rest; and for a subscriber that takes
frames in pieces, by what its line carries.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, Final

from msgspec import UNSET, UnsetType

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.hop_clock import Doing
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log
from penstock.aquifer.protocol.frames import CutFrame, Flag, Frame
from penstock.aquifer.protocol.key_filter import KeyFilter
from penstock.aquifer.protocol.messages import (
    CompleteFields,
    Control,
    Next,
    NextFields,
    OnComplete,
    OnError,
    OnNext,
    OnNextFields,
    SubscribeFields,
    demand,
    encode,
    extension,
)
from penstock.aquifer.protocol.pace import Pace
from penstock.aquifer.protocol.session import (
    ENDINGS,
    Reply,
    Session,
    SessionEvent,
    SessionState,
    Table,
    refusal,
)
from penstock.aquifer.records import MSGPACK, Batch, Partition
from penstock.aquifer.records.compression import ZSTD, plain_format
from penstock.aquifer.security import Caller
from penstock.aquifer.status import SessionStatus
from penstock.spec import UNBOUNDED

__all__ = ["ExtendedSession"]

_SOON: Final = 0.1
"""Seconds that a batch may wait for the credit that it fits into."""
_SMALL: Final = 8 * 1024
"""Batches of fewer bytes are joined into one frame, for a reader that is behind."""
_UNSAID: Final = 0.1
"""Seconds after which a subscriber is told of records that were left out, because it wants other keys."""
_LARGEST_PIECE: Final = 1 << 20
_ACK: Final = int(Flag.ACK)
_PIECE: Final = int(Flag.PIECE)
_ZSTD: Final = int(Flag.ZSTD)


class ExtendedSession(Session):
    """The gateway's side of an extended subscription."""

    dialect = "extended"

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
        topic: bytes,
        format: str,
    ) -> None:
        super().__init__(peer, log, start, limits, now, caller, number)
        self.fields = fields
        """What it asked for in ``Subscribe.x``."""
        self.topic = topic
        self.format = format
        self.to = fields.to if fields.to is not UNSET else None
        self.required = fields.keep if fields.keep is not UNSET else True
        self.name = fields.id if fields.id is not UNSET else None
        if fields.lease is not UNSET:
            # Bounded before it is divided: a peer may write more digits than a float can hold.
            longest = limits.max_lease
            if self.name is None:
                longest = min(longest, limits.max_nameless_lease)
            self.lease = max(min(fields.lease, longest * 1000) / 1000, 0.1)
        self.filter: KeyFilter | None = None
        """Finds the records that it wants; None if it wants all."""
        if (wanted := _wanted(fields)) is not None:
            self.filter = KeyFilter(log, wanted, format, start)
        self.takes_zstd = fields.compress is not UNSET and ZSTD in fields.compress
        """Whether it takes batches that are compressed."""
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
        self.cut: CutFrame | None = None
        """The frame that is being sent in pieces."""
        self._begun = _begun(fields)
        """How many bytes the subscriber has of the first frame, how many records that had, and whether it was
        compressed."""
        self.spoke = now
        """When the last frame was sent."""
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

    # ---------------------------------------------------------------- what it may get
    @property
    def stop(self) -> int:
        """The offset after the last record that this session can have, as far as is known."""
        return self.log.head if self.to is None else min(self.to, self.log.head)

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

    @property
    def begun(self) -> int:
        """How many records the frame has that the subscriber has the beginning of; 0 if there is none."""
        return self._begun[1]

    def cut_up(self, batch: Batch) -> bool:
        """Whether it goes in pieces: it is more than the line carries in a moment, or was begun before."""
        (here, count, _), self._begun = self._begun, (0, 0, False)
        start = here if count == batch.end - batch.first else 0
        if self.pace is None or (not start and batch.nbytes <= self.pace.message):
            return False
        self.cut = CutFrame(batch, start)
        return True

    def better_whole(self, count: int, nbytes: int, now: float) -> bool:
        """Whether a batch that exceeds the credit should wait for more credit, and not be cut.

        To cut a batch is as much work as to pack it. It should wait if it fits into the subscriber's window,
        and if more is on its way than credit is left: then the subscriber will soon have dealt with half of
        its window, and give more credit. If it does not, the batch is cut a moment later.
        """
        left, on_way = self.credit_end - self.cursor, self.cursor - self.received
        left_bytes, bytes_on_way = self.credit_bytes(), self.sent_bytes - self._received_bytes
        return (
            (count <= left or on_way >= left >= count - on_way)
            and (nbytes <= left_bytes or bytes_on_way >= left_bytes >= nbytes - bytes_on_way)
            and now - self.spoke < _SOON
        )

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

    # ---------------------------------------------------------------- the frames to send
    def next_frame(self, now: float, most: int | None = None) -> Frame | None:
        """The next frame to send, which counts as sent from now on; None if nothing may be sent.

        ``most`` bounds a piece in bytes, if the pace of the line is not to say.
        """
        while self.line_is_free():
            if self.cut is not None:
                return self._piece(self.cut, most, now)
            credit = self.credit()
            if not credit:
                break
            if self.overtaken:
                missed = self.cursor
                self.skip_to(self.log.first)
                return self._frame(Flag.GAP, missed.to_bytes(8, "big"), now)
            nbytes = self.credit_bytes()
            if nbytes <= 0:
                break
            batch = self._next_batch(min(credit, self.limits.max_frame_records), nbytes, now)
            if batch is None:
                break
            if not self.cut_up(batch):
                return self._whole(batch, now)
        return self._last_frame(now) if self.exhausted else None

    def error_frame(self, error: OnError, now: float) -> Frame:
        """The frame that says that the stream failed."""
        return self._frame(Flag.ERR, encode(error), now)

    def heartbeat(self, now: float) -> Frame | None:
        """A sign of life, if it is time for one."""
        if now - self.spoke < self.limits.heartbeat or self._state is not SessionState.STREAMING:
            return None
        return self._frame(Flag.HB, self.log.head.to_bytes(8, "big"), now)

    def _frame(self, flag: Flag, payload: bytes, now: float) -> Frame:
        self.spoke = now
        return Frame(flag, self.cursor, 0, payload)

    def _whole(self, batch: Batch, now: float) -> Frame:
        count, nbytes = batch.end - batch.first, batch.nbytes
        flags = _ACK if self.wants_acknowledgement(count, nbytes) else 0
        if self.filter is not None and self.filter.asks(batch):
            flags = _ACK
        if batch.compressed:
            flags |= _ZSTD
        self._note_sent(count, nbytes, flags, now, count - batch.count)
        return Frame(flags, batch.first, count, batch.payload, batch.metadata)

    def _piece(self, cut: CutFrame, most: int | None, now: float) -> Frame:
        if most is None:
            most = self.pace.message if self.pace is not None else _LARGEST_PIECE
        data, position, last = cut.piece(most)
        count = cut.count if last else 0
        flags = _PIECE | (_ACK if self.wants_acknowledgement(count, len(data)) else 0)
        if cut.compressed:
            flags |= _ZSTD
        if last:
            self.cut = None
        self._note_sent(count, len(data), flags, now, cut.left_out if last else 0)
        return Frame(flags, cut.first, cut.count, data, position)

    def _note_sent(self, count: int, nbytes: int, flags: int, now: float, left_out: int) -> None:
        self.sent(count, nbytes, left_out)
        self.spoke = now
        if flags & _ACK:
            self.asked(now)

    def _last_frame(self, now: float) -> Frame:
        error = refusal(self.log.failure or "", ErrorCode.SOURCE) if self.failed else None
        self.handle(SessionEvent.END_TOLD, now)
        return self._frame(Flag.END, b"", now) if error is None else self.error_frame(error, now)

    def _next_batch(self, credit: int, nbytes: int, now: float) -> Batch | None:
        """What to send next: a batch of the log as it is if possible, a part of one, or several as one."""
        if self.filter is not None:
            return self._next_chosen(self.filter, credit, nbytes, now)
        batch = self.log.find(self.cursor)
        if batch is None:
            return None
        if not self.takes_zstd:
            batch = self.log.expanded(batch)
        if 0 < self.begun <= min(credit, batch.end - self.cursor):
            return self._as_begun(self.log.excerpt(batch, self.cursor, self.cursor + self.begun, self.format))
        fit, bytes_left = batch.count, nbytes
        if self.pace is not None and self.pace.slow and self.format == MSGPACK == plain_format(batch):
            # To cut it by records is more work than to cut it by bytes, but its first records arrive sooner.
            nbytes = min(nbytes, self.pace.message)
            fit = max(1, batch.count * nbytes // batch.nbytes)
        if batch.nbytes < _SMALL and batch.format == MSGPACK:
            batch = self.log.with_following(batch, self.cursor + credit, min(nbytes, 8 * _SMALL), _SMALL)
            fit = max(fit, batch.count)
        whole = min(batch.end, self.stop, self.cursor + self.limits.max_frame_records) - self.cursor
        whole = min(whole, fit)
        count = min(whole, credit)
        if batch.nbytes > nbytes:
            count = min(count, max(1, batch.count * nbytes // batch.nbytes))
        if count < whole and self.better_whole(whole, batch.nbytes * whole // batch.count, now):
            return None
        excerpt = self.log.excerpt(batch, self.cursor, self.cursor + count, self.format)
        if excerpt is not batch:
            excerpt = self._part_within(excerpt, bytes_left, compress=batch.compressed)
        return self._for_the_line(excerpt)

    def _part_within(self, part: Batch, nbytes: int, *, compress: bool) -> Batch:
        """As much of the part as is within the credit: one record may be larger than another."""
        while part.nbytes > nbytes and part.count > 1:
            if compress and (smaller := self.log.compressed(part)).nbytes <= nbytes:
                return smaller
            count = min(max(1, part.count * nbytes // part.nbytes), part.count - 1)
            part = self.log.excerpt(part, part.first, part.first + count, self.format)
        return part

    def _for_the_line(self, batch: Batch) -> Batch:
        """On a slow line what was not compressed is, because bytes are dear there."""
        slow = self.takes_zstd and self.pace is not None and self.pace.slow
        return self.log.compressed(batch) if slow else batch

    def _as_begun(self, batch: Batch) -> Batch:
        """The frame that the subscriber has the beginning of, made in the same way."""
        return self.log.compressed(batch) if self._begun[2] and self.takes_zstd else self.log.expanded(batch)

    def _next_chosen(self, chooser: KeyFilter, credit: int, nbytes: int, now: float) -> Batch | None:
        """The next records with one of the keys; or without, if it is time to tell how far the search is."""
        end = self.cursor + self.begun
        if self.begun and end <= self.stop and (begun := chooser.range(self.cursor, end)) is not None:
            return self._as_begun(begun)
        if self.pace is not None and self.pace.slow:
            nbytes = min(nbytes, self.pace.message)
        looked_at = chooser.looked_at
        batch = chooser.next_batch(self.cursor, self.stop, credit, nbytes)
        if batch is not None:
            return self._for_the_line(batch)
        if chooser.seen <= self.cursor:
            return None
        due = (
            now - self.spoke >= _UNSAID
            or chooser.seen - self.cursor >= self.log.ack_every_records
            or chooser.unsaid >= self.log.ack_every_bytes
            or chooser.looked_at - looked_at >= KeyFilter.at_once
            or chooser.seen in (self.to, self.log.end)
        )
        return chooser.left_out(self.cursor) if due else None

    # ---------------------------------------------------------------- the end
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

    # ---------------------------------------------------------------- the handlers of the table
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

    def _ask_after_end(self, message: Next, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        before = self.repeats
        replies = self._take_credit(message, envelope, now)
        if self.repeats > before and self.received >= self.cursor:
            # It asks again although it has everything: it missed the end, so tell it again.
            self.handle(SessionEvent.END_MISSED, now)
        return replies

    def _leave(self, _: Any, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        return [Reply(envelope, OnComplete(x=CompleteFields(end=self.cursor, cancelled=True)))]

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

    # ---------------------------------------------------------------- the table
    _anytime: ClassVar[dict[SessionEvent, tuple[Any, SessionState | None]]] = {
        **ENDINGS,
        SessionEvent.NEXT: (_take_credit, None),
        SessionEvent.CANCEL: (_leave, SessionState.CLOSED),
        SessionEvent.COMPLETE: (_leave, SessionState.CLOSED),
    }
    table: ClassVar[Table] = {
        SessionState.JOINING: {
            **_anytime,
            SessionEvent.JOINED: (None, SessionState.STREAMING),
            SessionEvent.LEFT: (None, None),
        },
        SessionState.STREAMING: {
            **_anytime,
            SessionEvent.JOINED: (None, None),
            SessionEvent.LEFT: (None, SessionState.JOINING),
            SessionEvent.END_TOLD: (None, SessionState.ENDED),
        },
        SessionState.ENDED: {
            **_anytime,
            SessionEvent.NEXT: (_ask_after_end, None),
            SessionEvent.JOINED: (None, SessionState.STREAMING),
            SessionEvent.LEFT: (None, SessionState.JOINING),
            SessionEvent.END_MISSED: (None, SessionState.STREAMING),
        },
        SessionState.CLOSED: {},
    }


def _wanted(fields: SubscribeFields) -> list[bytes] | Partition | None:
    """The keys of a subscriber, or its partition; None if it wants all records."""
    if fields.keys is not UNSET:
        return fields.keys
    return Partition.of_id(fields.id) if fields.group is not UNSET and fields.id is not UNSET else None


def _begun(fields: SubscribeFields) -> tuple[int, int, bool]:
    """What a subscriber has of its first frame, if what it says makes sense."""
    here = fields.pieces if fields.pieces is not UNSET else []
    if len(here) < 2 or here[2:] not in ([], [1]) or min(here) <= 0 or not isinstance(fields.from_, int):
        return 0, 0, False
    return here[0], here[1], len(here) == 3
