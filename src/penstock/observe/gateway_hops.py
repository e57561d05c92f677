"""The hops of gateways, as far as their status tells: the feed, the log, and a cursor for each subscriber.

A status says how far everything has come, how full the log is, and whether the source has demand. That is
enough to name the reader that the source waits for. The times that a hop waits or works are not in it, so
these figures are None.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.observe.model import Hop, RecentError, Snapshot, SubscriberFigures, Verdict

if TYPE_CHECKING:
    from penstock.aquifer import GatewayStatus

__all__ = ["GatewayObserver"]

_FULL: Final = 0.98
"""The part of its bounds from which on a log counts as full: the last batch hardly ever fits exactly."""
_FULL_WITHOUT_DEMAND: Final = 0.75
"""The same for a log whose source has no demand: it asks again for many records at once, when they fit."""
_MOST_ERRORS: Final = 50


@dataclass(frozen=True, slots=True)
class _Limit:
    """What limits the flow through one gateway."""

    hop: str
    sentence: str
    advice: str


class GatewayObserver:
    """Takes snapshots of gateways; ``looks`` has, for each endpoint, a function that returns its status.

    It is used by one thread at a time. A gateway that does not answer has a hop in the state ``failed``; if
    none answers, the error of the first one is raised.
    """

    def __init__(
        self,
        looks: Mapping[str, Callable[[], GatewayStatus]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not looks:
            raise ValueError("an observer needs at least one gateway")
        self._looks = dict(looks)
        self._monotonic = monotonic
        self._errors: list[RecentError] = []
        self._told: dict[str, str] = {}
        self._limiting: str | None = None
        self._since = monotonic()
        self._is_first = True

    def snapshot(self) -> Snapshot:
        """Ask every gateway, and say which reader the sources wait for."""
        hops: list[Hop] = []
        subscribers: list[SubscriberFigures] = []
        limits: list[_Limit] = []
        failures: list[Exception] = []
        for endpoint, look in self._looks.items():
            try:
                status = look()
            except Exception as error:
                failures.append(error)
                self._note(f"{endpoint}/log", str(error))
                hops.append(
                    Hop(id=f"{endpoint}/log", kind="log", name=endpoint, where=endpoint, state="failed")
                )
                continue
            self._note(f"{endpoint}/feed", status.failure)
            self._note(f"{endpoint}/log", status.stalled)
            hops += _hops(endpoint, status)
            subscribers += _subscribers(endpoint, status)
            limits += _limits(endpoint, status)
        if len(failures) == len(self._looks):
            raise failures[0]
        now = self._monotonic()
        return Snapshot(
            at=time.time(),
            clock=now,
            hops=tuple(hops),
            verdict=self._verdict(limits, now),
            errors=tuple(self._errors),
            subscribers=tuple(subscribers),
        )

    def _note(self, hop: str, message: str | None) -> None:
        """Keep an error once, and again when it comes back after it was gone."""
        if message is None:
            self._told.pop(hop, None)
        elif self._told.get(hop) != message:
            self._told[hop] = message
            self._errors = [*self._errors, RecentError(at=time.time(), hop=hop, message=message)]
            del self._errors[:-_MOST_ERRORS]

    def _verdict(self, limits: list[_Limit], now: float) -> Verdict | None:
        limiting = limits[-1].hop if limits else None  # the last gateway holds up those above it
        if limiting != self._limiting:
            self._limiting, self._since = limiting, now
        if self._is_first:
            self._is_first = False
            return None
        if not limits:
            return Verdict(
                sentence="Nothing holds the flow up: the sources have demand.", since=now - self._since
            )
        return Verdict(
            sentence=limits[-1].sentence,
            limiting=limiting,
            also=tuple(each.hop for each in limits[:-1]),
            since=now - self._since,
            advice=limits[-1].advice,
        )


def _used(status: GatewayStatus) -> float:
    return max(
        status.records / status.max_records if status.max_records else 0.0,
        status.bytes / status.max_bytes if status.max_bytes else 0.0,
    )


def _hops(endpoint: str, status: GatewayStatus) -> Iterator[Hop]:
    source = status.source
    feed = f"{endpoint}/feed"
    demand = max(source.requested - source.received, 0)
    has_feed = source.requested > 0
    if has_feed:
        yield Hop(
            id=feed,
            kind="feed",
            name="source",
            where=endpoint,
            state=_feed_state(status, demand),
            records_in=source.received,
            records_out=source.received,
            demand=demand,
            errors=source.skipped,
        )
    yield Hop(
        id=f"{endpoint}/log",
        kind="log",
        name=endpoint,
        upstream=(feed,) if has_feed else (),
        where=endpoint,
        state="stalled" if status.stalled is not None else "full" if _is_full(status) else "running",
        records_in=status.head,
        records_out=status.departed.records + sum(each.records for each in status.subscribers),
        waiting=max(status.head - status.low_watermark, 0),
        capacity=status.max_records,
        waiting_bytes=status.bytes,
        capacity_bytes=status.max_bytes,
        errors=sum(status.counters.values()),
    )
    for each in status.subscribers:
        yield Hop(
            id=_cursor(endpoint, each.id, each.number),
            kind="cursor",
            name=each.id if each.id is not None else f"session {each.number}",
            upstream=(f"{endpoint}/log",),
            where=endpoint,
            state="ended" if each.state == "ended" else "running",
            required=each.required,
            records_in=each.records,
            records_out=each.records,
            bytes_in=each.bytes,
            bytes_out=each.bytes,
            demand=max(each.credit - each.cursor, 0) if isinstance(each.credit, int) else None,
            lag_records=each.lag,
        )
    for name, saved in status.saved.items():
        yield Hop(
            id=_cursor(endpoint, name, 0),
            kind="cursor",
            name=name,
            upstream=(f"{endpoint}/log",),
            where=endpoint,
            state="away",
            lag_records=max(status.head - saved.acknowledged, 0),
        )


def _feed_state(status: GatewayStatus, demand: int) -> str:
    if status.failure is not None:
        return "failed"
    if status.end is not None:
        return "ended"
    return "running" if demand else "paused"


def _cursor(endpoint: str, id: str | None, number: int) -> str:
    return f"{endpoint}/cursor/{id}" if id is not None else f"{endpoint}/session/{number}"


def _is_full(status: GatewayStatus) -> bool:
    """Whether the log is full of records that a required reader still needs."""
    source = status.source
    has_demand = source.requested == 0 or source.requested > source.received
    bound = _FULL if has_demand else _FULL_WITHOUT_DEMAND
    needed = status.head - status.low_watermark
    # A transaction is stored as a whole, and may take more than the bounds: then a part of it is enough.
    return status.records > 0 and _used(status) * needed / status.records >= bound


def _subscribers(endpoint: str, status: GatewayStatus) -> Iterator[SubscriberFigures]:
    for each in status.subscribers:
        yield SubscriberFigures(
            hop=_cursor(endpoint, each.id, each.number),
            name=each.id or f"session {each.number}",
            gateway=endpoint,
            state=each.state,
            address=each.address,
            required=each.required,
            cursor=each.cursor,
            acknowledged=each.acknowledged,
            lag_records=each.lag,
        )
    for name, saved in status.saved.items():
        yield SubscriberFigures(
            hop=_cursor(endpoint, name, 0),
            name=name,
            gateway=endpoint,
            state="away",
            cursor=saved.acknowledged,
            acknowledged=saved.acknowledged,
            lag_records=max(status.head - saved.acknowledged, 0),
            lease_seconds=saved.remaining,
        )


def _limits(endpoint: str, status: GatewayStatus) -> Iterator[_Limit]:
    """The hop that the source of a gateway waits for, if it waits: the required reader that is last."""
    log = f"{endpoint}/log"
    if status.stalled is not None:
        yield _Limit(log, f"The log of {endpoint} cannot be written: {status.stalled}.", "free its disk")
        return
    if status.end is not None or not _is_full(status):
        return
    required = {
        _cursor(endpoint, each.id, each.number): (
            each.acknowledged,
            each.id or f"session {each.number}",
            "slow",
        )
        for each in status.subscribers
        if each.required
    }
    required |= {
        _cursor(endpoint, name, 0): (saved.acknowledged, name, "away") for name, saved in status.saved.items()
    }
    if not required:
        yield _Limit(log, f"The log of {endpoint} is full, and nobody reads it.", "start a reader")
        return
    hop, (acknowledged, name, how) = min(required.items(), key=lambda item: item[1][0])
    behind = max(status.head - acknowledged, 0)
    said = (
        f"Reader {name} limits the flow" if how == "slow" else f"Reader {name} is away, and limits the flow"
    )
    yield _Limit(
        hop,
        f"{said}: it is {behind:,} records behind, and the log of {endpoint} is full.",
        "a faster reader, or a larger log"
        if how == "slow"
        else f"start it again, or penstock gateway forget {endpoint} {name}",
    )
