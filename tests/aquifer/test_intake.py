"""The door of a gateway: elements that come one by one wait for the writer, in order and within bounds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.aquifer import Gateway, MemoryJournal, Record
from penstock.aquifer.gateway import writer
from penstock.aquifer.gateway.intake import Intake
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log
from penstock.aquifer.records.batch import unpack_values
from penstock.aquifer.records.codecs import codec_named
from penstock.aquifer.records.packer import Packer
from penstock.delivery import BadRecord
from penstock.spec import UNBOUNDED
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, eventually

PATIENCE = 30


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_what_is_taken_while_more_comes_is_all_of_it_in_order() -> None:
    count = 60_000
    intake = Intake(Log(MemoryJournal()), 1 << 20)
    intake.subscribe_to(Flux.from_iterable(iter(range(count))))
    intake.set_demand(count)
    intake.start()
    taken: list[int] = []
    seen = [0]
    while len(taken) < count:
        taken += intake.take(100)
        seen.append(intake.arrived)
    assert taken == list(range(count))
    assert intake.arrived == count
    assert all(before <= after for before, after in pairwise(seen))
    # A source that emits inside request() was never taken for one that cannot be slowed down.
    assert intake._portion != UNBOUNDED
    intake.cancel()


@pytest.mark.usefixtures("hasty_threads")
def test_elements_that_another_thread_sends_are_counted_as_they_are_taken() -> None:
    count = 30_000
    intake = Intake(Log(MemoryJournal()), 1 << 20)

    def send() -> None:
        for number in range(count):
            intake.on_next(number)

    thread = threading.Thread(target=send)
    thread.start()
    taken: list[int] = []
    while len(taken) < count:
        some = intake.take(64)
        assert len(some) <= 64
        taken += some
        assert len(taken) <= intake.arrived <= count
    thread.join(PATIENCE)
    assert taken == list(range(count))
    assert intake.waiting == 0


@pytest.mark.parametrize("before", [1, 3, 700])
def test_a_record_is_written_while_its_source_waits_for_the_next(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The writer looks again after this time, which would hide that nobody woke it.
    monkeypatch.setattr(writer, "_IDLE", 10 * PATIENCE)
    going_on = threading.Event()

    def lines() -> Iterator[bytes]:
        for number in range(before):
            yield b"%d" % number
        assert going_on.wait(PATIENCE)
        yield b"last"

    journal = MemoryJournal()
    with Gateway(Flux.from_iterable(lines()), ANYWHERE, journal=journal):
        eventually(lambda: journal.head == before)
        going_on.set()
        eventually(lambda: journal.head == before + 1)


def _packer(codec: str = "bytes", *, batched: bool = False) -> Packer:
    return Packer(codec_named(codec), Limits(), batched=batched)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.builds(Record, st.binary(max_size=20)),
            st.binary(max_size=20).map(bytearray),
        ),
        max_size=30,
    )
)
def test_values_are_packed_whatever_their_types_are(elements: list[Any]) -> None:
    batches, taken, error = _packer().pack(elements, 7)
    assert (taken, error) == (len(elements), None)
    values = [bytes(each.value if isinstance(each, Record) else each) for each in elements]
    assert [value for batch in batches for value in unpack_values(batch.payload)] == values
    assert [batch.first for batch in batches] == ([7] if elements else [])


@pytest.mark.parametrize("codec", ["bytes", "text", "json", "msgpack", "arrow"])
def test_what_a_source_calls_bad_is_never_packed(codec: str) -> None:
    batches, taken, error = _packer(codec).pack([BadRecord(b"?", "no number")], 0)
    assert (batches, taken) == ([], 0)
    assert str(error) == "no number"


def test_a_list_with_a_bad_record_is_packed_up_to_it() -> None:
    lists = [["a", "b"], ["c", BadRecord(b"?", "no number"), "d"]]
    batches, _, error = _packer("json", batched=True).pack(lists, 0)
    assert [value for batch in batches for value in unpack_values(batch.payload)] == [b'"a"', b'"b"', b'"c"']
    assert str(error) == "no number"


def test_small_records_are_in_few_batches_from_the_second_group_on() -> None:
    packer = Packer(codec_named("bytes"), Limits(max_frame=1000))
    packer.pack([b"x" * 8] * 90, 0)
    batches, _, _ = packer.pack([b"x" * 8] * 200, 90)
    assert len(batches) <= 3


@given(
    sizes=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5000)), min_size=1, max_size=8),
    batched=st.booleans(),
)
def test_no_batch_is_larger_than_twice_a_frame_unless_it_is_one_record(
    sizes: list[tuple[int, int]], batched: bool
) -> None:
    packer = Packer(codec_named("bytes"), Limits(max_frame=1000), batched=batched)
    first, packed = 0, []
    for count, size in sizes:
        values = [b"x" * size] * count
        batches, _, error = packer.pack([values] if batched else values, first)
        assert error is None
        for batch in batches:
            assert batch.first == first
            assert batch.count == 1 or len(batch.payload) <= 2000
            first = batch.end
            packed += unpack_values(batch.payload)
    assert packed == [b"x" * size for count, size in sizes for _ in range(count)]
