"""Sends that wait for the one before them, on a connection whose owner wants that instead of an error."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.net.errors import SendRefused
from penstock.net.sender import Done

__all__ = ["SendQueue"]

Begin = Callable[[], Callable[[], object]]
"""Begins a send. Returns a function that stops it."""


class SendQueue:
    """Sends of one connection, in the order in which they were subscribed to; used on its loop only."""

    __slots__ = ("_beginning", "_most", "_waiting")

    def __init__(self, most: int) -> None:
        self._most = most
        self._beginning = False
        self._waiting: deque[_WaitingSend] = deque()

    def add(self, label: str, begin: Begin, done: Done) -> Callable[[], object]:
        """Begin this send when its turn has come. Returns a function that stops it, or takes it out."""
        if len(self._waiting) >= self._most:
            raise SendRefused(
                f"{label} {self._most:,} sends are waiting on this connection already, the limit of "
                "queue_sends(); wait for them, or merge the publishers and send them as one"
            )
        waiting = _WaitingSend(begin, done)
        self._waiting.append(waiting)

        def cancel() -> None:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            waiting.cancel()

        return cancel

    def go_on(self, idle: Callable[[], bool]) -> None:
        """Begin sends as long as none is under way.

        A send may end while it begins, and calls this again. A loop, not a recursion, begins the next one.
        """
        if self._beginning:
            return
        self._beginning = True
        try:
            while self._waiting and idle():
                self._waiting.popleft().start()
        finally:
            self._beginning = False

    def fail(self, error: Callable[[], BaseException]) -> None:
        """The connection is closed: none of them will have a turn."""
        while self._waiting:
            self._waiting.popleft().fail(error())


class _WaitingSend:
    """One send, from its place in the queue to its beginning."""

    __slots__ = ("_begin", "_cancel", "_done")

    def __init__(self, begin: Begin, done: Done) -> None:
        self._begin = begin
        self._done = done
        self._cancel: Callable[[], object] | None = None

    def start(self) -> None:
        """Its turn has come."""
        try:
            self._cancel = self._begin()
        except Exception as refused:
            self._done(refused)

    def fail(self, error: BaseException) -> None:
        """Its turn will not come."""
        self._done(error)

    def cancel(self) -> None:
        """Stop it, if it has begun."""
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
