"""Policies for ``retry_when``."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.arguments import a_function, a_whole_number, seconds
from penstock.backoff import Backoff
from penstock.streams.schedulers import Scheduler, shared_timer

__all__ = ["Retry", "RetryExhausted"]


class RetryExhausted(RuntimeError):
    """All attempts failed; the last error is the cause."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how fast to subscribe again after an error.

    >>> Retry.backoff(3, first=0.1)                        # doctest: +ELLIPSIS
    Retry(attempts=3, first=0.1, ...)

    The pause doubles with each attempt, up to ``longest``, and then changes at random by up to ``jitter`` of
    itself, so that a thousand clients that failed together do not come back together.
    """

    attempts: int
    first: float = 0.0
    longest: float = 60.0
    jitter: float = 0.5
    only: tuple[type[BaseException], ...] = (Exception,)
    """Any other error is passed on at once."""
    transient: bool = False
    """Whether an element that arrives resets the count."""
    scheduler: Callable[[], Scheduler] = field(default=shared_timer, repr=False)
    """Where the pause is spent and the new attempt starts; pass virtual time here in a test."""
    randomness: Callable[[], float] = field(default=random.random, repr=False)
    """A number from 0 to 1."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attempts", a_whole_number(self.attempts, "Retry()"))
        if self.attempts < 1:
            raise ValueError(f"a retry needs at least 1 attempt, not {self.attempts}")
        for name in ("first", "longest"):
            pause = getattr(self, name)
            if isinstance(pause, int | float) and pause < 0:
                raise ValueError(f"the pauses of a retry must not be negative: {name}={pause}")
            object.__setattr__(self, name, seconds(pause, "Retry()"))
        a_function(self.scheduler, "Retry()")
        a_function(self.randomness, "Retry()")
        if self.longest < self.first:
            raise ValueError(
                f"of the pauses of a retry, first={self.first} must not exceed longest={self.longest}"
            )
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter needs a fraction of the pause, from 0 to 1, not {self.jitter}")

    @classmethod
    def backoff(
        cls,
        attempts: int,
        *,
        first: float,
        longest: float = 60.0,
        jitter: float = 0.5,
        only: tuple[type[BaseException], ...] = (Exception,),
        transient: bool = False,
        scheduler: Scheduler | None = None,
    ) -> Retry:
        """Pauses that start at ``first`` seconds and double."""
        where = shared_timer if scheduler is None else lambda: scheduler
        return cls(attempts, first, longest, jitter, only, transient, where)

    @classmethod
    def fixed(cls, attempts: int, *, pause: float, scheduler: Scheduler | None = None) -> Retry:
        """The same pause each time."""
        where = shared_timer if scheduler is None else lambda: scheduler
        return cls(attempts, pause, pause, 0.0, scheduler=where)

    def pause(self, attempt: int, error: BaseException) -> float:
        """Seconds to wait before attempt number ``attempt``; raises the error that the stream fails with."""
        if not isinstance(error, self.only):
            raise error
        if attempt > self.attempts:
            raise RetryExhausted(f"gave up after {self.attempts} more attempts: {error!r}") from error
        return Backoff(self.first, self.longest, self.jitter).pause(attempt, self.randomness)
