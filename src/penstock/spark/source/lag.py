"""How far a query is behind the logs that it reads, for Spark's progress reports.

Spark has no metrics of Python sources. But it asks a stream reader where its source ends, and shows the
answer as ``latestOffset`` in ``StreamingQueryProgress``. The figures of :class:`Lag` are a part of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["Lag"]

_LOOK_EVERY: Final = 1.0
"""Seconds between two looks at the time of the next record: each is a question to a gateway."""
_RATE_OVER: Final = 10.0
"""Seconds over which the rate of arrival is counted."""


class Lag:
    """Follows the ends of the logs, and the end of each batch."""

    def __init__(self, time_of: Callable[[str, int], int | None]) -> None:
        self._time_of = time_of
        """The time of a record in microseconds since 1970; None if it cannot be had."""
        self._looked = float("-inf")
        self._oldest: int | None = None
        """The time of the oldest record that is in no batch yet."""
        self._arrived: deque[tuple[float, int]] = deque()
        self._behind: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._waited = 0.0
        self._held: dict[str, tuple[int, int]] = {}

    def planned(
        self,
        heads: Mapping[str, int],
        ends: Mapping[str, int],
        waited: float,
        held: Mapping[str, tuple[int, int]],
    ) -> None:
        """Note where the logs end, where the planned batch ends, and how long it waited for records.

        ``held`` are the records and the bytes that each log has.
        """
        now = time.monotonic()
        self._behind = {endpoint: max(head - ends[endpoint], 0) for endpoint, head in heads.items()}
        self._next = dict(ends)
        self._waited, self._held = waited, dict(held)
        self._arrived.append((now, sum(heads.values())))
        while len(self._arrived) > 2 and now - self._arrived[1][0] > _RATE_OVER:
            self._arrived.popleft()
        if not any(self._behind.values()):
            self._oldest = None
        elif self._oldest is None or now - self._looked >= _LOOK_EVERY:
            self._looked = now
            self._oldest = self._oldest_waiting()

    def _oldest_waiting(self) -> int | None:
        times = [
            found
            for endpoint, behind in self._behind.items()
            if behind and (found := self._time_of(endpoint, self._next[endpoint])) is not None
        ]
        return min(times, default=None)

    def figures(self) -> dict[str, float | int]:
        """The figures, by the names that the page explains."""
        (since, before), (until, after) = self._arrived[0], self._arrived[-1]
        age = 0.0 if self._oldest is None else time.time() - self._oldest / 1e6
        return {
            "recordsBehind": sum(self._behind.values()),
            "bytesBehind": self._bytes_behind(),
            "secondsBehind": round(max(age, 0.0), 3),
            "recordsPerSecond": round((after - before) / (until - since), 1) if until > since else 0.0,
            "waitedSeconds": round(self._waited, 3),
            "logBytes": sum(nbytes for _, nbytes in self._held.values()),
        }

    def _bytes_behind(self) -> int:
        """About how many bytes the records have that are in no batch yet: as many as others in their log.

        To count them, the gateway would have to look at each batch of its log.
        """
        logs = ((self._behind[endpoint], *held) for endpoint, held in self._held.items())
        return round(sum(behind * nbytes / records for behind, records, nbytes in logs if records))
