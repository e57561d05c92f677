"""Batches that came together go to a reader on the same machine in one frame; what it reads is the same."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as some
import pytest
from hypothesis import given

from penstock.aquifer import (
    Batch,
    Gateway,
    Limits,
    LogReader,
    MemoryJournal,
    Record,
    SqliteJournal,
    Unreadable,
    unpack_metadata,
    values_of,
)
from penstock.aquifer.log import Log
from penstock.aquifer.log.excerpts import parts_of
from penstock.aquifer.records import RecordMetadata, pack_metadata, pack_values, unpack_values
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, eventually, read_range

LIST, LISTS, WIDTH = 2500, 24, 100
COUNT = LIST * LISTS
LARGEST = 1 << 20

KINDS = (
    RecordMetadata(1),
    RecordMetadata(2),
    RecordMetadata(1, None, [5]),
    RecordMetadata(1, [b"key"]),
)


def numbered(number: int, width: int = WIDTH) -> bytes:
    return number.to_bytes(4, "big") * (width // 4)


def lists() -> Iterator[list[Any]]:
    for start in range(0, COUNT, LIST):
        yield [numbered(number) for number in range(start, start + LIST)]


@pytest.fixture
def gateway(request: pytest.FixtureRequest) -> Iterator[Gateway]:
    limits = Limits(**getattr(request, "param", {}))
    with Gateway(
        Flux.from_iterable(lists()), ANYWHERE, journal=MemoryJournal(), batched=True, limits=limits
    ) as gateway:
        eventually(lambda: gateway.status().head == COUNT)
        yield gateway


def values_in(batches: list[Batch]) -> list[bytes]:
    assert all(one.end == other.first for one, other in pairwise(batches))
    return [value for batch in batches for value in values_of(batch)]


# -------------------------------------------------------------------- the log
@given(
    some.lists(some.tuples(some.integers(1, 20), some.integers(0, 40), some.sampled_from(KINDS)), min_size=1),
    some.integers(1, 60),
    some.integers(1, 2000),
)
def test_a_run_is_whole_batches_of_one_time_within_its_bounds(
    kinds: list[tuple[int, int, RecordMetadata]], records: int, nbytes: int
) -> None:
    batches, first = [], 0
    for count, width, kind in kinds:
        keys, times = (None if given is None else given * count for given in (kind.keys, kind.timestamps))
        metadata = pack_metadata(RecordMetadata(kind.timestamp, keys, times))
        batches.append(Batch(first, count, pack_values([bytes(width)] * count), metadata))
        first += count
    log = Log(MemoryJournal())
    log.append(batches)

    run = log.run_from(batches[0], records, nbytes)

    assert run == batches[: len(run)]
    if len(run) > 1:
        assert sum(batch.count for batch in run) <= records
        assert sum(batch.nbytes for batch in run) <= nbytes
        assert {batch.metadata for batch in run} == {pack_metadata(RecordMetadata(kinds[0][2].timestamp))}
        together = unpack_values(b"".join(parts_of(run)))
        assert together == [value for batch in run for value in unpack_values(batch.payload)]
    if len(run) < len(batches):
        following = batches[len(run)]
        fits = sum(batch.count for batch in [*run, following]) <= records
        fits = fits and sum(batch.nbytes for batch in [*run, following]) <= nbytes
        alike = following.metadata == run[0].metadata and b"key" not in bytes(following.metadata)
        assert not (fits and alike and unpack_metadata(following.metadata).timestamps is None)


# -------------------------------------------------------------------- on the same machine
@pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is Linux's")
def test_a_reader_on_the_same_machine_gets_several_batches_at_a_time(gateway: Gateway) -> None:
    batches = list(read_range(gateway.endpoint, start=0, stop=COUNT))

    assert values_in(batches) == [value for each in lists() for value in each]
    assert max(batch.count for batch in batches) > LIST
    assert max(batch.nbytes for batch in batches) <= LARGEST


@pytest.mark.parametrize("gateway", [{"shared_memory": 1}], indirect=True)
def test_without_shared_memory_nothing_is_put_together(gateway: Gateway) -> None:
    batches = list(read_range(gateway.endpoint, start=0, stop=COUNT))

    assert values_in(batches) == [value for each in lists() for value in each]
    assert max(batch.count for batch in batches) == LIST


@pytest.mark.parametrize("gateway", [{"shared_memory": 600_000}, {"shared_memory": 1_200_000}], indirect=True)
def test_what_does_not_fit_into_shared_memory_goes_through_the_socket(gateway: Gateway) -> None:
    held = list(read_range(gateway.endpoint, start=0, stop=COUNT))  # All of them, so nothing is freed.

    assert values_in(held) == [value for each in lists() for value in each]


@pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is Linux's")
@pytest.mark.parametrize("gateway", [{"shared_memory": 2_400_000}], indirect=True)
def test_no_frame_has_more_than_a_quarter_of_the_shared_memory(gateway: Gateway) -> None:
    batches = list(read_range(gateway.endpoint, start=0, stop=COUNT))

    assert values_in(batches) == [value for each in lists() for value in each]
    assert max(batch.count for batch in batches) == 2 * LIST
    assert max(batch.nbytes for batch in batches) <= 600_000


@pytest.mark.parametrize("window", [{"window": 6000}, {"window_bytes": 600_000}, {"window": 100}])
def test_no_frame_has_more_than_there_is_credit_for(gateway: Gateway, window: dict[str, int]) -> None:
    batches = list(read_range(gateway.endpoint, start=7, stop=COUNT - 7, **window))

    assert values_in(batches) == [value for each in lists() for value in each][7:-7]
    assert max(batch.count for batch in batches) <= window.get("window", COUNT)
    assert max(batch.nbytes for batch in batches) <= window.get("window_bytes", LARGEST)


def test_no_frame_has_more_than_an_eighth_of_the_log() -> None:
    journal = MemoryJournal(max_records=8 * LIST)
    with Gateway(Flux.from_iterable(lists()), ANYWHERE, journal=journal, batched=True) as gateway:
        batches = list(read_range(gateway.endpoint, start=0, stop=8 * LIST))

    assert max(batch.count for batch in batches) <= LIST


def test_keys_and_times_stay_with_their_records() -> None:
    def records() -> Iterator[list[Any]]:
        for number, plain in enumerate(lists()):
            times = range(number * LIST, (number + 1) * LIST)
            yield (
                plain
                if number % 3
                else [Record(v, key=v[:4], timestamp=t) for v, t in zip(plain, times, strict=True)]
            )

    with Gateway(Flux.from_iterable(records()), ANYWHERE, journal=MemoryJournal(), batched=True) as gateway:
        eventually(lambda: gateway.status().head == COUNT)
        batches = list(read_range(gateway.endpoint, start=0, stop=COUNT))

    assert values_in(batches) == [value for each in lists() for value in each]
    for batch in batches:
        metadata = unpack_metadata(batch.metadata)
        with_key = [number for number in range(batch.first, batch.end) if number // LIST % 3 == 0]
        assert metadata.keys is None or len(with_key) == batch.count
        if metadata.keys is not None:
            assert metadata.keys == [numbered(number)[:4] for number in with_key]
            assert metadata.timestamps == with_key
        else:
            assert not with_key


# -------------------------------------------------------------------- what cannot be read
@pytest.mark.parametrize("width", [20, 2000], ids=["small batches", "large batches"])
def test_the_records_before_damage_are_sent(tmp_path: Path, width: int) -> None:
    path = tmp_path / "log.db"
    log, notes = Log(SqliteJournal(path)), pack_metadata(RecordMetadata(1))
    log.use_codec("bytes")
    log.append([Batch(first, 10, pack_values([bytes(width)] * 10), notes) for first in range(0, 60, 10)])
    log.close()
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("update batches set crc = crc + 1 where first = 40")

    read: list[Batch] = []
    with (
        Gateway(Flux.from_iterable([]), ANYWHERE, journal=SqliteJournal(path)) as gateway,
        LogReader(gateway.endpoint) as reader,
        pytest.raises(Unreadable, match="the batch at 40"),
    ):
        read.extend(reader.read(0, 60))

    assert values_in(read) == [bytes(width)] * 40
