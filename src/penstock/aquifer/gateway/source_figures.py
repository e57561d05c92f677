"""What a source, its stages and its connections say of themselves, in the words of a status."""

from __future__ import annotations

from penstock.aquifer.source_status import ConnectionFigures, SenderStatus, StageStatus
from penstock.aquifer.status_object import HopTimes
from penstock.delivery import FeedConnections, SenderFigures
from penstock.spec import UNBOUNDED
from penstock.streams import StageFigures

__all__ = ["connection_figures", "stage_status"]


def connection_figures(connections: FeedConnections) -> ConnectionFigures:
    """Who sends, and how the connections are."""
    total = connections.total
    return ConnectionFigures(
        open=total.open,
        paused=total.paused,
        records=total.records,
        bytes=total.bytes,
        waiting_bytes=total.waiting_bytes,
        capacity_bytes=total.capacity_bytes or 0,
        times=_times_of(total),
        senders=[
            SenderStatus(
                name=each.name,
                open=each.open,
                paused=each.paused,
                records=each.records,
                bytes=each.bytes,
                waiting_bytes=each.waiting_bytes,
                capacity_bytes=each.capacity_bytes or 0,
                times=_times_of(each),
            )
            for each in connections.few
        ],
    )


def _times_of(figures: SenderFigures | StageFigures) -> HopTimes:
    return HopTimes(
        waiting_for_demand=round(figures.waiting_for_demand, 3),
        waiting_for_data=round(figures.waiting_for_data, 3),
        working=round(figures.working, 3),
    )


def stage_status(figures: StageFigures) -> StageStatus:
    """How far one stage of the stream has come."""
    return StageStatus(
        number=figures.number,
        name=figures.name,
        kind=figures.kind,
        upstreams=list(figures.upstreams),
        requested=min(figures.requested, UNBOUNDED),
        emitted=figures.emitted,
        queued=figures.queued,
        capacity=figures.capacity,
        queued_bytes=figures.queued_bytes,
        capacity_bytes=figures.capacity_bytes,
        runs_on=figures.runs_on,
        times=_times_of(figures),
        by_operator={name: round(spent, 3) for name, spent in figures.by_operator.items()},
        peer=figures.peer,
    )
