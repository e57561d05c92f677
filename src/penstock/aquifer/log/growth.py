"""When a log had how many records, so that a lag in records is also one in seconds.

The journal stores a time with each batch, but a reader that is far behind would have it read from the disk,
and that clock may jump. So the log notes now and then how far it has come, on a monotonic clock. Offsets from
before the gateway was started count as old as its start.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import Final

__all__ = ["Growth"]

_EVERY: Final = 0.05
"""Seconds between two samples, at first."""
_MOST: Final = 1024
"""Samples that are kept. When there are more, every second one goes, and the next ones are further apart."""


class Growth:
    """Samples of one log. The writer notes, any thread may ask."""

    def __init__(self, head: int) -> None:
        self._samples: tuple[list[int], list[float]] = [head], [time.monotonic()]
        """Offsets, and when the log had come so far. Replaced as a whole, so that both always agree."""
        self._every = _EVERY
        self._next = 0.0

    def grown(self, before: int) -> None:
        """The log goes beyond ``before`` from now on."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._every
        heads, times = self._samples
        if len(heads) >= _MOST:
            heads, times = heads[::2], times[::2]
            self._every *= 2
        self._samples = [*heads, before], [*times, now]

    def forget(self, first: int) -> None:
        """The log begins at ``first`` now: older samples are of no use."""
        heads, times = self._samples
        gone = bisect_right(heads, first) - 1
        if gone >= max(_MOST // 8, 1):
            self._samples = heads[gone:], times[gone:]
            self._every = max(_EVERY, self._every / 2)

    def age(self, offset: int, head: int) -> float:
        """For how many seconds the record at ``offset`` has been in the log; 0 if it is not there yet."""
        if offset >= head:
            return 0.0
        heads, times = self._samples
        noted = max(bisect_right(heads, offset) - 1, 0)
        return max(0.0, time.monotonic() - times[noted])
