"""Random orders of everything that can be done with a journal, against a plain list."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.aquifer.log import Cursor, Held, Journal, segments
from penstock.aquifer.records.batch import Batch
from tests.aquifer.log.making import batches_from, open_journal
from tests.kafka.broker import KafkaBroker

MAX_RECORDS, MAX_BYTES = 40, 600
NAMES = st.sampled_from(["ann", "bob"])


def total(batches: list[Batch]) -> Held:
    return Held(sum(batch.count for batch in batches), sum(batch.nbytes for batch in batches))


class JournalMachine(RuleBasedStateMachine):
    """The model: the batches that should be there, the head, the cursors and the marks."""

    kind: str
    broker: KafkaBroker

    def __init__(self) -> None:
        super().__init__()
        self.cleanup = contextlib.ExitStack()
        self.folder = Path(self.cleanup.enter_context(tempfile.TemporaryDirectory()))
        self.topic = f"log-{secrets.token_hex(4)}"
        self.batches: list[Batch] = []
        self.head = 0
        self.cursors: dict[str, Cursor] = {}
        self.marks: dict[str, str] = {}

    def teardown(self) -> None:
        self.journal.close()
        self.cleanup.close()

    def open(self, cache_bytes: int) -> Journal:
        cache: dict[str, Any] = {"cache_bytes": cache_bytes} if self.kind != "memory" else {}
        where = self.broker if self.kind == "kafka" else self.folder
        return open_journal(
            self.kind, where, topic=self.topic, max_records=MAX_RECORDS, max_bytes=MAX_BYTES, **cache
        )

    def append_batches(self, new: list[Batch], marks: dict[str, str]) -> None:
        self.journal.append(new, marks)

    @initialize(cache_bytes=st.sampled_from([1, 200, 10_000]))
    def begin(self, cache_bytes: int) -> None:
        self.journal = self.open(cache_bytes)
        self.epoch = self.journal.epoch

    @rule(
        counts=st.lists(st.integers(1, 8), max_size=3),
        width=st.integers(1, 60),
        marks=st.dictionaries(NAMES, st.text("xyz", max_size=3), max_size=2),
    )
    def append(self, counts: list[int], width: int, marks: dict[str, str]) -> None:
        new = batches_from(self.head, counts, width=width)
        self.append_batches(new, marks)
        self.batches += new
        self.head += sum(counts)
        self.marks |= marks

    @rule(records=st.integers(0, 50), nbytes=st.integers(0, 700), low_watermark=st.integers(-5, 60))
    def make_space(self, records: int, nbytes: int, low_watermark: int) -> None:
        low_watermark += self.journal.first
        left = list(self.batches)
        fits = True
        while left and (
            total(left).records + records > MAX_RECORDS or total(left).nbytes + nbytes > MAX_BYTES
        ):
            fits = fits and left[0].end <= low_watermark
            del left[0]

        assert self.journal.make_space(records, nbytes, low_watermark) is fits

        if fits:
            self.batches = left

    @rule(offset=st.integers(-5, 60))
    def find(self, offset: int) -> None:
        offset += self.journal.first
        expected = [batch for batch in self.batches if batch.first <= offset < batch.end]
        assert self.journal.find(offset) == (expected[0] if expected else None)

    @rule(low_watermark=st.integers(-5, 60))
    def held_from(self, low_watermark: int) -> None:
        low_watermark += self.journal.first
        assert self.journal.held_from(low_watermark) == total(
            [batch for batch in self.batches if batch.end > low_watermark]
        )

    @rule(name=NAMES, cursor=st.none() | st.builds(Cursor, st.integers(0, 9), st.just(5), st.floats(0, 9)))
    def save_cursor(self, name: str, cursor: Cursor | None) -> None:
        self.journal.save_cursor(name, cursor)
        self.cursors.pop(name, None)
        if cursor is not None:
            self.cursors[name] = cursor

    @rule()
    def flush(self) -> None:
        self.journal.flush()

    @precondition(lambda self: self.kind != "memory")
    @rule(cache_bytes=st.sampled_from([1, 200, 10_000]))
    def reopen(self, cache_bytes: int) -> None:
        self.journal.close()
        self.journal = self.open(cache_bytes)

    @invariant()
    def both_agree(self) -> None:
        if not hasattr(self, "journal"):
            return
        assert self.journal.epoch == self.epoch
        assert self.journal.head == self.head
        assert self.journal.first == (self.batches[0].first if self.batches else self.head)
        assert self.journal.held == total(self.batches)
        assert self.journal.cursors == self.cursors
        assert self.journal.marks == self.marks


class SegmentsMachine(JournalMachine):
    """Every other group or so is in a segment file."""

    kind = "sqlite"

    def open(self, cache_bytes: int) -> Journal:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(segments, "SEGMENT_BYTES", 300)
            return super().open(cache_bytes)

    def append_batches(self, new: list[Batch], marks: dict[str, str]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(segments, "INLINE_BYTES", 80)
            super().append_batches(new, marks)


class MemoryMachine(JournalMachine):
    kind = "memory"


class SqliteMachine(JournalMachine):
    kind = "sqlite"


TestMemoryJournal = MemoryMachine.TestCase
TestMemoryJournal.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSqliteJournal = SqliteMachine.TestCase
TestSqliteJournal.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestSegments = SegmentsMachine.TestCase
TestSegments.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


@pytest.mark.slow
def test_the_journal_in_kafka_does_what_the_model_does(kafka: KafkaBroker) -> None:
    machine = type("KafkaMachine", (JournalMachine,), {"kind": "kafka", "broker": kafka})
    few = settings(max_examples=4, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(machine, settings=few)  # type: ignore[no-untyped-call]
