"""The floor: the lowest offset that has to be kept, and so how far the source may go on.

A required reader is waited for. An optional one is not; but while no required reader has come yet, the source
waits for the first, who shall find the oldest records. A look by an optional reader does not change that:
for a few seconds (``Limits.look``) the source goes on only as far as such a reader has read. One that stays
longer wants what comes now, and the source goes on without waiting for it.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.aquifer.journal.interface import SavedCursor
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.sessions import LogView, Session

__all__ = ["Floor"]


class Floor:
    """Knows who is waited for, and since when somebody only looks."""

    def __init__(self, log: LogView, limits: Limits) -> None:
        self._log = log
        self._limits = limits
        self._unattended = True
        """Whether the source waits for the first reader,"""
        self._looking_since: float | None = None
        """and since when only optional readers have been there meanwhile."""

    def lowest(self, here: Collection[Session], away: Collection[SavedCursor], now: float) -> int:
        """The lowest offset that must not be forgotten to make room."""
        if not here and not away:
            self._unattended, self._looking_since = True, None
            return self._log.first
        if away or any(session.keep for session in here):
            self._unattended = False
        elif self._unattended:
            self._looking_since = now if self._looking_since is None else self._looking_since
            if now - self._looking_since < self._limits.look:
                return max(max(session.acknowledged for session in here), self._log.first)
            self._unattended = False
        return self.needed(here, away)

    def needed(self, here: Collection[Session], away: Collection[SavedCursor]) -> int:
        """The lowest offset that a reader needs, here or away; the log's head if there is none."""
        kept = [session.acknowledged for session in here if session.keep]
        kept += [saved.acknowledged for saved in away]
        return max(min(kept, default=self._log.head), self._log.first)
