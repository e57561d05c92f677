"""The log of a gateway: a journal that the writer and the server share.

The writer appends and makes room, the server reads, moves the low watermark and saves cursors. Everything
here is safe to use from both threads. Neither calls the other: the writer waits on :attr:`Log.changed`, and a
thread that waits on sockets gives the log its :class:`~penstock.waker.Waker`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Final

from penstock.aquifer.errors import JournalDamaged, JournalUnavailable
from penstock.aquifer.hop_clock import Doing, HopClock
from penstock.aquifer.log.excerpts import can_follow, in_format, joined, leading, part
from penstock.aquifer.log.expansion import ExpandedBatches
from penstock.aquifer.log.growth import Growth
from penstock.aquifer.log.journal import Cursor, Held, Journal
from penstock.aquifer.log.spool import Spool
from penstock.aquifer.log.unpacked import UnpackedBatch, UnpackedBatches
from penstock.aquifer.records import MSGPACK, Batch
from penstock.aquifer.records.compression import Compressor, expanded_bytes, plain_format
from penstock.aquifer.status import LogFigures
from penstock.waker import Waker

__all__ = ["Log", "PendingAppend"]

_MEASURED_AT_ONCE: Final = 8 * 1024 * 1024
"""Bytes."""
_UNLIMITED: Final = 2**62
_A_BREAK: Final = 1.0
"""Seconds for which a log has to have space before it counts as not full any more."""


@dataclass(eq=False, kw_only=True)
class PendingAppend:
    """Batches that somebody has submitted to the log, to be appended all at once with their marks.

    The submitter sets ``withdrawn``, the writer sets ``end`` or ``failure``.
    """

    batches: Sequence[Batch]
    """Their offsets are given by the writer."""
    withdrawn: bool = False
    """If they are not in the log yet, they must not get there."""
    end: int | None = None
    """The log's head after them, once they are appended."""
    failure: str | None = None
    """Why they will never be appended."""

    @property
    def is_done(self) -> bool:
        """Whether they are appended, or never will be."""
        return self.end is not None or self.failure is not None

    def marks_after(self, marks: Mapping[str, str]) -> Mapping[str, str]:
        """The marks that are stored with the batches, given those that are there already."""
        return {}


