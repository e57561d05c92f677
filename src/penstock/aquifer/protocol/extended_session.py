"""A subscriber of the extended dialect: it gets frames on the shared data port, as its credit allows.

A frame has a batch of the log as it is, if possible: to cut a batch, to join several or to compress one is
work. For a slow line a frame is cut into pieces. How much may be sent, and what is on its way, is in
:mod:`~penstock.aquifer.protocol.credited_session`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import UNSET

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log
from penstock.aquifer.log.excerpts import parts_of
from penstock.aquifer.protocol.credited_session import CreditedSession
from penstock.aquifer.protocol.frames import CutFrame, Flag, Frame
from penstock.aquifer.protocol.key_filter import KeyFilter
from penstock.aquifer.protocol.messages import (
    CompleteFields,
    Next,
    OnComplete,
    OnError,
    SubscribeFields,
    encode,
)
from penstock.aquifer.protocol.session import (
    ENDINGS,
    Reply,
    SessionEvent,
    SessionState,
    Table,
    refusal,
)
from penstock.aquifer.records import MSGPACK, Batch
from penstock.aquifer.records.compression import ZSTD, plain_format
from penstock.aquifer.security import Caller

__all__ = ["ExtendedSession"]

_SOON: Final = 0.1
"""Seconds that a batch may wait for the credit that it fits into."""
_SMALL: Final = 8 * 1024
"""Batches of fewer bytes are joined into one frame, for a reader that is behind."""
_UNSAID: Final = 0.1
"""Seconds after which a subscriber is told of records that were left out, because it wants other keys."""
_LARGEST_PIECE: Final = 1 << 20
_LARGEST_RUN: Final = 1 << 20
"""Bytes of batches that are put together in shared memory: one large frame is less work than several."""
_RUNS_IN_MEMORY: Final = 4
"""So many fit there: what does not fit goes through the socket, where nothing was to be gained by it."""
_ACK: Final = int(Flag.ACK)
_PIECE: Final = int(Flag.PIECE)
_ZSTD: Final = int(Flag.ZSTD)


class ExtendedSession(CreditedSession):
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
        super().__init__(peer, log, start, limits, now, caller, number, fields=fields, format=format)
        self.topic = topic
        self.required = fields.keep if fields.keep is not UNSET else True
        self.name = fields.id if fields.id is not UNSET else None
        if fields.lease is not UNSET:
            # Bounded before it is divided: a peer may write more digits than a float can hold.
            longest = limits.max_lease
            if self.name is None:
                longest = min(longest, limits.max_nameless_lease)
            self.lease = max(min(fields.lease, longest * 1000) / 1000, 0.1)
        self.takes_zstd = fields.compress is not UNSET and ZSTD in fields.compress
        """Whether it takes batches that are compressed."""
        self.cut: CutFrame | None = None
        """The frame that is being sent in pieces."""
        self._begun = _begun(fields)
        """How many bytes the subscriber has of the first frame, how many records that had, and whether it was
        compressed."""
        self.spoke = now
        """When the last frame was sent."""

    # ---------------------------------------------------------------- whole, or in parts
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
            if self.cut_up(batch):
                continue
            return (
                self._whole(batch, now) if self.segment_use is None else self._run(batch, credit, nbytes, now)
            )
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

    def _run(self, batch: Batch, credit: int, nbytes: int, now: float) -> Frame:
        """A frame for shared memory, where several batches can be put together without another copy."""
        if batch.format != MSGPACK or batch.nbytes < _SMALL or self.filter is not None:
            return self._whole(batch, now)
        records = min(credit, self.limits.max_frame_records, self.log.ack_every_records)
        largest = min(_LARGEST_RUN, self.limits.shared_memory // _RUNS_IN_MEMORY)
        run = self.log.run_from(batch, records, min(nbytes, largest, self.log.ack_every_bytes))
        if len(run) == 1:
            return self._whole(batch, now)
        start, *more = parts_of(run)
        count = run[-1].end - batch.first
        nbytes = len(start) + sum(map(len, more)) + len(batch.metadata)
        flags = _ACK if self.wants_acknowledgement(count, nbytes) else 0
        self._note_sent(count, nbytes, flags, now, 0)
        return Frame(flags, batch.first, count, start, batch.metadata, more=more)

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

    # ---------------------------------------------------------------- the records of the next one
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

    # ---------------------------------------------------------------- the handlers of the table
    def _ask_after_end(self, message: Next, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        before = self.repeats
        replies = self._take_credit(message, envelope, now)
        if self.repeats > before and self.received >= self.cursor:
            # It asks again although it has everything: it missed the end, so tell it again.
            self.handle(SessionEvent.END_MISSED, now)
        return replies

    def _leave(self, _: Any, envelope: tuple[bytes, ...], now: float) -> list[Reply]:
        return [Reply(envelope, OnComplete(x=CompleteFields(end=self.cursor, cancelled=True)))]

    # ---------------------------------------------------------------- the table
    _anytime: ClassVar[dict[SessionEvent, tuple[Any, SessionState | None]]] = {
        **ENDINGS,
        SessionEvent.NEXT: (CreditedSession._take_credit, None),
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


def _begun(fields: SubscribeFields) -> tuple[int, int, bool]:
    """What a subscriber has of its first frame, if what it says makes sense."""
    here = fields.pieces if fields.pieces is not UNSET else []
    if len(here) < 2 or here[2:] not in ([], [1]) or min(here) <= 0 or not isinstance(fields.from_, int):
        return 0, 0, False
    return here[0], here[1], len(here) == 3
