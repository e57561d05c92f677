"""From what a gateway says of itself, time after time, to what a person wants to know: rates, lags, room.

A status is the dict that :meth:`penstock.aquifer.Gateway.status` returns and that a running gateway gives to
a probe. One says how far everything has come; a :class:`Meter` is shown several and tells how fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

__all__ = ["Audience", "Away", "Figures", "Meter", "Reader", "Status"]

Status: TypeAlias = Mapping[str, Any]
_GRACE: Final = 2.0
"""Seconds in which those who have everything may leave by themselves, before they are left."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One subscriber that is there."""

    id: str | None
    dialect: str
    state: str
    next: int
    acknowledged: int
    lag: int
    rate: float
    keep: bool

    @property
    def label(self) -> str:
        """What to call it on a screen."""
        return self.id if self.id is not None else "(no id)"


@dataclass(frozen=True, slots=True)
class Away:
    """A durable subscriber that is not there, and for which records are kept."""

    id: str
    behind: int
    remaining: float
    """For how many more seconds it is kept, unless it comes back."""
    lease: float
    """For how many it is kept in all."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One moment of a gateway."""

    uptime: float
    epoch: str
    durable: bool
    codec: str
    taken: int
    skipped: int
    """Lines of the source that could not be records."""
    source_rate: float
    held_back: float
    """The part of the time, from 0 to 1, in which the source was not allowed to give anything."""
    first: int
    head: int
    end: int | None
    failure: str | None
    stalled: str | None
    full: float
    """The part of the log's room, from 0 to 1, that is in use."""
    needed: float
    """The part that somebody still needs: at 1 the source has to wait."""
    records: int
    max_records: int
    bytes: int
    max_bytes: int
    readers: list[Reader]
    away: list[Away]
    counters: dict[str, int]
    left_out: dict[str, int]
    """How many more there are than those that the gateway has listed: ``subscribers`` and ``absent``."""

    def as_dict(self) -> dict[str, Any]:
        """For a line of JSON."""
        return asdict(self)


class Meter:
    """Is shown one status after the other; tells what became of it since it was last asked."""

    def __init__(self) -> None:
        self._then: tuple[float, int, dict[tuple[str, str | int], int]] | None = None
        self._looks = self._held = 0

    def look(self, status: Status) -> None:
        """Note whether the source is held back now; the more looks, the better the answer."""
        source = status["source"]
        self._looks += 1
        # Where nothing was ever asked for, there may be nobody to ask: others write to this gateway.
        waits = source["requested"] > 0 or status["records"] >= status["max_records"]
        waits |= status["bytes"] >= status["max_bytes"]
        self._held += status["end"] is None and waits and source["requested"] <= source["received"]

    def figures(self, status: Status, now: float) -> Figures:
        """How things stand, and how fast they went since the last time."""
        taken = status["source"]["received"]
        sent = _by_reader(status)
        seconds, source_rate, before = 0.0, 0.0, sent
        if self._then is not None:
            then, taken_then, before = self._then
            seconds = max(now - then, 1e-9)
            source_rate = (taken - taken_then) / seconds
        self._then = now, taken, sent
        held_back = self._held / self._looks if self._looks else 0.0
        self._looks = self._held = 0
        readers = []
        for key, subscriber in zip(sent, status["subscribers"], strict=True):
            # One that came since is taken to have come just after the last look.
            fresh = subscriber["records"] - before.get(key, 0)
            # Fewer than before: this is another one, in the place of one that left.
            fresh = subscriber["records"] if fresh < 0 else fresh
            readers.append(_reader(subscriber, fresh / seconds if seconds else 0.0))
        needed = status["head"] - status["floor"]
        room = max(status["records"] / status["max_records"], status["bytes"] / status["max_bytes"])
        return Figures(
            uptime=status["uptime"],
            epoch=status["epoch"],
            durable=status["durable"],
            codec=status["codec"],
            taken=taken,
            skipped=status["source"].get("skipped", 0),
            source_rate=source_rate,
            held_back=held_back,
            first=status["first"],
            head=status["head"],
            end=status["end"],
            failure=status["failure"],
            stalled=status["stalled"],
            full=min(room, 1.0),
            needed=min(room * needed / status["records"], 1.0) if status["records"] else 0.0,
            records=status["records"],
            max_records=status["max_records"],
            bytes=status["bytes"],
            max_bytes=status["max_bytes"],
            readers=readers,
            away=[
                Away(
                    name,
                    max(status["head"] - cursor["acknowledged"], 0),
                    cursor["remaining"],
                    cursor["lease_ms"] / 1000,
                )
                for name, cursor in status["absent"].items()
            ],
            counters=dict(status["counters"]),
            left_out={"subscribers": 0, "absent": 0, **status.get("left_out", {})},
        )


def _reader(subscriber: Mapping[str, Any], rate: float) -> Reader:
    return Reader(
        id=subscriber["id"],
        dialect=subscriber["dialect"],
        state=subscriber["state"],
        next=subscriber["next"],
        acknowledged=subscriber["acknowledged"],
        lag=subscriber["lag"],
        rate=rate,
        keep=subscriber["keep"],
    )


def _by_reader(status: Status) -> dict[tuple[str, str | int], int]:
    """How many records each subscriber has got; those without an id are told apart by their order alone."""
    sent: dict[tuple[str, str | int], int] = {}
    nameless: Counter[str] = Counter()
    for subscriber in status["subscribers"]:
        dialect, name = subscriber["dialect"], subscriber["id"]
        if name is None:
            nameless[dialect] += 1
            sent[dialect, nameless[dialect]] = subscriber["records"]
        else:
            sent[dialect, name] = subscriber["records"]
    return sent


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
