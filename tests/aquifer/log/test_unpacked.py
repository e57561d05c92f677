"""Batches that several sessions search: each is unpacked once, and those used last are kept."""

from __future__ import annotations

import pytest

from penstock.aquifer.log import Log, MemoryJournal, unpacked
from penstock.aquifer.log.unpacked import UnpackedBatches
from penstock.aquifer.protocol.key_filter import KeyFilter
from penstock.aquifer.records import MSGPACK, Batch, Partition, by_partition, partition_of, unpack_values
from tests.aquifer.protocol.simulated_gateway import batch_of, key_at, offset_in

PARTITIONS = 4
KEYS = 30


@pytest.fixture
def log() -> Log:
    log = Log(MemoryJournal())
    for _ in range(5):
        log.append([batch_of(log.head, 200, 10, KEYS)])
    return log


def test_a_batch_is_looked_at_once_for_all_partitions_of_a_group(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided: list[int] = []
    decoded: list[int] = []

    def divide(keys: list[bytes | None], first: int, count: int, partitions: int) -> list[list[int]]:
        divided.append(first)
        return by_partition(keys, first, count, partitions)

    def decode(payload: bytes) -> list[bytes]:
        decoded.append(len(payload))
        return unpack_values(payload)

    monkeypatch.setattr(unpacked, "by_partition", divide)
    monkeypatch.setattr(unpacked, "unpack_values", decode)
    filters = [KeyFilter(log, Partition("g", number, PARTITIONS), MSGPACK, 0) for number in range(PARTITIONS)]
    for number, chooser in enumerate(filters):
        batch = chooser.next_batch(0, log.head, 10_000, 1 << 20)
        assert batch is not None
        assert list(map(offset_in, unpack_values(batch.payload))) == [
            offset
            for offset in range(log.head)
            if partition_of(key_at(offset, KEYS), offset, PARTITIONS) == number
        ]
    assert divided == [0, 200, 400, 600, 800]
    assert len(decoded) == 5


def test_two_groups_with_different_numbers_of_partitions_share_a_batch(log: Log) -> None:
    found = log.find(0)
    assert found is not None
    batch = log.unpacked(found)
    for partitions in (1, 2, 3):
        divided = [batch.in_partition(number, partitions) for number in range(partitions)]
        assert divided == by_partition(batch.metadata.keys, 0, 200, partitions)
    assert log.unpacked(found) is batch


def test_those_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch_of(100 * number, 100, 10, KEYS) for number in range(4)]
    size = batches[0].nbytes + 150 * 100
    monkeypatch.setattr(unpacked, "_MOST_BYTES", 2 * size + size // 2)
    kept = UnpackedBatches()
    first, second = kept.of(batches[0]), kept.of(batches[1])
    assert kept.of(batches[0]) is first
    kept.of(batches[2])
    assert kept.of(batches[0]) is first, "it was used after the second one"
    assert kept.of(batches[1]) is not second
    monkeypatch.setattr(unpacked, "_MOST_BYTES", 1)
    alone = kept.of(batches[3])
    assert kept.of(batches[3]) is alone, "one alone may have more"


def test_batches_of_the_same_offset_and_other_ends_are_not_mixed_up() -> None:
    kept = UnpackedBatches()
    short, long = batch_of(0, 3, 10, KEYS), batch_of(0, 7, 10, KEYS)
    assert len(kept.of(short).values(short)) == 3
    assert len(kept.of(long).values(long)) == 7


def test_what_was_expanded_for_it_is_not_kept_twice() -> None:
    stored = batch_of(0, 3, 10, KEYS)
    expanded = Batch(0, 3, stored.payload, stored.metadata)
    batch = UnpackedBatches().of(stored)
    assert batch.values(expanded) == batch.values(stored)
    assert batch.values(expanded) is not batch.values(expanded)
    assert batch.values(stored) is batch.values(stored)
