"""How much may be on its way to a subscriber: what its line carries in a moment.

Credit says how much a subscriber has room for, and nothing about the line. What is more than the line carries
waits in queues, and everything that is said later waits behind it: a sign of life, an end, an error. So the
gateway watches how long it takes until something that it sent has arrived. While that is short, it sends
more and more ahead; when it gets long, only what the line has carried in a second.

The beginning is slow, because nothing is known of the line. On a fast one it is over after a few round trips,
in which TCP does the same.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

__all__ = ["Pace"]

_FIRST: Final = 64 * 1024
"""Bytes that may be on their way in the beginning,"""
_LEAST: Final = 16 * 1024
"""and on the slowest line."""
_QUARTER: Final = 4
"""A message has a quarter of that at most: then others get through between them. On a quick line it need not
be cut."""
_QUICK: Final = 0.25
"""Seconds from the sending to the answer on a quick line: there, four times as much is tried, not twice."""
_AT_ONCE: Final = 0.01
"""Seconds after which even sixteen times as much is tried: a line of this machine, or of this house."""
_SHORT: Final = 0.5
"""Seconds in queues that allow more to be sent ahead."""
_LONG: Final = 2.0
"""Seconds in queues that are too many."""


class Pace:
    """The pace of one session. Bytes are counted from its beginning, as in its credit."""

    def __init__(self, most: int) -> None:
        self.ahead = min(_FIRST, most)
        """How many bytes may be on their way."""
        self._most = most
        self._asked: deque[tuple[int, float, int]] = deque()
        """Messages whose arrival will be told: bytes up to and with it, when it was sent, and how many bytes
        had arrived then."""
        self._fastest = inf
        """Seconds that a message takes if nothing is before it."""
        self._quick = False
        self._held = False
        """Whether something had to wait since more was last allowed."""
        self._grown_at = 0
        """Bytes that had been sent when that was: only what was sent later shows what has become of it."""

    @property
    def slow(self) -> bool:
        """Whether something is known of the line, and it is not a quick one."""
        return self._fastest < inf and not self._quick

    @property
    def message(self) -> int:
        """The most bytes in one message."""
        most = max(self.ahead, _LEAST)
        return most if self._quick else most // _QUARTER

    @property
    def ask_every(self) -> int:
        """The most bytes after which a message asks for an answer."""
        return max(self.ahead, _LEAST) // _QUARTER

    def may_send(self, on_way: int) -> bool:
        """Whether more may be sent while so many bytes are on their way."""
        if on_way < self.ahead:
            return True
        self._held = True
        return False

    def asked(self, sent: int, received: int, now: float) -> None:
        """A message was sent whose arrival will be told: so many bytes, with it, were sent until now."""
        self._asked.append((sent, now, received))

    def arrived(self, received: int, now: float) -> None:
        """So many bytes have arrived."""
        latest = None
        while self._asked and self._asked[0][0] <= received:
            latest = self._asked.popleft()
        if latest is None:
            return
        sent, when, before = latest
        took = max(now - when, 1e-6)
        self._fastest = min(self._fastest, took)
        queued = took - self._fastest
        self._quick = took < _QUICK
        carried = int((received - before) / took)
        if queued > _LONG:
            self.ahead = max(min(carried, self.ahead), min(_LEAST, self._most))
        elif queued < _SHORT and sent > self._grown_at and (self._held or carried * _QUICK > self.ahead):
            self._held = False
            factor = 16 if took < _AT_ONCE else 4 if self._quick else 2
            self.ahead = min(factor * self.ahead, self._most)
            self._grown_at = self._asked[-1][0] if self._asked else sent
