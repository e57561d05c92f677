"""Records from outside that a gateway does not take: what makes no sense, and what there is no room for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import (
    Commit,
    Complete,
    CompleteFields,
    Next,
    NextFields,
    OnError,
    OnErrorFields,
    OnNext,
    Put,
    encode,
)
from penstock.aquifer.records.arrow import to_arrow_stream
from penstock.aquifer.records.batch import RecordMetadata, pack_metadata, pack_values
from tests.aquifer.protocol.front_table import FrontTable
from tests.aquifer.protocol.writable_table import METADATA, WritableTable, code


@pytest.fixture
def table() -> WritableTable:
    return WritableTable()


# ---------------------------------------------------------------- what can go wrong
@pytest.mark.parametrize("seqs", [[], [0], [1, 2], [0, 2]])
def test_missing_pieces_are_told_and_the_batch_can_be_staged_again(
    table: WritableTable, seqs: list[int]
) -> None:
    for seq in seqs:
        table.put(b"a", seq=seq)
    (answer,) = table.commit(0, (0, 0, 2))
    assert code(answer) == "STAGED"
    assert "run the batch again" in answer.message  # type: ignore[union-attr]

    for seq in range(2):
        table.put(b"a", seq=seq)
    table.commit(0, (0, 0, 2))
    table.write()

    assert table.written == [b"a", b"a"]


def test_a_batch_that_follows_one_that_the_log_lacks_is_refused(table: WritableTable) -> None:
    table.put(b"a", batch=7)
    (unknown,) = table.commit(7, (0, 0, 1), follows=6)
    assert code(unknown) == "MISSING"
    assert "the log has no batch of 'q', and 6 should be there: the gateway has another" in str(unknown)

    for batch in (4, 7):
        table.put(b"%d" % batch, batch=batch)
    table.commit(4, (0, 0, 1), follows=-1)
    table.write()
    (older,) = table.commit(7, (0, 0, 1), follows=6)
    assert code(older) == "MISSING"
    assert "the last batch of 'q' in the log is 4, and 6 should be there" in str(older)
    assert isinstance(older, OnError)
    assert isinstance(older.x, OnErrorFields)
    assert older.x.published == 4

    # What is staged is still there, for a writer that accepts the gap.
    table.commit(7, (0, 0, 1), follows=-1)
    table.write()
    assert table.written == [b"4", b"7"]
    assert table.marks == {"delivered:q": "7 -"}


@pytest.mark.parametrize("follows", [-2, 7, 8])
def test_a_batch_follows_an_earlier_one(table: WritableTable, follows: int) -> None:
    (answer,) = table.commit(7, follows=follows)
    assert code(answer) == "BAD"
    assert "the number of an earlier batch, or -1" in str(answer)


def test_a_failure_of_the_journal_is_told_to_all_who_wait(table: WritableTable) -> None:
    table.put(b"a")
    table.commit(0, (0, 0, 1), peer=b"one")
    table.commit(0, (0, 0, 1), peer=b"two")
    table.submitted[0].failure = "the disk is gone"

    assert [code(answer) for answer in table.pass_time(0.02)] == ["JOURNAL", "JOURNAL"]
    assert table.marks == {}


def test_a_gateway_that_is_not_writable_says_so() -> None:
    table = FrontTable()
    body = encode(Next(1, x=NextFields(put=Put(query="q", batch=0, part=0, attempt=0, seq=0))))
    (put,) = table.table.receive([b"peer", b"", body, pack_values([b"a"]), METADATA], table.now)
    commit = table.ask(Complete(x=CompleteFields(commit=Commit(query="q", batch=0, parts=[]))))

    for answer in (put.message, commit):
        assert code(answer) == "BAD"
        assert "writable=True" in answer.message  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("count", "attached"),
    [
        (1, []),
        (1, [pack_values([b"a"])]),
        (1, [pack_values([b"a"]), METADATA, b"more"]),
        (0, [pack_values([]), METADATA]),
        (-1, [pack_values([b"a"]), METADATA]),
        (2, [pack_values([b"a"]), METADATA]),
        (10**30, [pack_values([b"a"]), METADATA]),
        (1, [b"\x91\xa1a", METADATA]),
        (1, [b"", METADATA]),
        (1, [b"\xc1", METADATA]),
        (1, [pack_values([b"a"]), b""]),
        (1, [pack_values([b"a"]), b"\xc0"]),
        (1, [pack_values([b"a"]), pack_metadata(RecordMetadata(1, [b"k", b"k"]))]),
        (1, [pack_values([b"a"]), pack_metadata(RecordMetadata(1, None, []))]),
        (1, [pack_values([b"a"]), pack_metadata(RecordMetadata(2**64 - 1))]),
    ],
)
def test_records_that_would_fail_their_readers_are_refused(
    table: WritableTable, count: int, attached: list[bytes]
) -> None:
    assert code(table.put_raw(count, *attached)) == "BAD"
    assert table.table.transactions.nbytes == 0


def test_a_payload_that_is_packed_in_an_unusual_way_becomes_one_of_the_usual(table: WritableTable) -> None:
    unusual = b"\xdd\x00\x00\x00\x01" + b"\xc6\x00\x00\x00\x01a"
    table.put_raw(1, unusual, METADATA)
    table.commit(0, (0, 0, 1))

    assert table.submitted[0].batches[0].payload == pack_values([b"a"])


@pytest.mark.parametrize(
    "payload", [b"", b"no stream", to_arrow_stream(pa.record_batch({"n": [1, 2]}))[:-20]]
)
def test_arrow_that_is_none_is_refused(table: WritableTable, payload: bytes) -> None:
    assert code(table.put_raw(1, payload, METADATA, fmt="arrow")) == "BAD"


@pytest.mark.parametrize(
    "where",
    [
        {"fmt": "xml"},
        {"query": ""},
        {"query": "q" * 257},
        {"batch": -1},
        {"batch": 2**63},
        {"part": -1},
        {"attempt": -1},
        {"seq": -1},
    ],
)
def test_a_place_that_makes_no_sense_is_refused(table: WritableTable, where: dict[str, Any]) -> None:
    assert code(table.put(b"a", **where)) == "BAD"


def test_a_commit_that_makes_no_sense_is_refused(table: WritableTable) -> None:
    table.put(b"a")
    for answer in (
        *table.commit(-1),
        *table.commit(0, query=""),
        *table.commit(0, (0, 0, 1), (0, 0, 1)),
        *table.commit(0, (0, 0, 1), (0, 1, 0)),
        *table.commit(0, (0, 0, -1)),
    ):
        assert code(answer) == "BAD"
    assert table.submitted == []


# ---------------------------------------------------------------- room
def small_desk(pieces: int) -> tuple[WritableTable, bytes]:
    """A session table with room for so many pieces of the value that comes with it."""
    value = b"v" * 10_000
    return WritableTable(limits=Limits(staged_bytes=int((pieces + 0.5) * 10_600))), value


def test_too_much_is_refused_and_what_was_staged_stays() -> None:
    table, value = small_desk(2)
    table.put(value, seq=0)
    table.put(value, seq=1)

    full = table.put(value, seq=2)

    assert code(full) == "FULL"
    assert "maxRecordsPerTrigger" in full.message  # type: ignore[union-attr]
    assert table.put(value, seq=1) == OnNext(1), "it replaces what is there, and needs no room"
    table.commit(0, (0, 0, 2))
    table.write()
    assert table.put(value, batch=1) == OnNext(1), "what was published needs no room any more"


def test_what_nobody_came_back_for_makes_room() -> None:
    table, value = small_desk(2)
    table.put(value, query="gone", seq=0)
    table.put(value, query="gone", seq=1)
    table.pass_time(3601)

    assert table.put(value) == OnNext(1)
    (answer,) = table.commit(0, (0, 0, 2), query="gone")
    assert code(answer) == "STAGED"


def test_a_batch_that_is_run_again_takes_the_room_of_the_run_before() -> None:
    table, value = small_desk(4)
    for run in range(5):
        table.pass_time(1)
        for part in range(2):
            for seq in range(2):
                assert table.put(value, part=part, attempt=run, seq=seq) == OnNext(1)

    table.commit(0, (0, 4, 2), (1, 4, 2))
    table.write()

    assert len(table.written) == 4


def test_a_rival_that_is_still_at_work_keeps_its_room() -> None:
    table, value = small_desk(3)
    table.put(value, attempt=1, seq=0)
    table.pass_time(1)
    table.put(value, attempt=2, seq=0)
    table.pass_time(1)
    table.put(value, attempt=1, seq=1)

    assert code(table.put(value, attempt=2, seq=1)) == "FULL"
    assert table.commit(0, (0, 1, 2)) == []


def test_pieces_without_bytes_are_not_free() -> None:
    table = WritableTable(limits=Limits(staged_bytes=10_000))
    answers = [table.put(b"", seq=seq) for seq in range(100)]

    assert code(answers[-1]) == "FULL"
