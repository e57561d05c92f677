"""Rates, lags and fill levels, computed from the status of a gateway at several moments.

One status says how far everything has come; a :class:`Meter` compares several, and says how fast. An
:class:`Audience` finds out when every required reader is done.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.aquifer import CursorStatus, GatewayStatus, SessionStatus

__all__ = ["Audience", "AwayFigures", "GatewayFigures", "Meter", "ReaderFigures"]

_GRACE: Final = 2.0
"""Seconds in which subscribers that have everything may leave by themselves, before the gateway closes."""


@dataclass(frozen=True, slots=True)
class ReaderFigures:
    """One subscriber that is connected."""

    id: str | None
    dialect: str
    state: str
    next: int
    acknowledged: int
    lag: int
    rate: float
    keep: bool
    lag_seconds: float | None = None
    """For how long the next record for it has been in the log, if the gateway says so."""

    @property
    def label(self) -> str:
        """Its name on a screen."""
        return self.id if self.id is not None else "(no id)"


@dataclass(frozen=True, slots=True)
class AwayFigures:
    """A durable subscriber that is not connected, and whose records are kept."""

    id: str
    behind: int
    remaining: float
    """The seconds that are left of its lease."""
    lease: float
    """The seconds of its whole lease."""
    lag_seconds: float | None = None
    """For how long the next record for it has been in the log, if the gateway says so."""


@dataclass(frozen=True, slots=True)
class GatewayFigures:
    """A gateway at one moment."""

    uptime: float
    epoch: str
    durable: bool
    codec: str
    taken: int
    skipped: int
    """How many lines of the source could not be records."""
    source_rate: float
    held_back: float
    """The part of the time, from 0 to 1, in which there was no demand for the source."""
    first: int
    head: int
    end: int | None
    failure: str | None
    stalled: str | None
    full: float
    """The part of the log, from 0 to 1, that is in use."""
    needed: float
    """The part that a required reader still needs: at 1 the source has to wait."""
    records: int
    max_records: int | None
    bytes: int
    max_bytes: int | None
    readers: list[ReaderFigures]
    away: list[AwayFigures]
    counters: dict[str, int]
    left_out: dict[str, int]
    """How many more there are than the gateway lists: ``subscribers`` and ``absent``."""
    streams: list[dict[str, Any]] = field(default_factory=list)
    """All streams of a gateway that has several: their status, each as a dict."""
    groups: list[dict[str, Any]] = field(default_factory=list)
    """The reader groups, in the same way."""
    compressed: float | None = None
    """What is stored, as a part of what came since the start; None if nothing was compressed."""

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for a line of JSON."""
        return asdict(self)


class Meter:
    """Looks at one status after the other, and computes the rates between two calls of :meth:`figures`."""

    def __init__(self) -> None:
        self._then: tuple[float, int, dict[tuple[str, str | int], int]] | None = None
        self._looks = self._held = 0

    def look(self, status: GatewayStatus) -> None:
        """Note whether the source is held back now; the more looks, the better the estimate."""
        source = status.source
        self._looks += 1
        # If nothing was ever requested, there may be no source: others write to this gateway.
        waits = source.requested > 0 or _used(status) >= 1
        self._held += status.end is None and waits and source.requested <= source.received

    def figures(self, status: GatewayStatus, now: float) -> GatewayFigures:
        """Return the figures of this moment, with the rates since the last call."""
        taken = status.source.received
        sent = _by_reader(status)
        seconds, source_rate, before = 0.0, 0.0, sent
        if self._then is not None:
            then, taken_then, before = self._then
            seconds = max(now - then, 1e-9)
            source_rate = (taken - taken_then) / seconds
        self._then = now, taken, sent
        held_back = self._held / self._looks if self._looks else 0.0
        self._looks = self._held = 0
        readers = []
        for key, subscriber in zip(sent, status.subscribers, strict=True):
            # A new subscriber counts as if it had come just after the last call.
            fresh = subscriber.records - before.get(key, 0)
            # Fewer than before: another subscriber has taken the place of one that left.
            fresh = subscriber.records if fresh < 0 else fresh
            readers.append(_reader(subscriber, fresh / seconds if seconds else 0.0))
        needed = status.head - status.low_watermark
        used = _used(status)
        return GatewayFigures(
            uptime=status.uptime,
            epoch=status.epoch,
            durable=status.durable,
            codec=status.codec,
            taken=taken,
            skipped=status.source.skipped,
            source_rate=source_rate,
            held_back=held_back,
            first=status.first,
            head=status.head,
            end=status.end,
            failure=status.failure,
            stalled=status.stalled,
            full=min(used, 1.0),
            needed=min(used * needed / status.records, 1.0) if status.records else 0.0,
            records=status.records,
            max_records=status.max_records,
            bytes=status.bytes,
            max_bytes=status.max_bytes,
            readers=readers,
            away=[
                AwayFigures(
                    name,
                    max(status.head - cursor.acknowledged, 0),
                    cursor.remaining,
                    cursor.lease_ms / 1000,
                    _seconds(cursor),
                )
                for name, cursor in status.saved.items()
            ],
            counters=dict(status.counters),
            left_out=status.left_out.to_dict() if status.left_out else {"subscribers": 0, "absent": 0},
            streams=[one.to_dict() for one in status.streams] if len(status.streams) > 1 else [],
            groups=[one.to_dict() for one in status.groups] if status.groups else [],
            compressed=_compressed(status),
        )