class Log:
    """One sequence of records; the writer appends, the server reads, each on its own thread."""

    def __init__(self, journal: Journal, *, drops_oldest: bool = False) -> None:
        self._drops_oldest = drops_oldest
        """Whether records that no reader needs make space, though no reader has come yet."""
        self.epoch = journal.epoch
        # The journal's own, as of the last change: sessions look at these two all the time.
        self.first = journal.first
        """The oldest offset in the log."""
        self.head = journal.head
        """The offset that the next record will get."""
        self.end: int | None = None
        """Where the stream ends, once that is known."""
        self.failure: str | None = None
        """Why it ended there, if not by completion."""
        self.stalled: str | None = None
        """Why nothing can be written at the moment, if so."""
        self.low_watermark = journal.first
        """The lowest offset that has to be kept. Without any reader that is the oldest one."""
        self.needed = journal.first
        """The lowest offset that a reader needs: records before it may go when they are too old."""
        self.codec = ""
        self.compressor: Compressor | None = None
        """Compresses the batches that come in, if the gateway does that."""
        self._expanded = ExpandedBatches(journal.epoch)
        self._unpacked = UnpackedBatches()
        self.growth = Growth(journal.head)
        """When it had come how far."""
        self.clock = HopClock()
        """What the writer does."""
        self._figures = LogFigures()
        self._full_since = self._full_last = float("-inf")
        self.changed = threading.Condition()
        """Held while something is forgotten; notified when there may be room, or something to write."""
        self._journal = journal
        self._wakers: tuple[Waker, ...] = ()
        self._unsaved: dict[str, Cursor | None] = {}
        self._saves = 0
        """How often a cursor was saved,"""
        self._stored_saves: float = 0
        """and how many of these times the journal has stored: all, once nothing is stored any more."""
        self.wants_flush = False
        """Whether somebody waits until cursors are stored."""
        self._submitted: deque[PendingAppend] = deque()
        self._closed: str | None = None
        """Why nothing that is submitted can be appended any more."""
        self._ended = threading.Event()

    # ---------------------------------------------------------------- reading
    @property
    def held(self) -> Held:
        """How many records and bytes are in the log."""
        return self._journal.held

    @property
    def durable(self) -> bool:
        """Whether the records survive the process."""
        return self._journal.durable

    @property
    def max_records(self) -> int | None:
        """The bound on records; None if there is none."""
        return self._journal.max_records

    @property
    def max_bytes(self) -> int | None:
        """The bound on bytes; None if there is none."""
        return self._journal.max_bytes

    @property
    def ack_every_records(self) -> int:
        """After so many records a subscriber should acknowledge: the log must not fill up meanwhile."""
        return _eighth(self._journal.max_records)

    @property
    def ack_every_bytes(self) -> int:
        """The same in bytes."""
        return _eighth(self._journal.max_bytes)

    def find(self, offset: int) -> Batch | None:
        """The batch that contains this offset, as it is stored, if the log has it."""
        return self._journal.find(offset)

    def unpacked(self, batch: Batch) -> UnpackedBatch:
        """A batch as its records, for a reader that gets only some of them."""
        return self._unpacked.of(batch)

    def expanded(self, batch: Batch) -> Batch:
        """A batch without compression; JournalDamaged if it cannot be expanded."""
        return self._expanded.of(batch)

    def compressed(self, batch: Batch) -> Batch:
        """A batch with compression, if this gateway compresses and it pays."""
        return batch if self.compressor is None else self.compressor.compressed(batch)

    def _find_now(self, offset: int) -> Batch | None:
        """The same, and None as well if the journal cannot be read at the moment."""
        try:
            return self._journal.find(offset)
        except JournalUnavailable:
            return None

    def _following(self, batch: Batch) -> Batch | None:
        """The batch after this one, which is only nice to have; None if it cannot be read."""
        try:
            return self._find_now(batch.end)
        except JournalDamaged:
            return None  # Whoever gets this far is told. The records before it are sound, and go first.

    def with_following(self, batch: Batch, end: int, nbytes: int, small: int) -> Batch:
        """A batch and those after it as one, while they have fewer than ``small`` bytes each.

        It ends when it reaches ``end`` or has ``nbytes``.
        """
        batches, size = [batch], batch.nbytes
        while batches[-1].end < end and size < nbytes:
            following = self._following(batches[-1])
            if following is None or following.nbytes >= small or following.format != MSGPACK:
                break
            batches.append(following)
            size += following.nbytes
        return joined(batches)

    def run_from(self, batch: Batch, records: int, nbytes: int) -> list[Batch]:
        """A batch and those after it whose values can be put together, with so many records and bytes in all.

        None of them is cut, so there may be fewer.
        """
        run = [batch]
        records, nbytes = records - batch.count, nbytes - batch.nbytes
        while records > 0 and nbytes > 0 and run[-1].end < self.head:
            following = self._following(run[-1])
            if following is None or not can_follow(run[-1], following):
                break
            if following.count > records or following.nbytes > nbytes:
                break
            run.append(following)
            records, nbytes = records - following.count, nbytes - following.nbytes
        return run

    def excerpt(self, batch: Batch, start: int, stop: int, format: str) -> Batch:
        """The records of a batch from ``start`` up to, but not with, ``stop``, in this format.

        A compressed batch stays compressed if all of it is wanted.
        """
        stored = plain_format(batch) if batch.compressed else batch.format
        if start <= batch.first and stop >= batch.end and stored == format:
            return batch
        return in_format(part(self.expanded(batch), start, stop), format)

    def measure(self, start: int, nbytes: int) -> tuple[int, int]:
        """How many records from ``start`` on fit into ``nbytes``, and how many bytes they have.

        Exact to the record. It stops after some megabytes, because they may have to be read from the disk
        while other subscribers wait.
        """
        return self._leading(start, _UNLIMITED, nbytes, _MEASURED_AT_ONCE)

    def fitting(self, start: int, most: int, nbytes: int) -> int:
        """How many records from ``start`` on, up to ``most``, fit into ``nbytes``: at least one."""
        count, _ = self._leading(start, start + most, nbytes, _UNLIMITED)
        return max(count, min(most, 1))

    def _leading(self, start: int, end: int, nbytes: int, enough: int) -> tuple[int, int]:
        """How many records from ``start`` on and before ``end`` fit into ``nbytes``, and their bytes.

        It looks at no further batch after ``enough`` bytes.
        """
        offset, used = start, 0
        while offset < end and used < enough and (batch := self._find_now(offset)) is not None:
            whole = self._expanded.size_of(batch)
            if offset == batch.first and batch.end <= end and used + whole <= nbytes:
                offset, used = batch.end, used + whole
                continue
            count, size = leading(self.expanded(batch), offset - batch.first, nbytes - used)
            offset, used = min(offset + count, end), used + size
            if offset < batch.end:
                break
        return offset - start, used

    def wake_on_growth(self, waker: Waker) -> None:
        """Wake this waker whenever records were appended, or the stream has ended."""
        self._wakers += (waker,)

    def wait_until_ended(self, timeout: float | None = None) -> bool:
        """Wait until the stream has ended, or the log was closed; False after ``timeout`` seconds."""
        return self._ended.wait(timeout)

    # ---------------------------------------------------------------- readers and their cursors
    def keeping_everything(self) -> AbstractContextManager[object]:
        """While this is entered, nothing is forgotten: what a new subscriber is promised will be there."""
        return self.changed

    def set_low_watermark(self, low_watermark: int, needed: int | None = None) -> None:
        """The readers need more than before, or less: a new one may start at the oldest record."""
        needed = low_watermark if needed is None else needed
        if low_watermark == self.low_watermark and needed == self.needed:
            return
        with self.changed:
            self.needed = needed
            if self._drops_oldest:
                self.changed.notify_all()
            if low_watermark != self.low_watermark:
                self.low_watermark = low_watermark
                self.changed.notify_all()

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """The cursors that were stored, by id."""
        return self._journal.cursors

    def save_cursor(self, name: str, cursor: Cursor | None) -> int:
        """Store a cursor, or with None delete it, with the next transaction.

        Returns what to ask :meth:`has_stored` for.
        """
        with self.changed:
            self._unsaved[name] = cursor
            self._saves += 1
            return self._saves

    def store_cursors_soon(self) -> int:
        """Let the writer store the cursors at once; returns what to ask :meth:`has_stored` for.

        The threads that read are woken when it has.
        """
        with self.changed:
            self.wants_flush = True
            self.changed.notify_all()
            return self._saves

    def has_stored(self, saves: int) -> bool:
        """Whether the journal has the cursors that had been saved by then."""
        return self._stored_saves >= saves

    def stores_no_more(self) -> None:
        """The writer has ended: nobody needs to wait for it."""
        self._stored_saves = float("inf")
        self.wake_readers()

    # ---------------------------------------------------------------- writing from outside
    @property
    def marks(self) -> Mapping[str, str]:
        """The marks that were stored with records; a view, not a copy."""
        return self._journal.marks

    def has_space_for_mark(self, name: str) -> bool:
        """Whether a mark of this name can be stored; their number may be bounded."""
        return self._journal.has_space_for_mark(name)

    def open_spool(self) -> Spool | None:
        """A new place on the journal's disk for bytes that are not to be stored; None if it has no disk."""
        return self._journal.open_spool()

    def submit(self, pending: PendingAppend) -> None:
        """Append these batches as soon as there is room; ``pending`` says when that was done."""
        with self.changed:
            if self._closed is not None:
                pending.failure = self._closed
                return
            self._submitted.append(pending)
            self.changed.notify_all()

    # ---------------------------------------------------------------- the writer's side
    def use_codec(self, codec: str) -> None:
        """Say what the records are encoded with; JournalError if the log has records of another codec."""
        self._journal.use_codec(codec)
        self.codec = codec

    def next_submitted(self) -> PendingAppend | None:
        """The oldest of what was submitted; it stays in the queue until :meth:`done_with` it."""
        return self._submitted[0] if self._submitted else None

    def done_with(self, pending: PendingAppend) -> None:
        """The oldest of what was submitted is appended, or was refused."""
        with self.changed:
            if self._submitted and self._submitted[0] is pending:
                self._submitted.popleft()
            self.changed.notify_all()

    def refuse_submissions(self, why: str) -> None:
        """Nothing that was submitted, or will be, can be appended any more."""
        with self.changed:
            self._closed = why
            while self._submitted:
                self._submitted.popleft().failure = why
            self.changed.notify_all()

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str | None] | None = None) -> None:
        """Store batches, marks and the cursors that were saved, in one transaction.

        :class:`~penstock.aquifer.JournalFull` and :class:`~penstock.aquifer.JournalLocked` say that nothing
        was stored, and that trying again may help.
        """
        saves = self._hand_over_cursors()
        began = time.monotonic()
        self.clock.now(Doing.WORKING, began)
        self._journal.append(batches, marks)
        self._stored_saves = saves
        figures = self._figures
        figures.commits += 1
        figures.commit_seconds += time.monotonic() - began
        figures.appended_bytes += sum(batch.nbytes for batch in batches)
        figures.plain_bytes += sum(map(_plain_bytes, batches))
        self.growth.grown(self.head)
        figures.appended += self._journal.head - self.head
        self.head = self._journal.head
        self.wake_readers()

    def make_space(self, records: int, nbytes: int) -> bool:
        """Forget the oldest batches that no required reader needs until so much fits; whether it does."""
        with self.changed:  # A new subscriber may need just what is about to be forgotten.
            return self._make_space(records, nbytes)

    def make_space_for_oversized(self, records: int, nbytes: int) -> bool:
        """Empty the log for something that is larger than its bounds; False if it is not, or cannot be."""
        with self.changed:
            if not self.is_oversized(records, nbytes):
                return False
            return self._make_space(self._journal.max_records or 0, self._journal.max_bytes or 0)

    def is_oversized(self, records: int, nbytes: int) -> bool:
        """Whether so much is larger than the bounds of the log, and can be stored only in an empty one."""
        most, most_bytes = self._journal.max_records, self._journal.max_bytes
        return (most is not None and records > most) or (most_bytes is not None and nbytes > most_bytes)

    def _make_space(self, records: int, nbytes: int) -> bool:
        keep = max(self.low_watermark, self.needed) if self._drops_oldest else self.low_watermark
        fits = self._journal.make_space(records, nbytes, keep)
        self.first = self._journal.first
        return fits

    def space(self) -> tuple[float, float]:
        """How many records and bytes still fit, if everything below the low watermark is forgotten."""
        held = self._journal.held_from(self.low_watermark)
        most, most_bytes = self._journal.max_records, self._journal.max_bytes
        return (
            float("inf") if most is None else most - held.records,
            float("inf") if most_bytes is None else most_bytes - held.nbytes,
        )

    def retire(self) -> None:
        """Forget records that are too old, or were acknowledged, as the journal's settings say."""
        with self.changed:
            self._journal.retire(self.low_watermark, needed=self.needed)
            self.first = self._journal.first
            self.growth.forget(self.first)

    def age(self, offset: int) -> float:
        """For how many seconds the record at ``offset`` has been in the log; 0 if it is not there yet."""
        return self.growth.age(offset, self.head)

    def waits_for_space(self) -> None:
        """The writer has something to write, or could request something, and there is no space for it."""
        now = time.monotonic()
        if now - self._full_last > _A_BREAK:
            self._full_since = now
        self._full_last = now
        self.clock.now(Doing.WAITING_FOR_DEMAND, now)

    def figures(self) -> LogFigures:
        """How it is written."""
        now, figures = time.monotonic(), self._figures
        return LogFigures(
            times=self.clock.times(),
            appended=figures.appended,
            appended_bytes=figures.appended_bytes,
            plain_bytes=figures.plain_bytes,
            commits=figures.commits,
            commit_seconds=round(figures.commit_seconds, 6),
            full_seconds=round(now - self._full_since, 3) if now - self._full_last <= _A_BREAK else None,
            oldest_seconds=round(self.age(self.first), 3),
        )

    def flush(self) -> None:
        """Store the cursors that were saved since the last transaction."""
        saves, is_awaited, self.wants_flush = self._hand_over_cursors(), self.wants_flush, False
        self._journal.flush()
        self._stored_saves = saves
        if is_awaited:
            self.wake_readers()

    def finish(self, failure: str | None) -> None:
        """Nothing more will be appended."""
        self.failure = failure
        self.end = self.head
        self._ended.set()
        self.wake_readers()

    def notify(self) -> None:
        """Make the writer look whether there is something to do."""
        with self.changed:
            self.changed.notify_all()

    # ---------------------------------------------------------------- its life
    def lift_bounds(self) -> None:
        """Let the log grow without a bound from now on."""
        with self.changed:
            self._journal.max_records = self._journal.max_bytes = None
            self.changed.notify_all()

    def close(self) -> None:
        """Store the cursors, and close the journal; JournalError if that is not possible."""
        try:
            self._hand_over_cursors()
            self._journal.close()
        finally:
            self._ended.set()

    def _hand_over_cursors(self) -> int:
        """Give the journal what was saved; returns how often that was, since the beginning."""
        with self.changed:
            unsaved, self._unsaved = self._unsaved, {}
            saves = self._saves
        for name, cursor in unsaved.items():
            self._journal.save_cursor(name, cursor)
        return saves

    def wake_readers(self) -> None:
        """Wake the threads that read the log."""
        for waker in self._wakers:
            waker.wake()


def _plain_bytes(batch: Batch) -> int:
    with suppress(ValueError):  # Whoever reads it is told.
        if batch.compressed:
            return expanded_bytes(batch)
    return batch.nbytes


def _eighth(bound: int | None) -> int:
    return _UNLIMITED if bound is None else max(1, bound // 8)
