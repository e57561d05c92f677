"""How long to wait before the next attempt: the one backoff that reconnecting and retrying share.

>>> policy = Backoff(first=0.2, longest=30.0, jitter=0.0)
>>> [policy.pause(attempt) for attempt in (1, 2, 3, 20)]
[0.2, 0.4, 0.8, 30.0]
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

__all__ = ["Backoff"]

_LARGEST_EXPONENT: Final = 1000
"""Beyond it a float overflows, and every pause has long reached ``longest``."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``first`` up to ``longest`` seconds, and how long to go on at all."""

    first: float
    """Seconds before the first new attempt."""
    longest: float = 60.0
    """The most seconds between two attempts."""
    jitter: float = 0.5
    """Each pause is moved at random by up to this part of itself, from 0 to 1. A thousand clients that lost
    the same server then do not all come back in the same moment."""
    patience: float = inf
    """Seconds without success after which to give up."""

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.longest:
            raise ValueError(
                f"Backoff(first={self.first}, longest={self.longest}): the first pause must not be negative, "
                "nor above the longest"
            )
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"Backoff(jitter={self.jitter}): give a part of the pause, from 0 to 1")
        if not self.patience > 0:
            raise ValueError(f"Backoff(patience={self.patience}): give seconds above 0")

    def pause(self, attempt: int, randomness: Callable[[], float] = random.random) -> float:
        """Seconds to wait before new attempt number ``attempt``, counted from 1."""
        pause = min(self.longest, self.first * 2.0 ** min(attempt - 1, _LARGEST_EXPONENT))
        return max(0.0, pause * (1 + self.jitter * (2 * randomness() - 1))) if self.jitter else pause

    def gives_up(self, waited: float) -> bool:
        """Whether ``waited`` seconds without success are enough."""
        return waited >= self.patience
