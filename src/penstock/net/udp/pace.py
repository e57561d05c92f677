"""How fast to send where nobody on the way says stop."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.arguments import a_count, a_number

__all__ = ["Pacer", "SendPace"]

_ONE = 1.0 - 1e-9
"""A whole token, after sums of fractions. What is missing would be a wait too short for any clock."""


@dataclass(frozen=True, slots=True)
class SendPace:
    """So many datagrams per second, and up to ``burst`` of them at once after a rest."""

    datagrams_per_second: float
    burst: int

    @classmethod
    def of(cls, datagrams_per_second: float, burst: int | None) -> SendPace:
        """Check what a user said. Without a ``burst``, it is what belongs to a hundredth of a second.

        The timers of event loops count in milliseconds: with bursts of one, only a few hundred datagrams per
        second would go out.
        """
        rate = a_number(datagrams_per_second, "pace()", above=0)
        return cls(rate, max(1, int(rate / 100)) if burst is None else a_count(burst, "burst of pace()"))


class Pacer:
    """A token bucket: it fills with time, and each datagram takes one token out."""

    __slots__ = ("_burst", "_rate", "_since", "_tokens")

    def __init__(self, pace: SendPace, now: float) -> None:
        self._rate = pace.datagrams_per_second
        self._burst = float(pace.burst)
        self._tokens = self._burst
        self._since = now

    def take(self, now: float) -> float:
        """Take a token. Returns 0, or the seconds to wait if there is none."""
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._rate)
        self._since = now
        if self._tokens >= _ONE:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate

    def give_back(self) -> None:
        """Put a token back: the datagram was not sent after all."""
        self._tokens = min(self._burst, self._tokens + 1.0)
