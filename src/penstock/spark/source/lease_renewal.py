"""The leases of the cursors whose records tasks of this process read.

A task may stand still for longer than a lease, because its query does. So another thread renews the leases.
One thread does it for all tasks of a process: to start one for each task took a millisecond or more of each
small batch.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

__all__ = ["LeaseRenewal", "renewed"]

_log = logging.getLogger("penstock.spark")

_KEEPS: Final = 60.0
"""Seconds for which the thread waits for the next task before it ends."""


class LeaseRenewal:
    """Calls functions at intervals, on a thread of its own, until they are not needed any more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[object, tuple[float, float, Callable[[], None]]] = {}
        """When a function is next called, its interval, and the function."""
        self._is_running = False

    @contextmanager
    def each(self, seconds: float, renew: Callable[[], None]) -> Iterator[None]:
        """Call a function every so many seconds while the block runs; the first time after that time."""
        key = object()
        with self._changed:
            due = time.monotonic() + seconds
            is_next = all(due < other for other, _, _ in self._due.values())
            self._due[key] = due, seconds, renew
            if not self._is_running:
                threading.Thread(target=self._run, name="penstock-spark-lease", daemon=True).start()
                self._is_running = True
            elif is_next:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                del self._due[key]

    def _run(self) -> None:
        idle_since = time.monotonic()
        while True:
            with self._changed:
                now = time.monotonic()
                if self._due:
                    idle_since = now
                elif now - idle_since >= _KEEPS:
                    self._is_running = False
                    return
                due = [(key, *found) for key, found in self._due.items() if found[0] <= now]
                for key, _, seconds, renew in due:
                    self._due[key] = now + seconds, seconds, renew
                if not due:
                    until = min((when for when, _, _ in self._due.values()), default=idle_since + _KEEPS)
                    # Not for longer: what is due in an hour may not be needed any more.
                    self._changed.wait(min(max(0.0, until - now), _KEEPS))
            for _, _, _, renew in due:
                _call(renew)


def _call(renew: Callable[[], None]) -> None:
    try:
        renew()
    except Exception:
        # The others need their leases all the same. What a gateway may answer is the caller's to report.
        _log.exception("could not renew the lease of a cursor")


_renewal = LeaseRenewal()
_process = os.getpid()


def renewed(seconds: float, renew: Callable[[], None]) -> AbstractContextManager[None]:
    """Like :meth:`LeaseRenewal.each`, with the thread of this process."""
    global _renewal, _process
    if _process != os.getpid():
        _renewal, _process = LeaseRenewal(), os.getpid()  # A fork has no threads of its parent.
    return _renewal.each(seconds, renew)
