"""The log of a gateway: its journal, and what its threads tell each other about it."""

from __future__ import annotations

from threading import Condition
from typing import Final

from penstock.aquifer.log.journal import Journal
from penstock.aquifer.records.batch import Batch, sizes_of

__all__ = ["Log"]

_MEASURED_AT_ONCE: Final = 8 * 1024 * 1024
"""Bytes."""


class Log:
    """One sequence of records; the writer appends, the server reads, each on a thread of its own."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.epoch = journal.epoch
        self.end: int | None = None
        """Where the stream ends, once that is known."""
        self.failure: str | None = None
        """Why it ended there, if not by completion."""
        self.low_watermark = journal.first
        """The lowest offset that has to be kept. With no reader at all that is the oldest one."""
        self.needed = journal.first
        """The lowest offset that a reader needs: what is before it may go when it is too old."""
        self.ack_every_records = max(1, journal.max_records // 8)
        self.ack_every_bytes = max(1, journal.max_bytes // 8)
        self.moved = Condition()
        """Notified when there may be room, or something to write."""

    @property
    def first(self) -> int:
        """The oldest offset that is there."""
        return self.journal.first

    @property
    def head(self) -> int:
        """The offset that the next record will get."""
        return self.journal.head

    def find(self, offset: int) -> Batch | None:
        """The batch with this offset in it, if it is there."""
        return self.journal.find(offset)

    def measure(self, start: int, nbytes: int) -> tuple[int, int]:
        """How many records from ``start`` on have no more than so many bytes, and how many they have.

        Exact to the record, except in Arrow, where those of a batch are taken to be of one size. Stops after
        some megabytes: they may have to be read from the disk, and others wait meanwhile.
        """
        offset, used = start, 0
        while used < _MEASURED_AT_ONCE and (batch := self.find(offset)) is not None:
            if offset == batch.first and used + batch.nbytes <= nbytes:
                offset, used = batch.end, used + batch.nbytes
                continue
            for size in sizes_of(batch)[offset - batch.first :]:
                if used + size > nbytes:
                    return offset - start, used
                offset, used = offset + 1, used + size
        return offset - start, used

    def fitting(self, start: int, most: int, nbytes: int) -> int:
        """How many records from ``start`` on, up to ``most``, fit into so many bytes: at least one.

        The records of a batch are taken to be of one size.
        """
        offset, end, room = start, start + most, float(nbytes)
        while offset < end and (batch := self.find(offset)) is not None:
            record = max(batch.nbytes / batch.count, 1.0)
            count = min(batch.end, end) - offset
            if count * record > room:
                offset += int(room / record)
                break
            offset += count
            room -= count * record
        return max(offset - start, min(most, 1))

    def set_low_watermark(self, low_watermark: int, needed: int | None = None) -> None:
        """Somebody needs less than before, or more: a new subscriber may start at the oldest record."""
        needed = low_watermark if needed is None else needed
        if low_watermark == self.low_watermark and needed == self.needed:
            return
        with self.moved:
            self.needed = needed
            if low_watermark != self.low_watermark:
                self.low_watermark = low_watermark
                self.moved.notify_all()

    def finish(self, failure: str | None) -> None:
        """Nothing more will be appended."""
        self.failure = failure
        self.end = self.journal.head