def _compressed(status: GatewayStatus) -> float | None:
    log = status.log if status.log else None
    if log is None or log.plain_bytes <= log.appended_bytes:
        return None
    return log.appended_bytes / log.plain_bytes


def _used(status: GatewayStatus) -> float:
    """How much of its bounds a log uses, from 0 to 1 or somewhat more."""
    return max(
        0.0 if status.max_records is None else status.records / status.max_records,
        0.0 if status.max_bytes is None else status.bytes / status.max_bytes,
    )


def _reader(subscriber: SessionStatus, rate: float) -> ReaderFigures:
    return ReaderFigures(
        id=subscriber.id,
        dialect=subscriber.dialect,
        state=subscriber.state,
        next=subscriber.cursor,
        acknowledged=subscriber.acknowledged,
        lag=subscriber.lag,
        rate=rate,
        keep=subscriber.required,
        lag_seconds=_seconds(subscriber),
    )


def _seconds(reader: SessionStatus | CursorStatus) -> float | None:
    return reader.lag_seconds if isinstance(reader.lag_seconds, float | int) else None


def _by_reader(status: GatewayStatus) -> dict[tuple[str, str | int], int]:
    """Return how many records each subscriber received; without an id they differ only by their order."""
    sent: dict[tuple[str, str | int], int] = {}
    nameless: Counter[str] = Counter()
    for subscriber in status.subscribers:
        dialect, name = subscriber.dialect, subscriber.id
        if name is None:
            nameless[dialect] += 1
            sent[dialect, nameless[dialect]] = subscriber.records
        else:
            sent[dialect, name] = subscriber.records
    return sent


class Audience:
    """Follows the status of a gateway, and finds out when every required reader is done."""

    def __init__(self) -> None:
        self.is_served = False
        """Whether the source has ended and every required reader is done."""
        self.records = 0
        """How many records were sent to all subscribers together."""
        self._furthest = 0
        """At least one subscriber has everything before this offset."""
        self._content_since: float | None = None

    def look(self, status: GatewayStatus, now: float) -> None:
        """Look at which subscribers there are, and what they have."""
        here = status.subscribers
        present = sum(reader.records for reader in here)
        self.records = max(self.records, status.departed.records + present)
        self._furthest = max(
            self._furthest,
            status.departed.to,
            # A subscriber that asked for the latest records alone does not have the earlier ones.
            *(reader.acknowledged for reader in here if reader.records),
            # A plain subscriber that was told the end has everything, and does not acknowledge it.
            *(
                reader.cursor
                for reader in here
                if reader.records and reader.state == "ended" and reader.dialect == "plain"
            ),
            *(cursor.acknowledged for cursor in status.saved.values()),
        )
        end = status.end
        if end is None or not self._is_content(status, end):
            self._content_since = None
            return
        if self._content_since is None:
            self._content_since = now
        # They know the end and will leave, unless they are of a kind that never unsubscribes. A Spark query
        # is never connected: it asks from time to time, and has to learn that this was the end.
        required = [reader for reader in here if reader.required]
        self.is_served = not (required or status.saved) or now - self._content_since > _GRACE

    def _is_content(self, status: GatewayStatus, end: int) -> bool:
        if status.records and self._furthest < end:
            return False  # No subscriber has come yet, or none stayed to the end.
        return all(
            reader.acknowledged >= end and reader.state == "ended"
            for reader in status.subscribers
            if reader.required
        ) and all(cursor.acknowledged >= end for cursor in status.saved.values())
