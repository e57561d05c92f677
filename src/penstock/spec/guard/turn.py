"""Who may act now: one thread at a time, and nobody ever waits."""

from __future__ import annotations

import threading
from threading import get_ident


class Turn:
    """A right to act that one thread can hold; others are refused at once and leave their work behind.

    It is a test-and-set flag that knows its holder. Code of the user may run while the turn is held, which
    would be wrong for a lock: nobody blocks on a turn, so nobody can deadlock on it. The pattern is always
    the same, and loses no work: *leave the work, then try to take the turn; give the turn back, then look
    for work*.
    """

    __slots__ = ("_flag", "_holder")

    def __init__(self) -> None:
        self._flag = threading.Lock()
        self._holder: int | None = None

    def take(self, *, anonymously: bool = False) -> bool:
        """Take the turn if it is free, and tell whether that worked.

        A holder that took it ``anonymously`` is not seen by ``is_mine`` and ``is_anothers``.
        """
        if not self._flag.acquire(blocking=False):
            return False
        if not anonymously:
            self._holder = get_ident()
        return True

    def give_back(self) -> None:
        """Let others take the turn."""
        self._holder = None
        self._flag.release()

    def is_mine(self) -> bool:
        """Tell whether this thread holds the turn."""
        return self._holder == get_ident()

    def is_anothers(self) -> bool:
        """Tell whether another thread holds the turn, by name."""
        holder = self._holder
        return holder is not None and holder != get_ident()
