"""Members of reader groups that leave: they are answered when the journal has what they have acknowledged.

A member that stays repeats its acknowledgements to a gateway that was killed and started again. One that has
left cannot. So its goodbye is not over before they are stored.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.aquifer.log import Log
from penstock.aquifer.protocol.session import Reply

__all__ = ["Goodbyes"]

_LONGEST: Final = 60.0
"""Seconds after which nobody waits for an answer any more."""


class _Goodbye(NamedTuple):
    reply: Reply
    saves: int
    """What the log has to have stored."""
    since: float


class Goodbyes:
    """The answers that wait for the journal; used by the thread of the server."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: dict[bytes, _Goodbye] = {}
        """By the peer: one that asks again gets one answer."""

    def answer(self, reply: Reply, now: float) -> list[Reply]:
        """Answer when everything is stored that was acknowledged until now."""
        self._waiting[reply.envelope[0]] = _Goodbye(reply, self._log.store_cursors_soon(), now)
        return self.tick(now)

    def tick(self, now: float) -> list[Reply]:
        """The answers that there are now."""
        replies = []
        for peer, goodbye in list(self._waiting.items()):
            is_stored = self._log.has_stored(goodbye.saves)
            if is_stored:
                replies.append(goodbye.reply)
            if is_stored or now - goodbye.since > _LONGEST:
                del self._waiting[peer]
        return replies
