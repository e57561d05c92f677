"""How fast something may go: the one token bucket that streams, sockets and gateways share.

>>> bucket = TokenBucket(rate=10, burst=3, now=0.0)
>>> [bucket.take(0.0) for _ in range(4)]
[0.0, 0.0, 0.0, 0.1]
>>> bucket.take(0.1)
0.0
"""

from __future__ import annotations

from typing import Final

__all__ = ["TokenBucket"]

_MOMENT: Final = 1e-6
"""Seconds that are too few to wait for. Sums of fractions are never exact, and timers are not that good."""


class TokenBucket:
    """Fills with ``rate`` tokens per second, up to ``burst``; it is full in the beginning.

    It has no clock and no lock: the caller passes the time, and calls it from one thread at a time.
    """

    __slots__ = ("_burst", "_rate", "_since", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = self._burst
        self._since = now

    def take(self, now: float, cost: float = 1.0) -> float:
        """Take ``cost`` tokens. Returns 0, or the seconds to wait if they are not there; then none is taken.

        More than a burst can never be there at once. Such a cost is taken when the bucket is full; it leaves
        a debt, so what follows waits longer and the rate holds.
        """
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._rate)
        self._since = now
        missing = min(cost, self._burst) - self._tokens
        if missing > _MOMENT * self._rate:
            return missing / self._rate
        self._tokens -= cost
        return 0.0

    def give_back(self, cost: float = 1.0) -> None:
        """Put tokens back: what they were taken for did not happen."""
        self._tokens = min(self._burst, self._tokens + cost)
