"""The cursors of durable subscribers that are away, their leases, and the low watermark of all readers.

Leases run on their own clock, which counts the seconds in which this gateway was running. It does not jump
when the time of day is set, it stands still while the machine sleeps or the process is stopped, and across a
restart it continues where it was: what is stored is how much of a lease is left. So an id is forgotten only
after its reader had the whole of its lease to come back, and did not.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Cursor, Log
from penstock.aquifer.protocol.session import Session
from penstock.aquifer.security import Caller
from penstock.aquifer.status import CursorStatus

__all__ = ["Cursors", "LeaseClock", "LowWatermark"]

_LONGEST_STEP: Final = 1.0
"""Seconds. If the gateway has not looked at the clock for longer, it was not running for the rest of them."""
_STORED_EVERY: Final = 5.0
"""Seconds, or an eighth of the lease if that is more, after which what is left of a lease is stored again."""


class LeaseClock:
    """Counts the seconds in which the gateway was there to hear its subscribers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looked: float | None = None
        """What the system's clock said when it was last looked at."""
        self._began = 0.0

    @property
    def uptime(self) -> float:
        """Seconds since the system's clock was first looked at."""
        return 0.0 if self.looked is None else self.looked - self._began

    def advance(self, now: float) -> None:
        """It is ``now`` on the system's clock, which never goes back."""
        looked = self.looked
        if looked is None:
            self._began = now
        elif now > looked:
            step = now - looked
            self.now += step if step < _LONGEST_STEP else _LONGEST_STEP
        self.looked = now


class Cursors:
    """The cursors of the durable subscribers: those that are away are here, and all are saved in the log."""

    def __init__(self, log: Log, clock: LeaseClock) -> None:
        self.saved: dict[str, Cursor] = dict(log.cursors)
        """Of those that are away; what they have not acknowledged is kept until their lease ends."""
        self._log = log
        self._clock = clock
        self._ends = {name: clock.now + cursor.remaining for name, cursor in self.saved.items()}
        """When the lease of each that is away ends, on the clock of leases."""
        self._stored: dict[str, float] = {}
        """When a cursor was last given to the log."""
        self._saves: dict[str, tuple[int, int]] = {}
        """What was last acknowledged, and what to ask the log for to learn whether that is stored."""
        self.inherited = set(self.saved)
        """Those of an earlier run of the gateway that nobody has come back for: a reader that was connected
        then may not know yet that the gateway was restarted."""
        self._origins: dict[str, str] = {}
        """The addresses that ids without an owner came from, as far as is known: that is not stored."""

    def owner_of(self, name: str) -> str | None:
        """The key that owns a saved cursor; None if there is no such id, or its owner is unknown."""
        cursor = self.saved.get(name)
        return None if cursor is None else cursor.owner

    def count(self, caller: Caller) -> int:
        """How many ids that are away belong to a peer: to its key, or without one to its address."""
        if caller.owner:
            return sum(cursor.owner == caller.owner for cursor in self.saved.values())
        return sum(self._origins.get(name) == caller.address for name in self.saved)

    def came_from(self, name: str, caller: Caller) -> None:
        """This peer has begun to use an id."""
        if not caller.owner:
            self._origins[name] = caller.address

    # ---------------------------------------------------------------- of a subscriber that is here
    def note(self, name: str, cursor: Cursor) -> None:
        """A durable subscriber that is here has come so far."""
        saves = self._log.save_cursor(name, cursor)
        self._stored[name] = self._clock.now
        if name not in self._saves or self._saves[name][0] != cursor.acknowledged:
            self._saves[name] = cursor.acknowledged, saves

    def is_stored(self, name: str) -> bool:
        """Whether the journal has what was last acknowledged."""
        return name not in self._saves or self._log.has_stored(self._saves[name][1])

    def is_stale(self, name: str, lease: float) -> bool:
        """Whether nothing was stored for so long that a restart would cut its lease short."""
        return self._clock.now - self._stored.get(name, float("-inf")) >= lease / 4

    # ---------------------------------------------------------------- of one that is away
    def leave(self, name: str, cursor: Cursor) -> None:
        """It is away from now on, or has sent word that it still is."""
        self.saved[name] = cursor
        self._ends[name] = self._clock.now + cursor.remaining
        self.note(name, cursor)

    def come_back(self, name: str) -> Cursor | None:
        """It is here again: its cursor, if that is still known."""
        self._ends.pop(name, None)
        self.inherited.discard(name)
        return self.saved.pop(name, None)

    def advance(self, name: str, offset: int) -> None:
        """One that is away has acknowledged more than is known of it."""
        self.saved[name] = self.saved[name]._replace(acknowledged=offset)
        self.store(name)

    def renew(self, name: str) -> None:
        """Begin the lease of one that is away anew."""
        self._ends[name] = self._clock.now + self.saved[name].lease_ms / 1000

    def forget(self, name: str) -> None:
        """Keep nothing for it any longer."""
        self.come_back(name)
        self._stored.pop(name, None)
        self._saves.pop(name, None)
        self._origins.pop(name, None)
        self._log.save_cursor(name, None)

    def remaining(self, name: str) -> float:
        """How many seconds of its lease are left."""
        return self._ends[name] - self._clock.now

    def expired(self) -> list[str]:
        """Forget those whose lease is over, and return their names."""
        over = []
        for name, cursor in list(self.saved.items()):
            left = self.remaining(name)
            if left < 0:
                over.append(name)
                self.forget(name)
            elif self._clock.now - self._stored.setdefault(name, self._clock.now) >= max(
                cursor.lease_ms / 8000, _STORED_EVERY
            ):
                self.store(name)
        return over

    def status(self) -> dict[str, CursorStatus]:
        """What ``penstock gateway status`` shows of those that are away."""
        now = self._clock.now
        return {
            name: CursorStatus(
                acknowledged=cursor.acknowledged,
                lease_ms=cursor.lease_ms,
                remaining=round(self._ends.get(name, now) - now, 3),
                owner=cursor.owner,
            )
            for name, cursor in self.saved.items()
        }

    def store(self, name: str) -> None:
        """Save how much of its lease is left."""
        self.saved[name] = self.saved[name]._replace(remaining=self.remaining(name))
        self.note(name, self.saved[name])


