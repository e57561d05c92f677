"""Closes connections on which nothing moves.

Nothing is done for a chunk but to count it. A timer looks at the figures a few times per limit: a connection
is closed after the limit, and no later than a quarter of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.net.errors import IdleTimeout
from penstock.net.metrics import Traffic
from penstock.net.settings import Settings

__all__ = ["IdleWatch", "Limit", "limits_of"]

_LOOKS: Final = 4
"""How often per limit the figures are looked at."""


@dataclass(slots=True)
class Limit:
    """Something that has to move once in a while."""

    what: str
    seconds: float
    progress: Callable[[], object]
    """A figure that is another one when something has moved."""
    due: Callable[[], bool]
    """Whether it has to move at all at the moment."""
    last: object = None
    since: float = 0.0
    looks: int = 0
    """How often it has been seen not to move."""


def limits_of(
    settings: Settings,
    traffic: Traffic,
    transport: Any,
    *,
    receiving: Callable[[], bool],
    flushing: Callable[[], bool],
) -> list[Limit]:
    """The limits that the settings put on a connection."""

    def left() -> int:
        """Bytes that have left this process."""
        return traffic.sent - int(transport.get_write_buffer_size())

    def anything() -> tuple[int, int]:
        return traffic.received, left()

    def to_be_taken() -> bool:
        return transport.get_write_buffer_size() > 0 or flushing()

    limits = (
        ("nothing was received or sent", settings.idle_timeout, anything, lambda: True),
        ("the peer sent nothing", settings.read_timeout, lambda: traffic.received, receiving),
        ("the peer took nothing of what was sent", settings.write_timeout, left, to_be_taken),
    )
    return [
        Limit(what, seconds, progress, due) for what, seconds, progress, due in limits if seconds is not None
    ]


class IdleWatch:
    """The limits of one connection."""

    __slots__ = ("_expire", "_limits", "_loop", "_period", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: list[Limit],
        expire: Callable[[IdleTimeout], object],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._expire = expire
        self._period = min(limit.seconds for limit in limits) / _LOOKS
        for limit in limits:
            limit.last, limit.since = limit.progress(), loop.time()
        self._timer: Any = loop.call_later(self._period, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        for limit in self._limits:
            progress = limit.progress()
            if progress != limit.last or not limit.due():
                limit.last, limit.since, limit.looks = progress, now, 0
                continue
            limit.looks += 1
            # A loop that was held up has not looked, and has not read what came meanwhile either.
            if now - limit.since >= limit.seconds and limit.looks >= _LOOKS:
                self._expire(IdleTimeout(f"{limit.what} for {limit.seconds:g} s"))
                return
        self._timer = self._loop.call_later(self._period, self._look)

    def cancel(self) -> None:
        """Watch no more."""
        self._timer.cancel()
