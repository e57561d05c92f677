"""What a screen shows of a running pipeline: the latest snapshot, with rates over the last seconds.

The dashboard and ``penstock top`` draw the same :class:`LiveUpdate`, once a second. A snapshot has totals;
a rate needs two of them. One second is too short for a Spark query, whose figures move once a batch, so
:class:`LiveFigures` compares with a snapshot that is some seconds old.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from penstock.observe.json_form import JsonForm
from penstock.observe.model import Hop, HopRates, Snapshot, rates

__all__ = ["LiveFigures", "LiveUpdate", "level"]

_log = logging.getLogger("penstock.observe")

_MOST_HOPS: Final = 200
"""How many hops an update has at most. A gateway with thousands of subscribers has as many cursors."""
_MOST_SUBSCRIBERS: Final = 200
_MOST_BATCHES: Final = 60
_MOST_ERRORS: Final = 50


def level(hop: Hop) -> float | None:
    """How full a hop is, from 0 to 1, by records or by bytes, whichever is more; None if it has no bound."""
    shares = [
        held / bound
        for held, bound in ((hop.waiting, hop.capacity), (hop.waiting_bytes, hop.capacity_bytes))
        if held is not None and bound
    ]
    return min(1.0, max(shares)) if shares else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveUpdate(JsonForm):
    """One snapshot with the rates of its hops."""

    snapshot: Snapshot
    rates: tuple[HopRates, ...] = ()
    trouble: str | None = None
    """Why there is no newer snapshot, if that could not be had."""
    trouble_seconds: float | None = None
    """For how long that has been so."""
    hops_left_out: int = 0
    """How many hops there are beside those of the snapshot: of many cursors, those that lag least."""
    subscribers_left_out: int = 0


class LiveFigures:
    """Makes one update after the other; ``look`` takes a snapshot, and may fail at times.

    It is used by one thread at a time.
    """

    def __init__(
        self,
        look: Callable[[], Snapshot],
        *,
        window: float = 5.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Compare with a snapshot that is ``window`` seconds old, or as old as there is one."""
        self._look = look
        self._window = window
        self._monotonic = monotonic
        self._seen: deque[Snapshot] = deque()
        self._troubled_since: float | None = None

    def update(self) -> LiveUpdate:
        """Look once, and return what there is to show. An error of ``look`` becomes the update's trouble."""
        try:
            snapshot = self._look()
        except Exception as error:
            return self._troubled(error)
        self._troubled_since = None
        seen = self._seen
        if seen and snapshot.clock <= seen[-1].clock:
            seen.clear()  # another observer's clock: what was before cannot be compared
        seen.append(snapshot)
        while len(seen) > 2 and snapshot.clock - seen[1].clock >= self._window:
            seen.popleft()
        return _bounded(snapshot, self._rates(snapshot))

    def _rates(self, snapshot: Snapshot) -> dict[str, HopRates]:
        """Over the whole window for the hops that were there, over less for those that are new."""
        found: dict[str, HopRates] = {}
        for before in self._seen:
            if before is snapshot or len(found) == len(snapshot.hops):
                break
            found = {**rates(before, snapshot), **found}
        return found

    def _troubled(self, error: Exception) -> LiveUpdate:
        now = self._monotonic()
        if self._troubled_since is None:
            self._troubled_since = now
            _log.info("no snapshot: %s", error)
        told = str(error) or type(error).__name__
        for_seconds = now - self._troubled_since
        last = self._seen[-1] if self._seen else Snapshot(at=time.time(), clock=now)
        update = _bounded(last, {})
        return replace(update, trouble=told, trouble_seconds=for_seconds)


def _bounded(snapshot: Snapshot, measured: dict[str, HopRates]) -> LiveUpdate:
    """The update of a snapshot, with no more of everything than a screen can take."""
    hops, left_out = _chosen(snapshot), 0
    if len(hops) < len(snapshot.hops):
        left_out = len(snapshot.hops) - len(hops)
    subscribers = snapshot.subscribers
    if len(subscribers) > _MOST_SUBSCRIBERS:
        subscribers = tuple(sorted(subscribers, key=lambda each: -each.lag_records)[:_MOST_SUBSCRIBERS])
    shown = replace(
        snapshot,
        hops=hops,
        subscribers=subscribers,
        batches=snapshot.batches[-_MOST_BATCHES:],
        errors=snapshot.errors[-_MOST_ERRORS:],
    )
    return LiveUpdate(
        snapshot=shown,
        rates=tuple(measured[hop.id] for hop in hops if hop.id in measured),
        hops_left_out=left_out,
        subscribers_left_out=len(snapshot.subscribers) - len(subscribers),
    )


def _chosen(snapshot: Snapshot) -> tuple[Hop, ...]:
    """The hops to show, in their order: if there are too many, cursors that lag least are left out."""
    if len(snapshot.hops) <= _MOST_HOPS:
        return snapshot.hops
    limiting = snapshot.limiting

    def importance(hop: Hop) -> tuple[bool, bool, int]:
        return hop.id in limiting, hop.kind != "cursor", hop.lag_records or 0

    kept = {hop.id for hop in sorted(snapshot.hops, key=importance, reverse=True)[:_MOST_HOPS]}
    return tuple(hop for hop in snapshot.hops if hop.id in kept)
