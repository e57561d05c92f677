"""Batches whose bytes tell where they belong, and the journals that the tests put them into."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.aquifer.log import Journal, KafkaJournal, MemoryJournal, SqliteJournal
from penstock.aquifer.records.batch import Batch, RecordMetadata, pack_metadata, pack_values, unpack_values
from tests.kafka.broker import KafkaBroker

NO_WATERMARK = 1 << 60
"""Nobody needs any record any more."""


class Clock:
    """The time of day, to be set."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.set_by = 0.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        """Seconds that have passed, whatever the clock on the wall was set to."""
        return self.now - self.set_by

    def set(self, now: float) -> None:
        self.set_by += now - self.now
        self.now = now


def batch_at(first: int, count: int = 1, *, width: int = 8, author: str = "") -> Batch:
    """A batch of ``count`` records of ``width`` bytes; each begins with its offset and its author."""
    values = [f"{offset} {author}".encode().ljust(width, b".") for offset in range(first, first + count)]
    return Batch(first, count, pack_values(values), pack_metadata(RecordMetadata(first)))


def batches_from(first: int, counts: Iterable[int], **how: Any) -> list[Batch]:
    """Consecutive batches with so many records each."""
    made = []
    for count in counts:
        made.append(batch_at(first, count, **how))
        first += count
    return made


def fill(journal: Journal, counts: Iterable[int], **how: Any) -> list[Batch]:
    """Append consecutive batches at the head, and return them."""
    made = batches_from(journal.head, counts, **how)
    journal.append(made)
    return made


def everything(journal: Journal) -> list[Batch]:
    """All batches of a journal, in order; fails if one does not follow on the other."""
    found = []
    offset = journal.first
    while offset < journal.head:
        batch = journal.find(offset)
        assert batch is not None, f"{offset} is missing"
        assert batch.first == offset
        found.append(batch)
        offset = batch.end
    assert offset == journal.head
    return found


def authors(batch: Batch) -> list[tuple[int, str]]:
    """The offset and the author that each record of the batch claims to have."""
    claims = [value.decode().rstrip(".").split(" ") for value in unpack_values(batch.payload)]
    return [(int(offset), author) for offset, author in claims]


def copy_of(path: Path, folder: Path) -> Path:
    """The journal as a crash would leave it now: its files and its write-ahead log, and nothing else."""
    folder.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", folder / f"{path.name}{suffix}")
    if os.path.isdir(f"{path}-segments"):
        shutil.copytree(f"{path}-segments", folder / f"{path.name}-segments")
    return folder / path.name


def segment_files(path: Path) -> list[Path]:
    """The segment files of a journal, the oldest first."""
    return sorted(Path(f"{path}-segments").glob("*"))


def open_journal(kind: str, where: Path | KafkaBroker, *, topic: str = "", **settings: Any) -> Journal:
    """A journal of this kind; one that survives is always the same file of a folder, or topic of a broker."""
    if kind == "memory":
        return MemoryJournal(**settings)
    if kind == "kafka":
        assert isinstance(where, KafkaBroker)
        return KafkaJournal(where.address, topic, **settings)
    assert isinstance(where, Path)
    return SqliteJournal(where / "journal.db", **settings)
