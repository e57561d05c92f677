"""The hops of a gateway, made of its status: source, stages, intake, log, producers, cursors, queries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypedDict

from msgspec import UNSET, UnsetType

from penstock.aquifer import (
    ConnectionFigures,
    CursorStatus,
    GatewayStatus,
    HopTimes,
    QueryReport,
    SenderStatus,
    SessionStatus,
)
from penstock.observe.model import Hop, QueryBatch, RecentError, SubscriberFigures

_FILES: Final = re.compile(r"FileSink\[(.*)\]", re.DOTALL)
_OBJECT: Final = re.compile(r"(?:[\w.]*[.$])?(\w+)\$?@[0-9a-f]+")
"""An object of Java that has no text of its own: ``org.apache.spark.…ConsoleTable$@1f2e``."""

__all__ = ["GatewayHops", "bad_elements", "hops_of"]


@dataclass(frozen=True, slots=True)
class GatewayHops:
    """What one gateway adds to a snapshot."""

    hops: tuple[Hop, ...]
    subscribers: tuple[SubscriberFigures, ...]
    batches: tuple[QueryBatch, ...]
    sinks: dict[str, str]
    """The endpoints that its queries write to, by the id of the query's hop."""
    producers: dict[str, str]
    """The ids of the hops of its producers, by the name under which they write."""


def hops_of(endpoint: str, status: GatewayStatus) -> GatewayHops:
    """Describe a gateway as hops; ``endpoint`` is where it was asked, and part of every id."""
    above = list(_above_the_log(endpoint, status))
    producers = {
        each.name: f"{endpoint}/producer/{each.name}"
        for each in (status.producers if status.producers is not UNSET else [])
    }
    log = _log(endpoint, status, ([above[-1].id] if above else []) + list(producers.values()))
    readers = [each for each in status.subscribers if not _is_task(each)]
    below = [_session(endpoint, each, log.id) for each in readers]
    queries: list[Hop] = []
    batches: list[QueryBatch] = []
    sinks: dict[str, str] = {}
    subscribers = [_subscriber(endpoint, hop, each) for hop, each in zip(below, readers, strict=True)]
    for name, cursor in status.saved.items():
        hop = _saved(endpoint, name, cursor, log.id, status)
        below.append(hop)
        subscribers.append(
            SubscriberFigures(
                hop=hop.id,
                name=name,
                gateway=endpoint,
                state=hop.state,
                cursor=cursor.acknowledged,
                acknowledged=cursor.acknowledged,
                lag_records=hop.lag_records or 0,
                lag_seconds=hop.lag_seconds,
                lease_seconds=cursor.remaining,
            )
        )
        if cursor.times is not UNSET:
            query = _query(endpoint, name, cursor, hop)
            queries.append(query)
            reports = cursor.batches if cursor.batches is not UNSET else []
            batches += [_batch(query.id, report) for report in reports]
            if reports and _is_gateway(reports[-1].sink):
                sinks[query.id] = reports[-1].sink
            elif reports and reports[-1].sink:
                queries.append(_sink(endpoint, name, query, reports[-1]))
    return GatewayHops(
        (*above, *_producers(endpoint, status), log, *below, *queries),
        tuple(subscribers),
        tuple(batches),
        sinks,
        producers,
    )


def bad_elements(endpoint: str, status: GatewayStatus) -> list[RecentError]:
    """What could not become a record lately, with the reason."""
    found = []
    for each in status.source.bad if status.source.bad is not UNSET else []:
        many = f" ({each.count:,} times)" if each.count > 1 else ""
        what = "a dead letter" if each.kept else "left out"
        found.append(
            RecentError(at=each.at, hop=f"{endpoint}/intake", message=f"{what}: {each.reason}{many}")
        )
    return found


class _Times(TypedDict, total=False):
    """The times of a :class:`Hop`, if a gateway tells them."""

    waiting_for_demand: float
    waiting_for_data: float
    working: float


def _times(times: HopTimes | UnsetType) -> _Times:
    if times is UNSET:
        return {}
    return {
        "waiting_for_demand": times.waiting_for_demand,
        "waiting_for_data": times.waiting_for_data,
        "working": times.working,
    }


def _known(value: float | UnsetType) -> float | None:
    return None if value is UNSET else value


