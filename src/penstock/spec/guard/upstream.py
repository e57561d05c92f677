"""The guard's side towards the Publisher: what was requested, and how it is passed on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

from penstock.spec.guard.reports import Propagates, Report, cancel_raised, is_new, request_raised
from penstock.spec.interfaces import UNBOUNDED, Subscription
from penstock.spec.violations import RuleViolation


class TryLock:
    """A lock that is only ever tried, never waited for, and that knows which thread holds it.

    User code may run while it is held: no thread blocks on it, so no thread can deadlock on it. The pattern
    is always the same and loses no work: *queue the work, then try to take the lock; release the lock, then
    look for work*.
    """

    __slots__ = ("_flag", "_holder")

    def __init__(self) -> None:
        self._flag = threading.Lock()
        self._holder: int | None = None

    def take(self, *, anonymously: bool = False) -> bool:
        """Take the lock if it is free, and return whether that worked.

        A holder that took it ``anonymously`` is invisible to ``is_mine`` and ``is_anothers``.
        """
        if not self._flag.acquire(blocking=False):
            return False
        if not anonymously:
            self._holder = get_ident()
        return True

    def give_back(self) -> None:
        """Release the lock."""
        self._holder = None
        self._flag.release()

    def is_mine(self) -> bool:
        """Tell whether this thread holds the lock."""
        return self._holder == get_ident()

    def is_anothers(self) -> bool:
        """Tell whether another thread holds the lock and is not anonymous."""
        holder = self._holder
        return holder is not None and holder != get_ident()


class Upstream:
    """Holds the Publisher's Subscription and calls it: requests one at a time, cancel once and at any time.

    ``requested`` is the number of elements requested from the Publisher since the beginning, which it may
    have sent (§1.1). ``waiting`` is the demand that has not been passed on yet.
    """

    __slots__ = (
        "_closed",
        "_failed",
        "_lock",
        "_propagates",
        "_report",
        "_source",
        "_subscription",
        "_turn",
        "requested",
        "waiting",
    )

    def __init__(
        self, source: str, report: Report, failed: Callable[[RuleViolation], None], propagates: Propagates
    ) -> None:
        """Speak for ``source`` in messages; call ``failed`` when a request could not be served."""
        self._propagates = propagates
        self._source = source
        self._report = report
        self._failed = failed
        self._lock = threading.Lock()
        self._turn = TryLock()
        self._subscription: Subscription | None = None
        self._closed = False
        self.requested = 0
        self.waiting = 0

    def attach(self, subscription: Subscription) -> bool:
        """Take the Publisher's Subscription; after ``cancel`` or ``forget``, cancel it and return False."""
        with self._lock:
            wanted = not self._closed
            if wanted:
                self._subscription = subscription
        if not wanted:
            self.dismiss(subscription)
        return wanted

    def add(self, n: int) -> None:
        """Add ``n`` to what is waiting, which stays at 2^63-1 once it is there (§3.17)."""
        with self._lock:
            self.waiting = min(self.waiting + n, UNBOUNDED)

    def pass_on(self) -> None:
        """Tell the Publisher what is waiting, or leave that to the call that is already telling it.

        A Publisher that answers inside ``request`` comes back here through the Subscriber's next request; it
        finds the turn taken, and the loop goes round once more instead of the stack going deeper (§3.3).
        """
        while self.waiting and self._turn.take():
            try:
                with self._lock:
                    n, self.waiting = self.waiting, 0
                    self.requested += n
                self.call_request(n)
            finally:
                self._turn.give_back()

    def call_request(self, n: Any) -> None:
        """Call the Publisher's ``request``, whatever ``n`` is; what it raises ends the stream (§3.16)."""
        subscription = self._subscription
        if subscription is not None:
            try:
                subscription.request(n)
            except BaseException as error:
                if is_new(error, self._propagates):
                    self._failed(request_raised(self._source, n, error))
                if self._propagates(error):
                    raise

    def holds(self, subscription: Subscription) -> bool:
        """Tell whether this is the Publisher's Subscription that is in use."""
        return self._subscription is subscription

    def cancel(self) -> None:
        """Cancel the Publisher's Subscription, the first time; let go of it (§3.7, §3.13)."""
        subscription = self.forget()
        if subscription is not None:
            self.dismiss(subscription)

    def forget(self) -> Subscription | None:
        """Let go of the Publisher's Subscription without cancelling it; return it if it was still there."""
        with self._lock:
            subscription, self._subscription = self._subscription, None
            self._closed = True
        return subscription

    def dismiss(self, subscription: Subscription) -> None:
        """Cancel a Subscription; what it raises is reported and goes no further (§3.15)."""
        try:
            subscription.cancel()
        except BaseException as error:
            if is_new(error, self._propagates):
                self._report(cancel_raised(self._source, error))
            if self._propagates(error):
                raise
