"""One turn of an event loop: what comes in at once goes out at once.

A chunk that is received may hold hundreds of lines, and each is an element that somebody sends on before the
next one comes. So what is sent while a chunk is being dealt with is kept until that is done, and written
together. Nothing waits for a timer, or for another turn of the loop.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Protocol
from weakref import WeakKeyDictionary

__all__ = ["Turn"]


class Joining(Protocol):
    """Keeps what it is given until the turn is over."""

    def end_burst(self) -> None:
        """Write it."""
        ...


class Turn:
    """What the receivers and senders of one event loop share."""

    __slots__ = ("active", "joining")

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Turn]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.active = False
        """A chunk is being dealt with."""
        self.joining: list[Joining] = []

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Turn:
        """The turns of this loop."""
        turn = cls._of.get(loop)
        if turn is None:
            turn = cls._of[loop] = cls()
        return turn

    def end(self) -> None:
        """The chunk has been dealt with."""
        self.active = False
        while self.joining:
            self.joining.pop().end_burst()
