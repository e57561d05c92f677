"""The demand of a subscriber, which several subscriptions may share, and whose turn it is to signal."""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from penstock.spec import UNBOUNDED

__all__ = ["Demand", "Turns"]


class Demand:
    """How many elements were requested and not delivered yet; from any thread."""

    __slots__ = ("_mutex", "is_paused", "left", "open")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.open = 0
        """How many were requested,"""
        self.left = 0
        """and how many of them may be delivered now: none while the subscriber has paused."""
        self.is_paused = False

    def add(self, n: int) -> None:
        """So many more were requested."""
        with self._mutex:
            self.open = min(self.open + n, UNBOUNDED)
            if not self.is_paused:
                self.left = self.open

    def spend(self, n: int) -> None:
        """So many were delivered; unbounded demand stays unbounded."""
        with self._mutex:
            if self.open < UNBOUNDED:
                self.open -= n
                if not self.is_paused:
                    self.left = self.open

    def pause(self) -> None:
        """Nothing may be delivered until :meth:`resume`; what was requested stays so."""
        with self._mutex:
            self.is_paused = True
            self.left = 0

    def resume(self) -> None:
        """What was requested may be delivered again."""
        with self._mutex:
            self.is_paused = False
            self.left = self.open


class Signaller(Protocol):
    """Somebody who waits for a turn."""

    def wake(self) -> None:
        """It may be its turn."""
        ...


class Turns:
    """One at a time signals the subscriber, and those who wait have their turns in order.

    Nobody blocks: who does not get the turn goes on with something else, and is woken when it has it.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._holder: Signaller | None = None
        self._waiting: deque[Signaller] = deque()

    def take(self, who: Signaller) -> bool:
        """Whether it is the turn of ``who`` now; otherwise it waits for it."""
        with self._mutex:
            if self._holder is None:
                self._holder = who
            elif self._holder is not who and who not in self._waiting:
                self._waiting.append(who)
            return self._holder is who

    def give_back(self, who: Signaller) -> None:
        """The turn of ``who`` is over, or it does not wait for one any more."""
        with self._mutex:
            if self._holder is not who:
                if who in self._waiting:
                    self._waiting.remove(who)
                return
            following = self._holder = self._waiting.popleft() if self._waiting else None
        if following is not None:
            following.wake()
