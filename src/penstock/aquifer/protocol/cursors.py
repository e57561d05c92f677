"""The cursors of durable subscribers: where each stands while it is away, and how long that is remembered.

Leases run on a clock of their own, which counts the seconds that this gateway was up and running. It does not
jump when the time of day is set, it stands still while the machine sleeps or the process is stopped, and
across a restart it goes on where it was: what is stored is how much of a lease is left. So an id is forgotten
only after its reader could have come back for the whole of its lease, and did not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.aquifer.journal.interface import SavedCursor
from penstock.aquifer.rights import Caller

__all__ = ["Cursors", "LeaseClock"]

_LONGEST_STEP: Final = 1.0
"""Seconds. If the gateway has not looked at the clock for longer, it was not running for the rest of it."""
_STORED_EVERY: Final = 5.0
"""Seconds, or an eighth of the lease if that is more, after which what is left of a lease is stored again."""


class LeaseClock:
    """Counts the seconds in which the gateway was there to hear its subscribers."""

    def __init__(self) -> None:
        self.now = 0.0
        self._looked: float | None = None

    def advance(self, now: float) -> None:
        """It is ``now`` on a clock that never goes back."""
        if self._looked is not None:
            self.now += min(max(now - self._looked, 0.0), _LONGEST_STEP)
        self._looked = now


class Cursors:
    """The durable subscribers that are away, and what has to be written to the journal about all of them."""

    def __init__(self, saved: Mapping[str, SavedCursor], clock: LeaseClock) -> None:
        self.absent: dict[str, SavedCursor] = dict(saved)
        """Those that are away; what they have not acknowledged is kept until their lease ends."""
        self.changed: dict[str, SavedCursor | None] = {}
        """What is to be written to the journal."""
        self._clock = clock
        self._ends = {name: clock.now + cursor.remaining for name, cursor in saved.items()}
        """When the lease of each that is away ends, on the clock of leases."""
        self._stored: dict[str, float] = {}
        """When what is left of a lease was last put into ``changed``."""
        self._origins: dict[str, str] = {}
        """The addresses that ids without an owner came from, as far as is known: that is not stored."""

    def take_changed(self) -> Mapping[str, SavedCursor | None]:
        """What is to be written; from any thread."""
        # Swapped, not copied and cleared: the server may be adding to it.
        taken, self.changed = self.changed, {}
        return taken

    def owner_of(self, name: str) -> str | None:
        """The key that an id which is away belongs to; None if there is no such id, or nobody knows."""
        cursor = self.absent.get(name)
        return None if cursor is None else cursor.owner

    def count(self, caller: Caller) -> int:
        """How many ids that are away belong to a peer: to its key, or without one to its address."""
        if caller.owner:
            return sum(cursor.owner == caller.owner for cursor in self.absent.values())
        return sum(self._origins.get(name) == caller.address for name in self.absent)

    def came_from(self, name: str, caller: Caller) -> None:
        """This peer has begun to use an id."""
        if not caller.owner:
            self._origins[name] = caller.address

    # ---------------------------------------------------------------- one that is here
    def note(self, name: str, cursor: SavedCursor) -> None:
        """A durable subscriber that is here has come so far."""
        self.changed[name] = cursor
        self._stored[name] = self._clock.now

    def is_stale(self, name: str, lease: float) -> bool:
        """Whether nothing was written about it for so long that a restart would cut its lease short."""
        return self._clock.now - self._stored.get(name, float("-inf")) >= lease / 4

    # ---------------------------------------------------------------- one that is away
    def leave(self, name: str, cursor: SavedCursor) -> None:
        """It is away from now on, or has sent word that it still is."""
        self.absent[name] = cursor
        self._ends[name] = self._clock.now + cursor.remaining
        self.note(name, cursor)

    def come_back(self, name: str) -> SavedCursor | None:
        """It is here again: where it was, if that is still known."""
        self._ends.pop(name, None)
        return self.absent.pop(name, None)

    def forget(self, name: str) -> None:
        """It is not kept any longer."""
        self.come_back(name)
        self._stored.pop(name, None)
        self._origins.pop(name, None)
        self.changed[name] = None

    def remaining(self, name: str) -> float:
        """How many seconds of its lease are left."""
        return self._ends[name] - self._clock.now

    def expired(self) -> list[str]:
        """Forget those whose lease is over, and return their names."""
        over = []
        for name, cursor in list(self.absent.items()):
            left = self.remaining(name)
            if left < 0:
                over.append(name)
                self.forget(name)
            elif self._clock.now - self._stored.setdefault(name, self._clock.now) >= max(
                cursor.lease_ms / 8000, _STORED_EVERY
            ):
                self.store(name)
        return over

    def describe(self) -> dict[str, dict[str, Any]]:
        """What ``penstock gateway status`` shows of those that are away; from any thread."""
        now = self._clock.now
        return {
            name: {**cursor._asdict(), "remaining": round(self._ends.get(name, now) - now, 3)}
            for name, cursor in list(self.absent.items())
        }

    def store(self, name: str) -> None:
        """Write down how much of its lease is left."""
        self.absent[name] = self.absent[name]._replace(remaining=self.remaining(name))
        self.note(name, self.absent[name])
