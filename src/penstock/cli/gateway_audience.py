"""When may a gateway whose source has ended go home? When somebody has got everything, and nobody waits."""

from __future__ import annotations

from typing import Final

from penstock.cli.gateway_figures import Status

__all__ = ["Audience"]

_GRACE: Final = 2.0
"""Seconds in which those who have everything may leave by themselves, before they are left."""


class Audience:
    """Is shown the status of a gateway time after time, and notes how far its subscribers have come."""

    def __init__(self) -> None:
        self.is_served = False
        """Whether the source has ended and there is nobody left to serve."""
        self.records = 0
        """How many records were sent, to all subscribers together."""
        self._furthest = 0
        """Somebody has got everything before this offset."""
        self._content_since: float | None = None

    def look(self, status: Status, now: float) -> None:
        """Take note of who is there and what they have."""
        here = status["subscribers"]
        departed = status.get("departed", {})
        present = sum(reader["records"] for reader in here)
        self.records = max(self.records, departed.get("records", 0) + present)
        self._furthest = max(
            self._furthest,
            departed.get("to", 0),
            # Who asked for the latest alone was never sent anything, and has not got what came before.
            *(reader["acknowledged"] for reader in here if reader["records"]),
            # A plain subscriber that was told the end has everything: it does not acknowledge the last of it.
            *(
                reader["next"]
                for reader in here
                if reader["records"] and reader["state"] == "ended" and reader["dialect"] == "plain"
            ),
            *(cursor["acknowledged"] for cursor in status["absent"].values()),
        )
        end = status["end"]
        if end is None or not self._is_content(status, end):
            self._content_since = None
            return
        if self._content_since is None:
            self._content_since = now
        # They have been told the end and will leave, unless they are of a kind that never says goodbye. A
        # Spark query is never here: it asks now and then, and has to hear that it was the end.
        kept = [reader for reader in here if reader["keep"]]
        self.is_served = not (kept or status["absent"]) or now - self._content_since > _GRACE

    def _is_content(self, status: Status, end: int) -> bool:
        if status["records"] and self._furthest < end:
            return False  # Nobody has come yet, or nobody stayed to the end.
        return all(
            reader["acknowledged"] >= end and reader["state"] == "ended"
            for reader in status["subscribers"]
            if reader["keep"]
        ) and all(cursor["acknowledged"] >= end for cursor in status["absent"].values())