def _above_the_log(endpoint: str, status: GatewayStatus) -> Iterator[Hop]:
    """The source's connections and stages, and the intake."""
    source = status.source
    if not (source.requested or source.stages or source.connections or source.state):
        return  # Others write to it.
    upstream: tuple[str, ...] = ()
    if source.connections is not UNSET:
        few = [_sender(f"{endpoint}/connection/{each.name}", each) for each in source.connections.senders]
        yield from few
        total = _sender(f"{endpoint}/connections", source.connections)
        yield replace(total, upstream=tuple(hop.id for hop in few))
        upstream = (total.id,)
    for stage in source.stages if source.stages is not UNSET else []:
        above = tuple(f"{endpoint}/stage/{number}" for number in stage.upstreams)
        yield Hop(
            id=f"{endpoint}/stage/{stage.number}",
            kind=stage.kind,
            name=stage.name,
            upstream=above or upstream,
            where=endpoint,
            peer=stage.peer,
            records_out=stage.emitted,
            waiting=stage.queued,
            capacity=stage.capacity,
            waiting_bytes=stage.queued_bytes,
            capacity_bytes=stage.capacity_bytes,
            demand=max(stage.requested - stage.emitted, 0),
            details=stage.by_operator,
            **_times(stage.times),
        )
        upstream = (f"{endpoint}/stage/{stage.number}",)
    yield Hop(
        id=f"{endpoint}/intake",
        kind="intake",
        name="source" if not upstream else "intake",
        upstream=upstream,
        state=_state_of_source(status),
        reason=_reason(status),
        where=endpoint,
        records_in=source.received,
        records_out=source.received - (source.waiting if source.waiting is not UNSET else 0),
        waiting=source.waiting if source.waiting is not UNSET else None,
        demand=max(source.requested - source.received, 0),
        errors=source.skipped,
        details={} if source.since is UNSET else {"state_since": source.since},
        **_times(source.times),
    )


def _sender(id: str, figures: ConnectionFigures | SenderStatus) -> Hop:
    """One sender of a feed, or all of them together."""
    one = figures.name if isinstance(figures, SenderStatus) else ""
    return Hop(
        id=id,
        kind="connection",
        name=one or "senders",
        state="paused" if figures.open and figures.paused == figures.open else "running",
        where=id.partition("/connection")[0],
        records_in=figures.records,
        records_out=figures.records,
        bytes_in=figures.bytes or None,
        waiting_bytes=figures.waiting_bytes,
        capacity_bytes=figures.capacity_bytes or None,
        details={"open": float(figures.open), "paused": float(figures.paused)},
        **_times(figures.times),
    )


def _state_of_log(status: GatewayStatus) -> str:
    if status.failure is not None:
        return "failed"
    return "running" if status.end is None else "ended"


def _state_of_source(status: GatewayStatus) -> str:
    state = _state_of_log(status)
    if state == "running" and status.source.state in ("connecting", "down"):
        return str(status.source.state)
    return state


def _reason(status: GatewayStatus) -> str:
    if status.failure is not None:
        return status.failure
    return status.source.reason or "" if status.source.reason is not UNSET else ""


def _producers(endpoint: str, status: GatewayStatus) -> Iterator[Hop]:
    for each in status.producers if status.producers is not UNSET else []:
        yield Hop(
            id=f"{endpoint}/producer/{each.name}",
            kind="producer",
            name=each.name,
            where=endpoint,
            records_in=each.records + each.pending,
            records_out=each.records,
            bytes_out=each.bytes,
            waiting=each.pending,
            details={"batches": float(each.batches)},
            **_times(each.times),
        )


def _log(endpoint: str, status: GatewayStatus, upstream: list[str]) -> Hop:
    figures = status.log if status.log is not UNSET else None
    full = figures is not None and figures.full_seconds is not None
    state = "stalled" if status.stalled else "full" if full else _state_of_log(status)
    return Hop(
        id=f"{endpoint}/log",
        kind="log",
        name="journal" if status.durable else "log",
        upstream=tuple(upstream),
        state=state,
        reason=status.stalled or status.failure or "",
        where=endpoint,
        records_in=status.head,
        records_out=status.head,
        bytes_in=figures.appended_bytes if figures is not None else None,
        waiting=max(status.head - status.low_watermark, 0),
        capacity=status.max_records,
        waiting_bytes=status.bytes,
        capacity_bytes=status.max_bytes,
        oldest_seconds=figures.oldest_seconds if figures is not None else None,
        full_seconds=figures.full_seconds if figures is not None else None,
        offset=status.head,
        details={}
        if figures is None
        else {
            "commits": float(figures.commits),
            "commit_seconds": figures.commit_seconds,
            "plain_bytes": float(figures.plain_bytes),
        },
        **_times(figures.times if figures is not None else UNSET),
    )


def _is_task(session: SessionStatus) -> bool:
    """Whether it reads a range for a moment, as a task of Spark does, and the log need not wait for it."""
    return not session.required and session.id is None and session.state == "joining"


