"""A bound on the attempts of many streams together.

Each stream that retries three times is polite; a thousand of them are three thousand requests for a server
that is already in trouble. A budget is shared by all of them, and limits how many attempts there are in all.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from datetime import timedelta

from penstock.arguments import a_count, seconds

__all__ = ["RetryBudget"]


class RetryBudget:
    """At most ``retries`` new attempts within any ``per`` seconds, for all streams that share it.

    >>> budget = RetryBudget(100, per=60)
    >>> policy = Retry.backoff(3, first=0.1, budget=budget)
    >>> budget
    RetryBudget(100, per=60.0)

    Give the same object to the policies of all streams that ask the same service. A stream that finds the
    budget spent fails with RetryExhausted at once, and the cause is its last error.
    """

    def __init__(self, retries: int, *, per: float | timedelta) -> None:
        """Allow ``retries`` attempts in any period of ``per`` seconds."""
        self._retries = a_count(retries, "RetryBudget()")
        self._per = seconds(per, "RetryBudget(per=…)", positive=True)
        self._spent: deque[float] = deque()
        """When each of the attempts was made that still count."""
        self._mutex = allocate_lock()

    def spend(self, now: float) -> bool:
        """Take one attempt out of the budget; False if there is none left at the moment."""
        with self._mutex:
            while self._spent and self._spent[0] <= now - self._per:
                self._spent.popleft()
            if len(self._spent) >= self._retries:
                return False
            self._spent.append(now)
            return True

    def __repr__(self) -> str:
        return f"RetryBudget({self._retries}, per={self._per})"
