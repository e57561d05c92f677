"""Spans for records that went through a hop together, with links back to where these records came in.

A record has no trace of its own: it is found by its stream and its offset. Each span has the offsets of its
records, and a span of a reader or of a Spark batch has links to the spans of the intake that cover the same
offsets. Nothing is done for a single record: the spans are made of snapshots.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.observe.model import Hop, QueryBatch, Snapshot

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = ["BatchSpans"]

_MOST_INTAKES: Final = 1000
"""Spans of an intake that a later span can have a link to, for each stream."""
_MOST_LINKS: Final = 100
"""Links of one span, the newest ones. OpenTelemetry keeps 128 by default."""
_MOST_ABSENT: Final = 10_000
"""Hops that are not there at the moment, and whose offset is remembered."""


@dataclass(slots=True)
class _Passage:
    """Records that went through a hop in a row, with their span."""

    span: Span
    stream: str
    first: int
    end: int
    began: float
    """On the observer's monotonic clock."""
    began_at: float
    at: float
    """When ``end`` was seen first, in seconds since 1970; that clock may jump."""


class BatchSpans:
    """Makes spans of one snapshot after the other. One thread uses it.

    A log has a span ``penstock.intake`` for all records that came into it within ``period`` seconds, a reader
    a span ``penstock.read`` for those that it acknowledged, and a Spark query a span ``penstock.batch`` for
    each batch. ``heads`` are the heads of logs before the first snapshot, by endpoint, where they are known.
    """

    def __init__(self, tracer: Tracer, period: float, heads: Mapping[str, int] | None = None) -> None:
        self._tracer = tracer
        self._period = period
        self._offsets = {f"{endpoint}/log": head for endpoint, head in (heads or {}).items()}
        self._open: dict[str, _Passage] = {}
        self._intakes: dict[str, deque[_Passage]] = {}
        """The passages of each stream's log, the newest last; that of the moment is among them."""
        self._batches: set[tuple[str, int, float]] | None = None
        """The batches of the last snapshot."""
        self._at, self._clock = time.time(), time.monotonic()
        """When the last snapshot was taken, by both clocks."""

    def note(self, snapshot: Snapshot) -> None:
        """Begin and end spans by what has happened since the last snapshot."""
        queries = {hop.id: hop for hop in snapshot.hops if hop.kind == "query"}
        # What a query reads is in the spans of its batches.
        by_queries = {above for hop in queries.values() for above in hop.upstream}
        logs = [hop for hop in snapshot.hops if hop.kind == "log"]
        cursors = [hop for hop in snapshot.hops if hop.kind == "cursor" and hop.id not in by_queries]
        for hop in (*logs, *cursors):
            self._follow(hop, snapshot)
        self._look_for_absent(snapshot)
        self._note_batches(snapshot.batches, queries)
        self._at, self._clock = snapshot.at, snapshot.clock

    def close(self) -> None:
        """End the spans that are open; it can be called again."""
        for id in list(self._open):
            self._finish(id)

    # ---------------------------------------------------------------- intakes and readers
    def _follow(self, hop: Hop, snapshot: Snapshot) -> None:
        if hop.offset is None:
            return
        before = self._offsets.get(hop.id)
        self._offsets[hop.id] = hop.offset
        if before is None:
            return  # Nobody knows when those before came through.
        if hop.offset < before:  # Another log, or a cursor that was moved back.
            self._finish(hop.id)
            if hop.kind == "log":
                self._intakes.pop(hop.where, None)
        elif hop.offset > before:
            passage = self._open.get(hop.id) or self._begin(hop, before)
            passage.end, passage.at = hop.offset, snapshot.at
        if hop.id in self._open and snapshot.clock - self._open[hop.id].began >= self._period:
            self._finish(hop.id)

    def _begin(self, hop: Hop, first: int) -> _Passage:
        """Open the span at once, and not when it ends, so that a quick reader has something to link to."""
        is_log = hop.kind == "log"
        attributes: dict[str, str | int] = {"penstock.stream": hop.where, "penstock.hop": hop.id}
        if not is_log:
            attributes["penstock.subscriber"] = hop.name
        span = self._started("penstock.intake" if is_log else "penstock.read", attributes, self._at)
        passage = self._open[hop.id] = _Passage(
            span, hop.where, first, first, self._clock, self._at, self._at
        )
        if is_log:
            self._intakes.setdefault(hop.where, deque(maxlen=_MOST_INTAKES)).append(passage)
        return passage

    def _finish(self, id: str) -> None:
        passage = self._open.pop(id, None)
        if passage is None:
            return
        span = passage.span
        span.set_attributes(_offsets(passage.first, passage.end))
        span.set_attribute("penstock.records", passage.end - passage.first)
        if id != f"{passage.stream}/log":
            self._link(span, passage.stream, passage.first, passage.end)
        span.end(_nanoseconds(max(passage.at, passage.began_at)))

    def _look_for_absent(self, snapshot: Snapshot) -> None:
        here = {hop.id for hop in snapshot.hops if hop.offset is not None}
        for id in [id for id in self._open if id not in here]:
            self._finish(id)
        absent = len(self._offsets) - len(here)
        if absent > _MOST_ABSENT:
            self._offsets = {id: offset for id, offset in self._offsets.items() if id in here}

    # ---------------------------------------------------------------- batches of Spark
    def _note_batches(self, batches: Iterable[QueryBatch], queries: Mapping[str, Hop]) -> None:
        listed = {(batch.query, batch.number, batch.at): batch for batch in batches}
        if self._batches is not None:  # Those of the first snapshot may have spans from an earlier observer.
            for key in listed.keys() - self._batches:
                batch = listed[key]
                if batch.query in queries:
                    self._tell(batch, queries[batch.query])
        self._batches = set(listed)

    def _tell(self, batch: QueryBatch, query: Hop) -> None:
        attributes: dict[str, str | int | float] = {
            "penstock.stream": query.where,
            "penstock.hop": query.id,
            "penstock.query": query.name,
            "penstock.batch": batch.number,
            "penstock.records": batch.rows_in,
        }
        attributes |= {f"penstock.phase.{phase}": spent for phase, spent in batch.phases.items()}
        # Spark's time is that of the trigger, which may have waited for records first.
        ended = batch.at + batch.phases.get("triggerExecution", batch.seconds)
        span = self._started("penstock.batch", attributes, ended - batch.seconds)
        if batch.first is not None and batch.end is not None:
            span.set_attributes(_offsets(batch.first, batch.end))
            self._link(span, query.where, batch.first, batch.end)
        span.end(_nanoseconds(ended))

    # ---------------------------------------------------------------- spans
    def _started(self, name: str, attributes: Mapping[str, str | int | float], at: float) -> Span:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        # An empty context: whatever runs on this thread has nothing to do with these records.
        return self._tracer.start_span(
            name,
            context=Context(),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            start_time=_nanoseconds(at),
        )

    def _link(self, span: Span, stream: str, first: int, end: int) -> None:
        for number, passage in enumerate(self._covering(stream, first, end)):
            if number == _MOST_LINKS:
                return
            span.add_link(passage.span.get_span_context(), _offsets(passage.first, passage.end))

    def _covering(self, stream: str, first: int, end: int) -> Iterator[_Passage]:
        """The intakes with at least one of these records, the newest first."""
        for passage in reversed(self._intakes.get(stream, ())):
            if passage.end <= first:
                return
            if passage.first < end:
                yield passage


def _offsets(first: int, end: int) -> dict[str, int]:
    """The offsets of the first and of the last record; of no records, none."""
    return {"penstock.offset.first": first, "penstock.offset.last": end - 1} if end > first else {}


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)
