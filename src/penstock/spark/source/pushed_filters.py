"""Filters of a ``spark.read`` that the source applies, so that Spark gets fewer records.

A condition on ``offset`` or ``endpoint`` says which part of a log to read. The gateway sends only the records
with the keys of a condition on ``key``. Conditions on ``timestamp`` are applied by the tasks, which read the
records but do not parse or pass on those that do not count: a log is not always in the order of its times.
Spark evaluates every condition once more, so none has to be exact here. It has this interface from 4.1 on,
for batch reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from penstock.aquifer import Batch, unpack_metadata

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["Conditions", "conditions_in"]

_FOREVER: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a record has to be for a query to see it; both ends of a range count."""

    offsets: tuple[int, int] = (0, _FOREVER)
    times: tuple[int, int] = (-_FOREVER, _FOREVER)
    """Microseconds since 1970."""
    endpoints: frozenset[str] | None = None
    keys: frozenset[bytes] | None = None

    def clipped(self, endpoint: str, start: int, stop: int) -> tuple[int, int]:
        """The part of a range of offsets that may have records for the query."""
        if self.endpoints is not None and endpoint not in self.endpoints:
            return start, start
        low, high = self.offsets
        first = min(max(start, low), stop)
        return first, max(first, min(stop, high + 1))

    def of(self, batch: Batch) -> list[int]:
        """The numbers of the records of a batch that may count."""
        metadata = unpack_metadata(batch.metadata)
        low, high = self.times
        times = metadata.timestamps or [metadata.timestamp] * batch.count
        keys = metadata.keys or [None] * batch.count
        return [
            number
            for number, (at, key) in enumerate(zip(times, keys, strict=True))
            if low <= at <= high and (self.keys is None or key in self.keys)
        ]

    @property
    def choose_records(self) -> bool:
        """Whether there are conditions that each record has to be looked at for."""
        return self.keys is not None or self.times != (-_FOREVER, _FOREVER)


def conditions_in(filters: Iterable[Filter]) -> Conditions:
    """The conditions that the source understands; the others are Spark's alone."""
    found = Conditions()
    for each in filters:
        path: Sequence[str] = getattr(each, "attribute", ())
        value: Any = getattr(each, "value", None)
        if len(path) != 1 or value is None:  # None is also a time that Python cannot represent.
            continue
        kind = type(each).__name__
        values = tuple(value) if kind == "In" else (value,)
        if path[0] == "offset" and all(type(one) is int for one in values):
            found = replace(found, offsets=_narrowed(found.offsets, kind, values))
        elif path[0] == "timestamp" and all(isinstance(one, datetime) and one.tzinfo for one in values):
            instants = tuple((one - _EPOCH) // timedelta(microseconds=1) for one in values)
            found = replace(found, times=_narrowed(found.times, kind, instants))
        elif path[0] == "key" and kind in _EQUALITY and all(isinstance(one, bytes) for one in values):
            keys = frozenset(values)
            found = replace(found, keys=keys if found.keys is None else found.keys & keys)
        elif path[0] == "endpoint" and kind in _EQUALITY and all(isinstance(one, str) for one in values):
            names = frozenset(values)
            found = replace(found, endpoints=names if found.endpoints is None else found.endpoints & names)
    return found


_EQUALITY: Final = ("EqualTo", "EqualNullSafe", "In")


def _narrowed(bounds: tuple[int, int], kind: str, values: tuple[int, ...]) -> tuple[int, int]:
    low, high = bounds
    if not values:
        return bounds
    if kind in _EQUALITY:
        return max(low, min(values)), min(high, max(values))
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return max(low, values[0]), high
    if kind in ("LessThan", "LessThanOrEqual"):
        return low, min(high, values[0])
    return bounds
