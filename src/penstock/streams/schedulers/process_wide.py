"""Things of which a process has one, and what becomes of them in a forked child.

`os.fork()` copies memory, but only the thread that called it: in the child, worker threads are gone, and a
lock that one of them held stays locked for ever. Whatever owns threads or locks registers here and starts
afresh in the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar

from penstock.streams.schedulers.scheduler import Scheduler


class Renewable(Protocol):
    """Something that must start afresh in a forked child."""

    def renew_in_child(self) -> None:
        """Forget the parent's threads, replace every lock, and drop the work that the parent will do."""


_registered: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(owner: Renewable) -> None:
    """Have `owner.renew_in_child()` called in every forked child; `owner` is not kept alive by this."""
    _registered.add(owner)


def _renew_all() -> None:
    for owner in list(_registered):
        owner.renew_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_all)


T = TypeVar("T")


class ProcessWide(Generic[T]):
    """Makes its value once, whichever threads ask first; costs nothing until then."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._value: T | None = None
        self._lock = threading.Lock()
        renew_after_fork(self)

    def get(self) -> T:
        """The value, made by the first call."""
        if self._value is None:
            with self._lock:
                if self._value is None:
                    self._value = self._make()
        return self._value

    def renew_in_child(self) -> None:
        """Replace the lock after a fork; the value, if it needs to, renews itself."""
        self._lock = threading.Lock()


class SharedSchedulerError(RuntimeError):
    """Somebody tried to close a scheduler that the whole process shares."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"scheduler {name!r} is shared by the whole process and stays open; "
            "leave out close() and `with`, or make a scheduler of your own with pool(), single() or loop()"
        )
        self.name = name
        """Name of the scheduler that stays open."""

    def __reduce__(self) -> tuple[type[SharedSchedulerError], tuple[str]]:
        # The inherited way would build the copy from the whole message instead of the name.
        return type(self), (self.name,)


class StaysOpen(Scheduler):
    """Mixed into a shared scheduler: closing it would end streams its caller knows nothing of."""

    def close(self, timeout: float | None = None) -> None:
        """Refuse with `SharedSchedulerError`; the scheduler goes on."""
        raise SharedSchedulerError(self.name)

    def __enter__(self) -> Self:
        # Refused on the way in: on the way out the work would be done and the error a surprise.
        raise SharedSchedulerError(self.name)