def _session(endpoint: str, session: SessionStatus, log: str) -> Hop:
    name = session.id or f"{session.address or 'reader'} #{session.number}"
    return Hop(
        id=f"{endpoint}/cursor/{session.id or session.number}",
        kind="cursor",
        name=name,
        upstream=(log,),
        state="running" if session.state == "streaming" else session.state,
        where=endpoint,
        required=session.required,
        records_in=session.cursor + session.lag,
        records_out=session.acknowledged,
        bytes_out=session.bytes,
        waiting=session.lag,
        demand=max(session.credit - session.cursor, 0) if session.credit is not UNSET else None,
        lag_records=session.lag,
        lag_seconds=_known(session.lag_seconds),
        oldest_seconds=_known(session.lag_seconds),
        offset=session.acknowledged,
        details={"unacknowledged": float(session.cursor - session.acknowledged)},
        **_times(session.times),
    )


def _subscriber(endpoint: str, hop: Hop, session: SessionStatus) -> SubscriberFigures:
    return SubscriberFigures(
        hop=hop.id,
        name=hop.name,
        gateway=endpoint,
        state=session.state,
        address=session.address,
        required=session.required,
        cursor=session.cursor,
        acknowledged=session.acknowledged,
        lag_records=session.lag,
        lag_seconds=hop.lag_seconds,
    )


def _saved(endpoint: str, name: str, cursor: CursorStatus, log: str, status: GatewayStatus) -> Hop:
    lag = cursor.lag if cursor.lag is not UNSET else max(status.head - cursor.acknowledged, 0)
    return Hop(
        id=f"{endpoint}/cursor/{name}",
        kind="cursor",
        name=name,
        upstream=(log,),
        state="away" if cursor.times is UNSET else "running",
        where=endpoint,
        records_in=cursor.acknowledged + lag,
        records_out=cursor.acknowledged,
        waiting=lag,
        lag_records=lag,
        lag_seconds=_known(cursor.lag_seconds),
        oldest_seconds=_known(cursor.lag_seconds),
        offset=cursor.acknowledged,
        **_times(cursor.times),
    )


def _query(endpoint: str, name: str, cursor: CursorStatus, hop: Hop) -> Hop:
    """A reader that asks for ranges, and acknowledges them when it is done with them."""
    last = cursor.batches[-1] if cursor.batches is not UNSET and cursor.batches else QueryReport()
    times = cursor.times if cursor.times is not UNSET else HopTimes()
    return Hop(
        id=f"{endpoint}/query/{name}",
        kind="query",
        name=last.name or name,
        upstream=(hop.id,),
        where=endpoint,
        records_in=cursor.acknowledged,
        records_out=cursor.acknowledged,
        waiting_for_data=times.waiting_for_data,
        working=times.waiting_for_demand + times.working,
        lag_records=hop.lag_records,
        lag_seconds=hop.lag_seconds,
        offset=cursor.acknowledged,
        errors=last.errors,
        details={
            "batch": float(last.batch),
            "rows": float(last.rows),
            "batch_seconds": last.seconds,
            "sink_seconds": last.sink_seconds,
            **last.phases,
        },
    )


def _is_gateway(sink: str) -> bool:
    return sink.startswith("tcp://")


def _sink(endpoint: str, name: str, query: Hop, last: QueryReport) -> Hop:
    """A sink that is no gateway: files, a table, a function. Spark says what it is, and how long it took."""
    return Hop(
        id=f"{endpoint}/sink/{name}",
        kind="sink",
        name=_name_of_sink(last.sink),
        upstream=(query.id,),
        where=last.sink,
        records_in=query.records_out,
        records_out=query.records_out,
        offset=query.offset,
        details={
            "rows": float(last.rows_out if last.rows_out >= 0 else last.rows),
            "batch_seconds": last.seconds,
            "addBatch": last.phases.get("addBatch", 0.0),
        },
    )


def _name_of_sink(description: str) -> str:
    """Spark's description for people: ``FileSink[file:/data/hot]`` is ``files in /data/hot``."""
    if (files := _FILES.fullmatch(description)) is not None:
        return f"files in {files[1].removeprefix('file:')}"
    if description == "ForeachBatchSink":
        return "foreachBatch"
    if (table := _OBJECT.fullmatch(description)) is not None:
        return table[1]
    return description


def _batch(query: str, report: QueryReport) -> QueryBatch:
    return QueryBatch(
        query=query,
        number=report.batch,
        at=report.at,
        seconds=report.seconds,
        phases=report.phases,
        rows_in=report.rows,
        rows_out=report.rows_out if report.rows_out >= 0 else None,
        first=report.first if report.first >= 0 else None,
        end=report.end if report.end >= 0 else None,
    )
