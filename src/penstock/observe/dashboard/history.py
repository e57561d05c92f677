"""The last minutes, so that a page that is opened now shows how things came to be as they are.

For each hop it keeps three figures: records a second, how full it is, and how far it lags. Its memory is
bounded: so many points, and so many hops.
"""

from __future__ import annotations

from array import array
from math import isnan, nan
from typing import Final

from penstock.observe.live import LiveUpdate, level
from penstock.observe.model import Hop, HopRates

__all__ = ["History"]

_FIGURES: Final = ("rate", "level", "lag")
_MOST_HOPS: Final = 64


class History:
    """Columns of equal length: the clock, and three figures for each hop."""

    def __init__(self, points: int = 300) -> None:
        """Keep the last ``points`` updates."""
        self._points = points
        self._clock = array("d")
        self._hops: dict[str, dict[str, array[float]]] = {}

    def add(self, update: LiveUpdate) -> None:
        """Add an update. One that brings no new snapshot is left out, and shows as a gap."""
        if update.trouble is not None:
            return
        clock = update.snapshot.clock
        if self._clock and clock <= self._clock[-1]:
            self._clock, self._hops = array("d"), {}  # a new observer with a clock of its own
        past = len(self._clock)
        self._clock.append(clock)
        measured = {each.hop: each for each in update.rates}
        now = {hop.id: _figures(hop, measured.get(hop.id)) for hop in update.snapshot.hops}
        for hop in now:
            if hop not in self._hops and len(self._hops) < _MOST_HOPS:
                self._hops[hop] = {figure: array("d", [nan] * past) for figure in _FIGURES}
        for hop, columns in self._hops.items():
            for figure, value in zip(_FIGURES, now.get(hop, (nan, nan, nan)), strict=True):
                columns[figure].append(value)
        if past >= 2 * self._points:  # not each time: moving everything by one place takes long
            self._cut()

    def to_dict(self) -> dict[str, object]:
        """The last points as JSON: the clock, and ``rate``, ``level`` and ``lag`` for each hop."""
        return {
            "clock": [round(value, 2) for value in self._clock[-self._points :]],
            "hops": {
                hop: {figure: _shown(column[-self._points :]) for figure, column in columns.items()}
                for hop, columns in self._hops.items()
            },
        }

    def _cut(self) -> None:
        self._clock = self._clock[-self._points :]
        for hop, columns in list(self._hops.items()):
            kept = {figure: column[-self._points :] for figure, column in columns.items()}
            if all(map(isnan, kept["rate"])):
                del self._hops[hop]  # it has been gone all the time
            else:
                self._hops[hop] = kept


def _figures(hop: Hop, measured: HopRates | None) -> tuple[float, float, float]:
    # What comes in, where nothing goes out: the last hop of a pipeline.
    full = level(hop)
    lag = hop.lag_seconds if hop.lag_seconds is not None else hop.oldest_seconds
    return (
        nan if measured is None else max(measured.records_in, measured.records_out),
        nan if full is None else full,
        nan if lag is None else lag,
    )


def _shown(column: array[float]) -> list[float | None]:
    return [None if isnan(value) else float(f"{value:.4g}") for value in column]
