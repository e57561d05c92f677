"""Spans of records that went through a hop together: found by an offset, and linked to the intake."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
from penstock.observe import Hop, Observer, QueryBatch, Snapshot, Telemetry
from penstock.observe.batch_spans import BatchSpans
from penstock.streams import Flux

HERE = "tcp://127.0.0.1:5556"
START = 1_000_000.0
"""Seconds since 1970."""


class Rig:
    """A gateway with one reader, made of snapshots that a test writes down."""

    def __init__(self, period: float = 10.0, heads: dict[str, int] | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.spans = BatchSpans(provider.get_tracer("test"), period, heads)
        self.clock = 0.0
        self.spans._clock = 0.0

    def look(
        self,
        head: int | None,
        read: int | None = None,
        *,
        batches: tuple[QueryBatch, ...] = (),
        jump: float = 0.0,
        after: float = 1.0,
    ) -> None:
        """The next snapshot, a second later; ``read`` is how far the reader is."""
        self.clock += after
        hops = [Hop(id=f"{HERE}/log", kind="log", name="log", where=HERE, offset=head)]
        if read is not None:
            hops.append(Hop(id=f"{HERE}/cursor/a/b", kind="cursor", name="a/b", where=HERE, offset=read))
        if batches:
            hops.append(Hop(id="query", kind="query", name="rollup", where=HERE, upstream=(hops[-1].id,)))
        at = START + self.clock + jump
        self.spans.note(Snapshot(at=at, clock=self.clock, hops=tuple(hops), batches=batches))

    def ended(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def ranges(self, name: str) -> list[tuple[int, int]]:
        """The first and the last offset of the spans of a name."""
        return [_range(span.attributes) for span in self.ended(name)]


def _range(attributes: Any) -> tuple[int, int]:
    return attributes["penstock.offset.first"], attributes["penstock.offset.last"]


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return sorted(_range(link.attributes) for link in span.links)


def test_a_span_covers_the_records_of_some_seconds() -> None:
    rig = Rig(period=2.0)
    for head in (100, 150, 150, 200, 300, 300, 300, 300):
        rig.look(head)
    assert rig.ranges("penstock.intake") == [(100, 149), (150, 299)]
    first, second = rig.ended("penstock.intake")
    assert first.attributes is not None
    assert first.attributes["penstock.stream"] == HERE
    assert first.attributes["penstock.records"] == 50
    assert (first.start_time, first.end_time) == ((START + 1) * 1e9, (START + 2) * 1e9)
    assert (second.start_time, second.end_time) == ((START + 3) * 1e9, (START + 5) * 1e9)
    assert first.context is not None
    assert second.context is not None
    assert first.context.trace_id != second.context.trace_id


def test_a_reader_has_links_to_where_its_records_came_in() -> None:
    rig = Rig(period=1.0)
    for head, read in ((0, 0), (10, 0), (10, 0), (30, 0), (30, 0), (30, 5), (30, 5), (30, 30), (30, 30)):
        rig.look(head, read)
    first, second = rig.ended("penstock.read")
    assert rig.ranges("penstock.read") == [(0, 4), (5, 29)]
    assert linked(first) == [(0, 9)]
    assert linked(second) == [(0, 9), (10, 29)]
    assert first.attributes is not None
    assert first.attributes["penstock.subscriber"] == "a/b"
    ids = {span.context.span_id for span in rig.ended("penstock.intake") if span.context is not None}
    assert {link.context.span_id for link in second.links} == ids


def test_a_quick_reader_is_linked_to_an_intake_that_has_not_ended() -> None:
    rig = Rig(period=3.0)
    rig.look(0, 0)
    rig.look(10, 10)
    rig.look(10, 10, after=5.0)
    (read,), (intake,) = rig.ended("penstock.read"), rig.ended("penstock.intake")
    assert intake.context is not None
    assert [link.context.span_id for link in read.links] == [intake.context.span_id]


def batch(number: int, first: int | None, end: int | None, at: float = START) -> QueryBatch:
    phases = {"triggerExecution": 3.0, "addBatch": 1.5}
    return QueryBatch(
        query="query", number=number, at=at, seconds=2.0, phases=phases, rows_in=7, first=first, end=end
    )


def test_each_batch_of_spark_has_a_span_with_links() -> None:
    rig = Rig(period=1.0)
    old = batch(3, 0, 5)
    rig.look(0, 0, batches=(old,))
    rig.look(10, 0, batches=(old,))
    rig.look(10, 0, batches=(old,))
    rig.look(20, 10, batches=(old, batch(4, 0, 10)))
    rig.look(20, 20, batches=(old, batch(4, 0, 10), batch(5, 10, 20), batch(6, None, None)))
    found = {
        int(str(span.attributes["penstock.batch"])): span
        for span in rig.ended("penstock.batch")
        if span.attributes
    }
    assert sorted(found) == [4, 5, 6], "the first snapshot's may have spans of an earlier observer"
    assert _range(found[4].attributes) == (0, 9)
    assert linked(found[4]) == [(0, 9)]
    assert linked(found[5]) == [(10, 19)]
    assert not found[6].links
    assert found[4].attributes is not None
    assert found[4].attributes["penstock.query"] == "rollup"
    assert found[4].attributes["penstock.phase.addBatch"] == 1.5
    # The trigger waited for records for a second.
    assert (found[4].start_time, found[4].end_time) == ((START + 1) * 1e9, (START + 3) * 1e9)
    assert not rig.ended("penstock.read"), "the cursor of a query is read by its batches"


def test_a_query_that_begins_again_has_spans_for_its_batches() -> None:
    rig = Rig()
    rig.look(0, 0, batches=(batch(7, 0, 1),))
    rig.look(0, 0, batches=(batch(7, 0, 1), batch(0, 0, 1, at=START + 60)))
    (span,) = rig.ended("penstock.batch")
    assert span.attributes is not None
    assert span.attributes["penstock.batch"] == 0


def test_records_from_before_the_first_snapshot_count_if_the_head_is_known() -> None:
    rig = Rig(heads={HERE: 100})
    rig.look(120)
    rig.spans.close()
    assert rig.ranges("penstock.intake") == [(100, 119)]
    unknown = Rig()
    unknown.look(120)
    unknown.spans.close()
    assert unknown.ranges("penstock.intake") == []


def test_a_log_that_begins_anew_is_not_mixed_up_with_the_old_one() -> None:
    rig = Rig(period=1.0)
    for head, read in ((50, 50), (60, 50), (60, 50), (0, 0), (10, 0), (10, 0), (10, 10), (10, 10)):
        rig.look(head, read)
    assert rig.ranges("penstock.intake") == [(50, 59), (0, 9)]
    (after,) = rig.ended("penstock.read")
    assert _range(after.attributes) == (0, 9)
    assert linked(after) == [(0, 9)]


def test_a_gateway_that_does_not_answer_for_a_while_loses_no_records() -> None:
    rig = Rig()
    for head in (0, 10, None, None, 30):
        rig.look(head)
    rig.spans.close()
    assert rig.ranges("penstock.intake") == [(0, 9), (10, 29)]


def test_a_wall_clock_that_jumps_back_makes_no_span_that_ends_before_it_begins() -> None:
    rig = Rig(period=1.0)
    rig.look(0)
    rig.look(10, jump=-3600.0)
    rig.look(10, jump=-3600.0)
    (span,) = rig.ended("penstock.intake")
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time >= span.start_time


def test_closing_ends_what_is_open_once() -> None:
    rig = Rig()
    rig.look(0, 0)
    rig.look(10, 4)
    rig.spans.close()
    rig.spans.close()
    assert rig.ranges("penstock.intake") == [(0, 9)]
    assert rig.ranges("penstock.read") == [(0, 3)]


def test_links_are_bounded_and_the_newest() -> None:
    rig = Rig(period=0.5)
    rig.look(0, 0)
    for head in range(1, 301):
        rig.look(head, 0)
    rig.look(300, 300)
    rig.spans.close()
    (read,) = rig.ended("penstock.read")
    assert linked(read) == [(n, n) for n in range(200, 300)]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.floats(0.1, 5.0)), min_size=1, max_size=40),
    st.floats(0.1, 8.0),
)
def test_every_record_is_in_one_span_of_each_hop(steps: list[tuple[int, int, float]], period: float) -> None:
    rig = Rig(period=period)
    head = read = 0
    rig.look(head, read)
    for came, wanted, after in steps:
        head += came
        read = min(read + wanted, head)
        rig.look(head, read, after=after)
    rig.spans.close()
    for name, total in (("penstock.intake", head), ("penstock.read", read)):
        covered = [offset for first, last in rig.ranges(name) for offset in range(first, last + 1)]
        assert covered == list(range(total))
    for span in rig.ended("penstock.read"):
        first, last = _range(span.attributes)
        reached = {offset for start, end in linked(span) for offset in range(start, end + 1)}
        assert reached >= set(range(first, last + 1))


@pytest.fixture
def tracing() -> Iterator[tuple[TracerProvider, InMemorySpanExporter]]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter
    provider.shutdown()


def test_the_batch_of_a_record_is_found_by_its_offset(
    tracing: tuple[TracerProvider, InMemorySpanExporter],
) -> None:
    """A real gateway with a real reader: from an offset to the reader's span, and on to the intake."""
    provider, exporter = tracing
    numbers = Flux.range(5000).map(lambda n: b"%d" % n)
    with Gateway(numbers, "tcp://127.0.0.1:0", journal=MemoryJournal()) as gateway:
        here = gateway.endpoint
        telemetry = Telemetry(Observer(here).look, tracer_provider=provider, heads={here: 0})
        gateway.join(30)
        arrived: list[bytes] = []
        publisher = AquiferPublisher(here, id="reader", records=True)
        for record in publisher.flux():
            if not arrived:
                telemetry.look()
            arrived.append(record.value)
        while (
            telemetry.snapshot is not None and telemetry.snapshot.hop(f"{here}/cursor/reader").offset != 5000
        ):
            telemetry.look()  # Its last acknowledgement is on the way.
        telemetry.close()
    spans = exporter.get_finished_spans()
    offset = 4321

    def covering(name: str) -> list[ReadableSpan]:
        found = [span for span in spans if span.name == name]
        return [one for one in found if _range(one.attributes)[0] <= offset <= _range(one.attributes)[1]]

    assert len(arrived) == 5000
    (read,), (intake,) = covering("penstock.read"), covering("penstock.intake")
    assert intake.context is not None
    assert intake.context.span_id in {link.context.span_id for link in read.links}
    assert read.attributes is not None
    assert read.attributes["penstock.subscriber"] == "reader"


def test_a_hop_of_another_kind_has_no_span() -> None:
    rig = Rig()
    rig.look(0)
    hop = Hop(id="x", kind="producer", name="x", where=HERE, offset=3)
    snapshot = Snapshot(at=START, clock=50.0, hops=(hop,))
    rig.spans.note(snapshot)
    rig.spans.note(replace(snapshot, hops=(replace(hop, offset=9),), clock=99.0))
    rig.spans.close()
    assert not rig.exporter.get_finished_spans()