class LowWatermark:
    """The lowest offset that has to be kept, and so how far the source may run ahead.

    The source waits for a required reader. It does not wait for an optional one; but while no required reader
    has come yet, it waits for the first, so that this one finds the oldest records. A look by an optional
    reader does not change that: for a few seconds (``Limits.look``) the source runs only as far ahead as such
    a reader has read. If an optional reader stays longer, the source does not wait any more.
    """

    def __init__(self, log: Log, limits: Limits) -> None:
        self._log = log
        self._limits = limits
        self._unattended = True
        """Whether the source waits for the first reader,"""
        self._looking_since: float | None = None
        """and since when only optional readers have been there meanwhile."""

    def lowest(self, here: Collection[Session], away: Collection[Cursor], now: float) -> int:
        """The lowest offset that must not be forgotten to make room."""
        if not here and not away:
            self._unattended, self._looking_since = True, None
            return self._log.first
        if away or any(session.required for session in here):
            self._unattended = False
        elif self._unattended:
            self._looking_since = now if self._looking_since is None else self._looking_since
            if now - self._looking_since < self._limits.look:
                return max(max(session.acknowledged for session in here), self._log.first)
            self._unattended = False
        return self.needed(here, away)

    def needed(self, here: Collection[Session], away: Collection[Cursor]) -> int:
        """The lowest offset that a reader needs, here or away; the log's head if there is none."""
        kept = [session.acknowledged for session in here if session.required]
        kept += [saved.acknowledged for saved in away]
        return max(min(kept, default=self._log.head), self._log.first)
