"""What a batch costs: ``a + b * n`` seconds for ``n`` records, as the batches that have run show it."""

from __future__ import annotations

from math import sqrt
from typing import Final

__all__ = ["SURPRISE", "BatchCost", "is_far_from"]

SURPRISE: Final = 2.0
"""If a batch takes this many times longer, or shorter, than expected, it is a surprise."""
_MEMORY: Final = 0.7
"""The weight of earlier batches when a new batch has run."""
_LEAST_SPREAD: Final = 1e-3
"""If the sizes of batches vary less, relative to their squares, the two costs cannot be told apart."""
_LEAST_NOISE: Final = 0.05
"""The share of a duration that may be chance, however well a line fits."""
_DOUBT: Final = 2.0
"""How many standard errors steeper than the line the costs may be."""


class BatchCost:
    """A line through the batches that have run; what is long ago counts less."""

    def __init__(self) -> None:
        self.fixed = 0.0
        """Seconds for an empty batch (a)."""
        self.per_record = 0.0
        """Seconds for each record (b)."""
        self.is_told_apart = False
        """Whether batches of different sizes have shown both costs."""
        self._weight = self._n = self._t = self._nn = self._nt = self._tt = 0.0

    def seconds(self, records: int) -> float:
        """How long a batch of so many records should take; 0 if nothing is known yet."""
        return self.fixed + self.per_record * records

    def best_size(self, target: float) -> float:
        """How many records take as long as the target, or at least as long as an empty batch."""
        return max(target - self.fixed, self.fixed) / self.per_record

    @property
    def mean_size(self) -> float:
        """The mean size of the batches that count."""
        return self._n / self._weight

    def learn(self, records: int, seconds: float) -> None:
        """Draw the line again, with one more batch."""
        self._add(records, seconds, _MEMORY)
        self.is_told_apart = self._fit(records, seconds)

    def learn_anew(self, records: int, seconds: float) -> None:
        """Draw the line again, without the batches before this one."""
        self._add(records, seconds, 0.0)
        self.is_told_apart = self._fit(records, seconds)

    def suspected(self, records: int, seconds: float) -> BatchCost:
        """The costs if this batch alone is to be believed."""
        suspected = BatchCost()
        suspected.fixed = min(self.fixed, seconds / 2)
        suspected.per_record = (seconds - suspected.fixed) / records
        return suspected

    def safe_size(self, seconds: float) -> float:
        """How many records take no longer than so many seconds, though the line may be wrong by chance."""
        mean = self._t / self._weight
        variance = self._nn / self._weight - self.mean_size**2
        if variance <= 0:
            return self.mean_size
        slope = (self._nt / self._weight - self.mean_size * mean) / variance
        unexplained = max(self._tt / self._weight - mean**2 - slope**2 * variance, 0.0)
        error = sqrt((unexplained + (_LEAST_NOISE * mean) ** 2) / variance / self._weight)
        return self.mean_size + (seconds - mean) / (max(slope, 0.0) + _DOUBT * error)

    def _add(self, n: float, t: float, memory: float) -> None:
        self._weight = self._weight * memory + 1
        self._n = self._n * memory + n
        self._t = self._t * memory + t
        self._nn = self._nn * memory + n * n
        self._nt = self._nt * memory + n * t
        self._tt = self._tt * memory + t * t

    def _fit(self, n: float, t: float) -> bool:
        """Fit a line through the batches; False if they were all of one size."""
        spread = self._weight * self._nn - self._n * self._n
        if spread > _LEAST_SPREAD * self._weight * self._nn:
            slope = (self._weight * self._nt - self._n * self._t) / spread
            # If larger batches take no longer, something else takes the time, perhaps the wait for the next
            # trigger. Then records cost next to nothing; larger batches will show how little.
            mean = self._t / self._weight
            if slope * self._n < -0.2 * self._t:
                # If smaller batches take longer, what was learned is outdated.
                self._add(n, t, 0.0)
                return self._fit(n, t)
            self.per_record = max(slope, 0.1 * mean * self._weight / self._n)
            self.fixed = max(mean - self.per_record * self._n / self._weight, 0.0)
            if self.fixed == 0.0:
                self.per_record = self._t / self._n
            return True
        # We cannot separate the two costs, so all but the known fixed cost counts for the records.
        self.fixed = min(self.fixed, t / 2)
        self.per_record = (t - self.fixed) / n
        return False


def is_far_from(expected: float, seconds: float) -> bool:
    """Whether a batch that takes so long is a surprise."""
    return not expected / SURPRISE < seconds < expected * SURPRISE
