"""Cuts off connections to a web server that send no request.

uvicorn has a limit for connections, and waits for ever for the request of one. So a few hundred sockets on
which nothing is said would keep everybody else out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["PATIENCE", "IdleConnections"]

PATIENCE: Final = 10.0
"""Seconds that a connection may take to send a request."""
_LOOK: Final = 1.0
"""Seconds between two looks."""


class IdleConnections:
    """Watches the connections of a server of uvicorn that serves at most ``most`` of them at a time.

    ``connections`` returns those that are open. Each has its last request in ``cycle``, or None before the
    first; what has no such attribute, such as a WebSocket, is let alone.
    """

    def __init__(self, connections: Callable[[], Iterable[object]], most: int) -> None:
        self._connections = connections
        self._most = most
        self._idle: dict[object, tuple[object, float]] = {}
        """The connections without a request: their last one, and since when."""

    async def watch(self) -> None:
        """Look again and again, on the loop of the server, until this is cancelled."""
        while True:
            await asyncio.sleep(_LOOK)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Cut off those that have been idle for long; if they are many, also the oldest of the others."""
        idle: dict[object, tuple[object, float]] = {}
        for connection in self._connections():
            request = getattr(connection, "cycle", self)
            if request is None or (request is not self and getattr(request, "response_complete", False)):
                last, since = self._idle.get(connection, (None, now))
                idle[connection] = (request, since if last is request else now)
        self._idle = idle
        oldest = sorted(idle, key=lambda each: idle[each][1])
        too_many = len(oldest) - self._most // 2
        for number, silent in enumerate(oldest):
            seconds = now - idle[silent][1]
            # One that was not seen before may have its request on the way.
            if seconds >= PATIENCE or (number < too_many and seconds > 0):
                abort(silent)


def abort(connection: object) -> None:
    """End a connection at once, whatever is waiting to be sent."""
    end = getattr(getattr(connection, "transport", None), "abort", None)
    if end is not None:
        end()
