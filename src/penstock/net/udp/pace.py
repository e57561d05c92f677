"""How fast to send where nobody on the way says stop."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pace", "Pacer"]

_ONE = 1.0 - 1e-9
"""A whole token, after sums of fractions. What is missing would be a wait too short for any clock."""


@dataclass(frozen=True, slots=True)
class Pace:
    """So many datagrams a second, and up to ``burst`` of them at once after a rest."""

    datagrams_per_second: float
    burst: int

    @classmethod
    def of(cls, datagrams_per_second: float, burst: int | None) -> Pace:
        """Without a word about bursts, what belongs to a hundredth of a second may go at once.

        The timers of event loops count in milliseconds: one by one, no more than a few hundred would go.
        """
        pace = cls(datagrams_per_second, 1 if burst is None else burst)
        return (
            pace if burst is not None else cls(datagrams_per_second, max(1, int(datagrams_per_second / 100)))
        )

    def __post_init__(self) -> None:
        rate, burst = self.datagrams_per_second, self.burst
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0:
            raise ValueError(f"pace({rate!r}): give the number of datagrams in a second, above 0")
        if isinstance(burst, bool) or not isinstance(burst, int) or burst < 1:
            raise ValueError(f"pace(burst={burst!r}): give a whole number of at least 1")


class Pacer:
    """A bucket that fills with time; each datagram takes one token out."""

    __slots__ = ("_burst", "_rate", "_since", "_tokens")

    def __init__(self, pace: Pace, now: float) -> None:
        self._rate = pace.datagrams_per_second
        self._burst = float(pace.burst)
        self._tokens = self._burst
        self._since = now

    def take(self, now: float) -> float:
        """Take a token; or how many seconds there will be none."""
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._rate)
        self._since = now
        if self._tokens >= _ONE:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate

    def give_back(self) -> None:
        """It was not sent after all."""
        self._tokens = min(self._burst, self._tokens + 1.0)
