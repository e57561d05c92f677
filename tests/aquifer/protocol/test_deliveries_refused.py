"""Records from outside that a gateway does not take: what makes no sense, and what there is no room for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.aquifer.arrow import stream
from penstock.aquifer.batches import Notes, pack_notes, pack_values
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import (
    Commit,
    Complete,
    CompleteTerms,
    Grant,
    Next,
    OnNext,
    Put,
    encode,
)
from tests.aquifer.protocol.at_the_desk import FrontDesk
from tests.aquifer.protocol.desk_with_a_writer import NOTES, DeskWithAWriter, code


@pytest.fixture
def desk() -> DeskWithAWriter:
    return DeskWithAWriter()


# ---------------------------------------------------------------- what can go wrong
@pytest.mark.parametrize("seqs", [[], [0], [1, 2], [0, 2]])
def test_missing_pieces_are_told_and_the_batch_can_be_staged_again(
    desk: DeskWithAWriter, seqs: list[int]
) -> None:
    for seq in seqs:
        desk.put(b"a", seq=seq)
    (answer,) = desk.commit(0, (0, 0, 2))
    assert code(answer) == "STAGED"
    assert "run the batch again" in answer.message  # type: ignore[union-attr]

    for seq in range(2):
        desk.put(b"a", seq=seq)
    desk.commit(0, (0, 0, 2))
    desk.write()

    assert desk.written == [b"a", b"a"]


def test_a_failure_of_the_journal_is_told_to_all_who_wait(desk: DeskWithAWriter) -> None:
    desk.put(b"a")
    desk.commit(0, (0, 0, 1), peer=b"one")
    desk.commit(0, (0, 0, 1), peer=b"two")
    desk.submitted[0].failure = "the disk is gone"

    assert [code(answer) for answer in desk.pass_time(0.02)] == ["JOURNAL", "JOURNAL"]
    assert desk.marks == {}


def test_a_gateway_that_is_not_writable_says_so() -> None:
    desk = FrontDesk()
    body = encode(Next(1, x=Grant(put=Put(query="q", batch=0, part=0, attempt=0, seq=0))))
    (put,) = desk.desk.receive([b"peer", b"", body, pack_values([b"a"]), NOTES], desk.now)
    commit = desk.ask(Complete(x=CompleteTerms(commit=Commit(query="q", batch=0, parts=[]))))

    for answer in (put.message, commit):
        assert code(answer) == "BAD"
        assert "writable=True" in answer.message  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("count", "attached"),
    [
        (1, []),
        (1, [pack_values([b"a"])]),
        (1, [pack_values([b"a"]), NOTES, b"more"]),
        (0, [pack_values([]), NOTES]),
        (-1, [pack_values([b"a"]), NOTES]),
        (2, [pack_values([b"a"]), NOTES]),
        (10**30, [pack_values([b"a"]), NOTES]),
        (1, [b"\x91\xa1a", NOTES]),
        (1, [b"", NOTES]),
        (1, [b"\xc1", NOTES]),
        (1, [pack_values([b"a"]), b""]),
        (1, [pack_values([b"a"]), b"\xc0"]),
        (1, [pack_values([b"a"]), pack_notes(Notes(1, [b"k", b"k"]))]),
        (1, [pack_values([b"a"]), pack_notes(Notes(1, None, []))]),
        (1, [pack_values([b"a"]), pack_notes(Notes(2**64 - 1))]),
    ],
)
def test_records_that_would_fail_their_readers_are_refused(
    desk: DeskWithAWriter, count: int, attached: list[bytes]
) -> None:
    assert code(desk.put_raw(count, *attached)) == "BAD"
    assert desk.desk.deliveries.nbytes == 0


def test_a_payload_that_is_packed_in_an_unusual_way_becomes_one_of_the_usual(desk: DeskWithAWriter) -> None:
    unusual = b"\xdd\x00\x00\x00\x01" + b"\xc6\x00\x00\x00\x01a"
    desk.put_raw(1, unusual, NOTES)
    desk.commit(0, (0, 0, 1))

    assert desk.submitted[0].batches[0].payload == pack_values([b"a"])


@pytest.mark.parametrize("payload", [b"", b"no stream", stream(pa.record_batch({"n": [1, 2]}))[:-20]])
def test_arrow_that_is_none_is_refused(desk: DeskWithAWriter, payload: bytes) -> None:
    assert code(desk.put_raw(1, payload, NOTES, fmt="arrow")) == "BAD"


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
def test_a_place_that_makes_no_sense_is_refused(desk: DeskWithAWriter, where: dict[str, Any]) -> None:
    assert code(desk.put(b"a", **where)) == "BAD"


def test_a_commit_that_makes_no_sense_is_refused(desk: DeskWithAWriter) -> None:
    desk.put(b"a")
    for answer in (
        *desk.commit(-1),
        *desk.commit(0, query=""),
        *desk.commit(0, (0, 0, 1), (0, 0, 1)),
        *desk.commit(0, (0, 0, 1), (0, 1, 0)),
        *desk.commit(0, (0, 0, -1)),
    ):
        assert code(answer) == "BAD"
    assert desk.submitted == []


# ---------------------------------------------------------------- room
def small_desk(pieces: int) -> tuple[DeskWithAWriter, bytes]:
    """A desk with room for so many pieces of the value that comes with it."""
    value = b"v" * 10_000
    return DeskWithAWriter(limits=Limits(staged_bytes=int((pieces + 0.5) * 10_600))), value


def test_too_much_is_refused_and_what_was_staged_stays() -> None:
    desk, value = small_desk(2)
    desk.put(value, seq=0)
    desk.put(value, seq=1)

    full = desk.put(value, seq=2)

    assert code(full) == "FULL"
    assert "maxRecordsPerTrigger" in full.message  # type: ignore[union-attr]
    assert desk.put(value, seq=1) == OnNext(1), "it replaces what is there, and needs no room"
    desk.commit(0, (0, 0, 2))
    desk.write()
    assert desk.put(value, batch=1) == OnNext(1), "what was published needs no room any more"


def test_what_nobody_came_back_for_makes_room() -> None:
    desk, value = small_desk(2)
    desk.put(value, query="gone", seq=0)
    desk.put(value, query="gone", seq=1)
    desk.pass_time(3601)

    assert desk.put(value) == OnNext(1)
    (answer,) = desk.commit(0, (0, 0, 2), query="gone")
    assert code(answer) == "STAGED"


def test_a_batch_that_is_run_again_takes_the_room_of_the_run_before() -> None:
    desk, value = small_desk(4)
    for run in range(5):
        desk.pass_time(1)
        for part in range(2):
            for seq in range(2):
                assert desk.put(value, part=part, attempt=run, seq=seq) == OnNext(1)

    desk.commit(0, (0, 4, 2), (1, 4, 2))
    desk.write()

    assert len(desk.written) == 4


def test_a_rival_that_is_still_at_work_keeps_its_room() -> None:
    desk, value = small_desk(3)
    desk.put(value, attempt=1, seq=0)
    desk.pass_time(1)
    desk.put(value, attempt=2, seq=0)
    desk.pass_time(1)
    desk.put(value, attempt=1, seq=1)

    assert code(desk.put(value, attempt=2, seq=1)) == "FULL"
    assert desk.commit(0, (0, 1, 2)) == []


def test_pieces_without_bytes_are_not_free() -> None:
    desk = DeskWithAWriter(limits=Limits(staged_bytes=10_000))
    answers = [desk.put(b"", seq=seq) for seq in range(100)]

    assert code(answers[-1]) == "FULL"
