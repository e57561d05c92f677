"""Who sends to a feed: each connection says what it does, and is looked at a few times a second.

A connection costs its loop a few assignments for each chunk of bytes, and nothing for a record. The look adds
the time since the last one to what each connection does at that moment. With many connections it is taken
less often, and only the few that have sent most lately are shown one by one; all are in the sum.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.delivery import FeedConnections, SenderFigures

__all__ = ["DATA", "DEMAND", "WORKING", "SenderLedger", "SenderVisit"]

DEMAND, DATA, WORKING = 0, 1, 2
"""What a connection does: it waits for demand, it waits for bytes, or its bytes become records."""

SHOWN: Final = 8
"""How many senders are shown one by one."""
_REMEMBERED: Final = 256
"""How many senders without a connection are remembered, if the feed wants that."""
_EVERY: Final = 0.1
_FOR_EACH: Final = 1e-4
"""Seconds between two looks: so many, or more if there are thousands of connections."""
_LONGEST_STEP: Final = 1.0
"""Seconds that one look may count for: a process that was stopped for an hour did not wait for an hour."""
_LATELY: Final = 10.0
"""Seconds after which what a sender has sent counts for a third."""
_STAYS: Final = 1.5
"""A sender that is shown gives way to one that has sent so many times as much."""


class SenderVisit:
    """One connection, or one request, of a sender. Its loop writes, and others look."""

    __slots__ = ("_ledger", "_sender", "doing", "held", "queue")

    def __init__(self, ledger: SenderLedger, sender: _Sender) -> None:
        self._ledger = ledger
        self._sender = sender
        self.doing = DATA
        """One of ``DEMAND``, ``DATA`` and ``WORKING``."""
        self.held = 0
        """Bytes that have arrived and were not passed on yet."""
        self.queue: Callable[[], tuple[int | None, int | None]] | None = None
        """Returns how many bytes wait in front of it, and how many may."""

    def took(self, records: int, nbytes: int = 0) -> None:
        """So many records were passed on, made of so many bytes."""
        for each in (self._sender, self._ledger.all):
            each.records += records
            each.bytes += nbytes


class _Sender:
    """The totals of one sender, or of all."""

    __slots__ = ("bytes", "lately", "name", "records", "seconds", "seen", "visits")

    def __init__(self, name: str) -> None:
        self.name = name
        self.visits: dict[SenderVisit, None] = {}
        """Its connections, the oldest first."""
        self.records = 0
        self.bytes = 0
        self.seconds = [0.0, 0.0, 0.0]
        self.lately = 0.0
        """How much it has sent lately."""
        self.seen = 0

    def look(self, step: float) -> None:
        doing = [visit.doing for visit in self.visits]
        if WORKING in doing:
            self.seconds[WORKING] += step  # They share one event loop: while one works, no other can.
            return
        paused = step * doing.count(DEMAND) / len(doing) if doing else 0.0
        self.seconds[DEMAND] += paused
        self.seconds[DATA] += step - paused

    def fade(self, by: float) -> None:
        sent = self.bytes + self.records
        self.lately = self.lately * by + sent - self.seen
        self.seen = sent

    def figures(self) -> SenderFigures:
        visits = list(self.visits)
        demand, data, working = self.seconds
        queues = [visit.queue() for visit in visits if visit.queue is not None]
        bounds = [bound for _, bound in queues if bound is not None]
        return SenderFigures(
            name=self.name,
            open=len(visits),
            paused=sum(visit.doing == DEMAND for visit in visits),
            records=self.records,
            bytes=self.bytes,
            waiting_bytes=sum(visit.held for visit in visits) + sum(waiting or 0 for waiting, _ in queues),
            capacity_bytes=sum(bounds) if bounds else None,
            waiting_for_demand=demand,
            waiting_for_data=data,
            working=working,
        )


class SenderLedger:
    """The senders of one feed. Any thread may use it; a visit belongs to the loop of its connection.

    With ``remember`` a sender that has left is kept for a while, with what it has sent: for senders that
    connect anew for each request.
    """

    def __init__(self, *, remember: bool = False, capacity_bytes: int | None = None) -> None:
        self.all = _Sender("")
        self._remember = remember
        self._capacity = capacity_bytes
        self._senders: dict[str, _Sender] = {}
        self._shown: frozenset[str] = frozenset()
        self._mutex = threading.Lock()
        self._sampled: float | None = None

    @contextmanager
    def visit(self, name: str) -> Iterator[SenderVisit]:
        """A connection of the sender with this name, for as long as the block runs."""
        with self._mutex:
            sender = self._senders.pop(name, None) or _Sender(name)
            self._senders[name] = sender  # The newest comes last.
            visit = SenderVisit(self, sender)
            sender.visits[visit] = self.all.visits[visit] = None
        try:
            yield visit
        finally:
            with self._mutex:
                del sender.visits[visit], self.all.visits[visit]
                if not sender.visits and not self._remember:
                    del self._senders[name]
                elif len(self._senders) > _REMEMBERED:
                    idle = next((each.name for each in self._senders.values() if not each.visits), None)
                    if idle is not None:
                        del self._senders[idle]

    def sample(self, now: float) -> None:
        """Look at every connection; the time since the last look counts for what each of them does now."""
        with self._mutex:
            if self._sampled is None:
                self._sampled = now
            step = now - self._sampled
            if step < max(_EVERY / 2, _FOR_EACH * len(self.all.visits)):
                return
            self._sampled = now
            step = min(step, _LONGEST_STEP)
            self.all.look(step)
            fading = math.exp(-step / _LATELY)
            for sender in self._senders.values():
                sender.look(step)
                sender.fade(fading)

    def figures(self) -> FeedConnections:
        """All senders together, and the few that have sent most lately."""
        with self._mutex:
            senders = list(self._senders.values())
            total = self.all.figures()
        few = heapq.nlargest(SHOWN, senders, key=self._weight)
        self._shown = frozenset(each.name for each in few)
        if self._capacity is not None:
            total = total.with_capacity(self._capacity)
        shown = sorted(few, key=lambda each: each.name)
        return FeedConnections(total, tuple(each.figures() for each in shown))

    def _weight(self, sender: _Sender) -> float:
        return (sender.lately + 1) * (_STAYS if sender.name in self._shown else 1.0)
