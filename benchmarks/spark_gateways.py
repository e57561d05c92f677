"""Gateways for Spark to read from and to write to, each for a process of its own."""

from __future__ import annotations

import struct
import tempfile
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from select import select
from typing import Any

from benchmarks.processes import RECORD, Facts, Line
from benchmarks.spark_rows import ROWS_A_BATCH, arrow_rows, json_rows
from penstock import feeds
from penstock.aquifer import Gateway, Journal, MemoryJournal, Record, SqliteJournal
from penstock.streams import Flux

__all__ = [
    "STAMP",
    "serve_a_journal",
    "serve_feed",
    "serve_few",
    "serve_json",
    "serve_live",
    "serve_on_disk",
    "serve_records",
    "serve_rows",
    "serve_stored",
    "serve_uneven",
    "stamped",
    "store",
    "take_in",
]

ANYWHERE = "tcp://127.0.0.1:0"
TRIGGERS_KEPT = 3
"""For so many triggers a journal has room. Spark may ask again for the last two."""
LIST = 2500
"""Records in a list, where the source has lists."""
STAMP = struct.Struct(">Q")
"""The first bytes of a stamped record: when it was made, in microseconds since 1970."""
_PACE = 0.01
"""Seconds between the lists of a source that has its own pace."""


def serve_rows(line: Line, rows: int, rows_per_trigger: int) -> Facts:
    """Arrow batches, encoded as they come in, with room in memory for a few triggers."""
    return _serve_rows(line, MemoryJournal(*_room(rows_per_trigger)), rows)


def serve_on_disk(line: Line, rows: int, rows_per_trigger: int) -> Facts:
    """The same; each batch is on the disk before it is sent."""
    with tempfile.TemporaryDirectory() as folder:
        return _serve_rows(line, SqliteJournal(Path(folder) / "journal.db", *_room(rows_per_trigger)), rows)


def serve_records(line: Line, rows: int, rows_per_trigger: int) -> Facts:
    """Records of 100 bytes instead of rows: the columns are made by who reads them."""
    return _serve_lists(line, [RECORD] * LIST, rows, rows_per_trigger)


def serve_uneven(line: Line, rows: int, rows_per_trigger: int) -> Facts:
    """The same with records of 80 to 120 bytes: only values of one length become a column at once."""
    records = [(RECORD * 2)[: 80 + number % 41] for number in range(LIST)]
    return _serve_lists(line, records, rows, rows_per_trigger)


def serve_json(line: Line, rows: int, rows_per_trigger: int) -> Facts:
    """The rows as JSON objects, which differ in their numbers."""
    return _serve_lists(line, json_rows(LIST), rows, rows_per_trigger)


def _serve_lists(line: Line, records: list[bytes], rows: int, rows_per_trigger: int) -> Facts:
    source = Flux.from_iterable(repeat(records, -(-rows // LIST)))
    journal = MemoryJournal(*_room(rows_per_trigger))
    return _serve(line, Gateway(source, ANYWHERE, journal=journal, batched=True))


def serve_few(line: Line, records: int) -> Facts:
    """So many records of 100 bytes, all of them there from the beginning."""
    gateway = Gateway(Flux.from_iterable(repeat(RECORD, records)), ANYWHERE)
    return _serve(line, gateway, complete=True)


def serve_stored(line: Line, records: int, folder: str | None) -> Facts:
    """Records of 100 bytes, all of them there from the beginning: in memory, or on the disk."""
    bounds = (2 * records, 1 << 40)
    journal = (
        MemoryJournal(*bounds) if folder is None else SqliteJournal(Path(folder) / "records.db", *bounds)
    )
    source = Flux.from_iterable(repeat([RECORD] * LIST, -(-records // LIST)))
    return _serve(line, Gateway(source, ANYWHERE, journal=journal, batched=True), complete=True)


def serve_feed(line: Line, url: str, records_per_trigger: int) -> Facts:
    """What a feed has, with room in memory for a few triggers."""
    with feeds.open(url) as feed:
        return _serve(line, Gateway(feed, ANYWHERE, journal=MemoryJournal(*_room(records_per_trigger))))


def store(line: Line, path: str, rows: int) -> Facts:
    """Write Arrow batches to a journal, and say when all are there."""
    with Gateway(_rows(rows), ANYWHERE, journal=_on_disk(path), codec="arrow") as gateway:
        gateway.join()
        line.say(gateway.status()["head"])
        line.hear()
    return {}


def serve_a_journal(line: Line, path: str) -> Facts:
    """What :func:`store` has written."""
    return _serve(line, Gateway(None, ANYWHERE, journal=_on_disk(path), codec="arrow", writable=True))


def _on_disk(path: str) -> Journal:
    return SqliteJournal(path, max_records=100_000_000, max_bytes=1 << 40)


def serve_live(line: Line, records_per_second: int) -> Facts:
    """Stamped records at this rate, whoever reads them."""
    return _serve(line, Gateway(Flux.from_iterable(stamped(records_per_second)), ANYWHERE, batched=True))


def take_in(line: Line) -> Facts:
    """A gateway that Spark can write to."""
    return _serve(line, Gateway(None, ANYWHERE, writable=True))


def _serve(line: Line, gateway: Gateway, *, complete: bool = False) -> Facts:
    with gateway:
        if complete:
            gateway.join()
        line.say(gateway.endpoint)
        select([line], [], [])  # However long that takes: Spark starts slowly on a busy machine.
        line.hear()
    return {}


def _serve_rows(line: Line, journal: Journal, rows: int) -> Facts:
    return _serve(line, Gateway(_rows(rows), ANYWHERE, journal=journal, codec="arrow"))


def _rows(count: int) -> Flux[Any]:
    return Flux.from_iterable(repeat(arrow_rows(), -(-count // ROWS_A_BATCH)))


def _room(rows_per_trigger: int) -> tuple[int, int]:
    """The bounds of a journal, in records and in bytes."""
    rows = TRIGGERS_KEPT * rows_per_trigger
    return rows, 2 * rows * arrow_rows().nbytes // ROWS_A_BATCH


def stamped(records_per_second: int) -> Iterator[list[Record]]:
    """Lists of records at a steady pace; what came too late is made up for, as a clock would."""
    size = round(records_per_second * _PACE)
    due = time.monotonic()
    while True:
        stamp = time.time_ns() // 1000
        value = STAMP.pack(stamp) + RECORD[STAMP.size :]
        yield [Record(value, timestamp=stamp)] * size
        due += _PACE
        time.sleep(max(0.0, due - time.monotonic()))
