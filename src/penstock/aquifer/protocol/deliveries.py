"""Records that come from outside: staged piece by piece, published all at once, never twice.

Somebody who has to publish exactly once, and may be killed and run again at any moment (a Spark query), works
in numbered batches. Each of its tasks stages what it has, under the number of the batch, its own number and
that of its attempt. When all are done, one message names the attempts that count. They go into the log
together with a mark that says so; the same message again finds the mark, and changes nothing.

There is no socket and no journal in here: a :class:`Delivery` is handed to the gateway's writer, and answered
when that is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import UNSET

from penstock.aquifer.batches import ARROW, MSGPACK, Batch
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import (
    Commit,
    Complete,
    CompleteTerms,
    Grant,
    Next,
    OnComplete,
    OnNext,
    Put,
    terms,
)
from penstock.aquifer.protocol.sessions import Reply, refusal

__all__ = ["Deliveries", "Delivery", "commit_in", "put_in"]

_MARK: Final = "delivered:"
_FORGOTTEN_AFTER: Final = 3600.0
"""Seconds after which staged records that nobody came back for are dropped."""


@dataclass(eq=False)
class Delivery:
    """A batch on its way into the log."""

    query: str
    batch: int
    batches: Sequence[Batch]
    """Their offsets are given by the writer."""
    askers: list[tuple[bytes, ...]] = field(default_factory=list)
    """Whom to tell."""
    end: int | None = None
    """The log's head after it, once it is there."""
    failure: str | None = None

    @property
    def marks(self) -> dict[str, str]:
        """What is stored with it."""
        return {_MARK + self.query: str(self.batch)}


@dataclass
class _Staged:
    pieces: dict[int, Batch] = field(default_factory=dict)
    touched: float = 0.0


class Deliveries:
    """What is staged, and what is being written."""

    def __init__(
        self,
        limits: Limits,
        marks: Callable[[], Mapping[str, str]],
        submit: Callable[[Delivery], None] | None,
        head: Callable[[], int],
    ) -> None:
        self._limits = limits
        self._marks = marks
        self._submit = submit
        """None: this gateway takes nothing from outside."""
        self._head = head
        self._staged: dict[tuple[str, int, int, int], _Staged] = {}
        self._pending: dict[str, Delivery] = {}
        self.nbytes = 0
        """How much is staged."""

    # ---------------------------------------------------------------- staging
    def put(
        self, message: Next, put: Put, attached: Sequence[bytes], envelope: tuple[bytes, ...], now: float
    ) -> list[Reply]:
        """A piece came."""
        problem = self._problem(message, put, attached)
        if problem is not None:
            return [Reply(envelope, refusal(problem, "BAD"))]
        key = put.query, put.batch, put.part, put.attempt
        payload, notes = attached
        size = len(payload) + len(notes)
        if self.nbytes + size > self._limits.staged_bytes:
            self._drop_forgotten(now)
        if self.nbytes + size > self._limits.staged_bytes:
            text = (
                f"no room for more than {self._limits.staged_bytes} staged bytes: let the query take smaller "
                "batches (maxRecordsPerTrigger), or give the gateway more (staged_bytes)"
            )
            return [Reply(envelope, refusal(text, "FULL"))]
        staged = self._staged.setdefault(key, _Staged())
        staged.touched = now
        before = staged.pieces.get(put.seq)
        if before is not None:
            self.nbytes -= before.nbytes  # The answer was lost, and it came again.
        staged.pieces[put.seq] = Batch(0, message.count, payload, notes, put.fmt)
        self.nbytes += size
        return [Reply(envelope, OnNext(message.count))]

    def _problem(self, message: Next, put: Put, attached: Sequence[bytes]) -> str | None:
        if self._submit is None:
            return "this gateway reads a source of its own, and takes no records: start it with writable=True"
        if len(attached) != 2 or message.count < 1:
            return f"x.put comes with a payload and notes, and counts its records: {len(attached)} parts came"
        if put.fmt not in (MSGPACK, ARROW):
            return f"x.put.fmt is {put.fmt!r}: there are {MSGPACK} and {ARROW}"
        return None

    # ---------------------------------------------------------------- publishing
    def commit(self, message: Complete, commit: Commit, envelope: tuple[bytes, ...]) -> list[Reply]:
        """A batch is complete: publish it, if that was not done before."""
        if self._submit is None:
            text = "this gateway takes no records: start it with writable=True"
            return [Reply(envelope, refusal(text, "BAD"))]
        query, batch = commit.query, commit.batch
        if int(self._marks().get(_MARK + query, -1)) >= batch:
            self._drop(query, batch)
            return [Reply(envelope, OnComplete(x=CompleteTerms(end=self._head())))]
        pending = self._pending.get(query)
        if pending is not None and pending.batch == batch:
            pending.askers.append(envelope)  # It asks again because it has waited for so long.
            return []
        pieces: list[Batch] = []
        for part, attempt, count in commit.parts:
            staged = self._staged.get((query, batch, part, attempt))
            if len(staged.pieces if staged else ()) != count:
                there = len(staged.pieces) if staged else 0
                text = (
                    f"{count} pieces of part {part} of batch {batch} should be staged, and {there} are: the "
                    "gateway was restarted meanwhile; run the batch again"
                )
                return [Reply(envelope, refusal(text, "STAGED"))]
            if staged is not None:
                pieces += [staged.pieces[seq] for seq in sorted(staged.pieces)]
        delivery = Delivery(query, batch, pieces, [envelope])
        self._pending[query] = delivery
        self._submit(delivery)
        return []

    def tick(self) -> list[Reply]:
        """Answer for what has been written since the last time."""
        replies: list[Reply] = []
        for query, delivery in list(self._pending.items()):
            if delivery.end is None and delivery.failure is None:
                continue
            del self._pending[query]
            if delivery.failure is None:
                self._drop(query, delivery.batch)
                answer = OnComplete(x=CompleteTerms(end=delivery.end or 0))
                replies += [Reply(envelope, answer) for envelope in delivery.askers]
            else:
                text = refusal(delivery.failure, "JOURNAL")
                replies += [Reply(envelope, text) for envelope in delivery.askers]
        return replies

    def _drop(self, query: str, batch: int) -> None:
        for key in [key for key in self._staged if key[0] == query and key[1] <= batch]:
            self.nbytes -= sum(piece.nbytes for piece in self._staged.pop(key).pieces.values())

    def _drop_forgotten(self, now: float) -> None:
        for key, staged in list(self._staged.items()):
            if now - staged.touched > _FORGOTTEN_AFTER:
                self.nbytes -= sum(piece.nbytes for piece in self._staged.pop(key).pieces.values())


def put_in(message: object) -> Put | None:
    """What a request wants to have staged, if it is one of these."""
    if not isinstance(message, Next):
        return None
    grant = terms(message.x)
    return grant.put if isinstance(grant, Grant) and grant.put is not UNSET else None


def commit_in(message: object) -> Commit | None:
    """What a request wants to have published, if it is one of these."""
    if not isinstance(message, Complete):
        return None
    wanted = terms(message.x)
    return wanted.commit if wanted is not None and wanted.commit is not UNSET else None
