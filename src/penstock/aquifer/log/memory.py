"""The journal that lives and dies with its process."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from penstock.aquifer.errors import JournalError
from penstock.aquifer.log.annotated_journal import AnnotatedJournal
from penstock.aquifer.log.batch_sequence import BatchSequence, Position, end_of
from penstock.aquifer.log.journal import Held, a_bound, remaining
from penstock.aquifer.log.marks import Marks
from penstock.aquifer.records.batch import Batch

__all__ = ["MemoryJournal"]


class MemoryJournal(AnnotatedJournal):
    """Keeps the most recent records in memory, up to a number of records and of bytes; None for no bound.

    Each instance is a log of its own, with its own epoch. Nothing is forgotten because of its age or because
    it was acknowledged: delivered records stay for later subscribers until their space is needed.
    """

    def __init__(self, max_records: int | None = 1_000_000, max_bytes: int | None = 64 * 1024 * 1024) -> None:
        self.max_records = a_bound(max_records, "MemoryJournal(max_records)")
        self.max_bytes = a_bound(max_bytes, "MemoryJournal(max_bytes)")
        self.epoch = secrets.token_hex(6)
        self.first = 0
        self.head = 0
        self.durable = False
        self._batches = BatchSequence(Position(0, 0))
        self._cursors = {}
        self._marks = Marks()
        self._start_clock()
        self._codec = ""
        self._closed = False

    @property
    def held(self) -> Held:
        """How many records and bytes are in the journal."""
        return Held(self.head - self.first, self._batches.nbytes)

    def held_from(self, low_watermark: int) -> Held:
        """What is left if every batch that ends at or before ``low_watermark`` is forgotten."""
        start, before = self._batches.position_of(low_watermark)
        return Held(self.head - start, self._batches.end.before - before)

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str | None] | None = None) -> None:
        """Keep the batches; ValueError if they do not follow on its end. It does not check the bounds."""
        self._check_open()
        end = end_of(batches, self._batches.end)
        self._batches.extend(batches)
        if marks:
            self._marks.apply(self._marks.changes(marks, self._now()))
        # Last, because from here on other threads look for them.
        self.head = end.offset

    def find(self, offset: int) -> Batch | None:
        """The batch with this offset in it; None if it is before ``first`` or not before ``head``."""
        return self._batches.find(offset) if self.first <= offset < self.head else None

    def make_space(self, records: int, nbytes: int, low_watermark: int) -> bool:
        """Forget the oldest batches until so much more fits; none, if ``low_watermark`` does not allow it."""
        self._check_open()
        position = self._batches.position_for(
            remaining(self.max_records, records), remaining(self.max_bytes, nbytes)
        )
        if position.offset > max(low_watermark, self.first):
            return False
        self.first = position.offset
        self._batches.forget_before(position)
        return True

    def retire(self, low_watermark: int, now: float | None = None, needed: int | None = None) -> None:
        """Nothing: records stay until their room is needed."""

    def flush(self) -> None:
        """Nothing: there is nowhere to store anything."""

    def close(self) -> None:
        """Take no more records; those that are here can still be found. May be called again."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise JournalError("the journal is closed; make a new MemoryJournal")
