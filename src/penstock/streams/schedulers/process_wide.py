"""Things of which a process has one, made when first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.streams.schedulers.forking import renew_after_fork

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
