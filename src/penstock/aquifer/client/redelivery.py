"""Records that a reader has and has not settled yet: each is acknowledged, or refused and delivered again.

The reader's process keeps them. The cursor at the gateway stays before the oldest of them, so whatever
happens to the reader, its successor gets them all. A record that is refused too often is written to a stream
of dead letters, by a thread of its own, and counts as settled when it is stored there.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from penstock.aquifer.client.connection import gateway_endpoint
from penstock.aquifer.client.producer import Producer
from penstock.aquifer.errors import RefusedTooOften
from penstock.aquifer.records import Codec, Record
from penstock.aquifer.records.dead_letter import LONGEST, dead_letter
from penstock.aquifer.security import CurveClient
from penstock.arguments import a_count, seconds

__all__ = ["LetterWriter", "PendingRecords", "Redelivery", "RefusedRecord", "refused_too_often"]

_LONGEST_REASON: Final = 1000
"""Characters of a reason that are kept."""
_LETTERS_AT_ONCE: Final = 16
"""How many dead letters are written in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redelivery:
    """How a reader with ``acknowledge="each"`` gets the records again that it refuses."""

    delay: float = 1.0
    """Seconds until a refused record is delivered again."""
    limit: int = 5
    """How often a record is delivered in all. If it is refused the last time, it becomes a dead letter."""
    dead_letters: str | None = None
    """The endpoint of the stream that gets the dead letters; it has to be writable. Without one, a record
    that is refused the last time ends the subscription with an error, and is not acknowledged."""
    max_pending: int = 1000
    """How many records may be delivered and not settled; then the reader gets no new ones."""
    max_pending_bytes: int = 8 * 1024 * 1024
    """The same in bytes, as they were on the line."""

    def __post_init__(self) -> None:
        seconds(self.delay, f"Redelivery(delay={self.delay!r})")
        for name in ("limit", "max_pending", "max_pending_bytes"):
            value = getattr(self, name)
            a_count(value, f"Redelivery({name}={value!r})")
        if self.dead_letters is not None:
            gateway_endpoint(self.dead_letters, "Redelivery")


class _State(Enum):
    OUT = auto()
    """The reader has it."""
    REFUSED = auto()
    """It will be delivered again."""
    DEAD = auto()
    """It was refused the last time, and is not stored as a dead letter yet."""


class _Pending:
    __slots__ = ("deliveries", "due", "nbytes", "reason", "record", "state")

    def __init__(self, record: Record, nbytes: int) -> None:
        self.record = record
        self.nbytes = nbytes
        self.state = _State.OUT
        self.deliveries = 1
        self.due = 0.0
        self.reason = ""


class RefusedRecord(NamedTuple):
    """A record that was refused the last time."""

    record: Record
    deliveries: int
    reason: str


class PendingRecords:
    """The unsettled records of one subscription; they are settled from any thread, in any order."""

    def __init__(self, redelivery: Redelivery) -> None:
        self._terms = redelivery
        self._mutex = threading.Lock()
        self._records: dict[int, _Pending] = {}
        """In the order of their offsets: that is the order in which they are first delivered."""
        self._refused: dict[int, _Pending] = {}
        """Those that will be delivered again, in the order in which they were refused."""
        self._next = 0
        """The offset after the last record that was delivered."""
        self._nbytes = 0
        self._dead = 0
        """How many wait to become dead letters."""
        self.redelivered = 0
        """How often a record was delivered again."""

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, offset: object) -> bool:
        return offset in self._records

    # ---------------------------------------------------------------- the reader
    def ack(self, offset: int) -> None:
        """This record was processed; to say so twice changes nothing."""
        with self._mutex:
            pending = self._find(offset)
            if pending is not None and pending.state is not _State.DEAD:
                self._settle(offset)

    def nack(self, offset: int, reason: str, now: float) -> None:
        """This record was not processed: deliver it again, or let it be a dead letter."""
        with self._mutex:
            pending = self._find(offset)
            if pending is None or pending.state is not _State.OUT:
                return
            pending.reason = reason[:_LONGEST_REASON]
            dead = pending.deliveries >= self._terms.limit
            self._dead += dead
            pending.state = _State.DEAD if dead else _State.REFUSED
            pending.due = now + self._terms.delay
            if not dead:
                self._refused[offset] = pending

    def _find(self, offset: int) -> _Pending | None:
        if type(offset) is not int or not 0 <= offset < self._next:
            raise ValueError(
                f"{offset!r} is not the offset of a record that was delivered: give record.offset"
            )
        return self._records.get(offset)

    def _settle(self, offset: int) -> None:
        settled = self._records.pop(offset, None)
        self._refused.pop(offset, None)
        if settled is not None:
            self._nbytes -= settled.nbytes

    # ---------------------------------------------------------------- the subscription
    @property
    def room(self) -> int:
        """How many records may be delivered for the first time."""
        if self._nbytes >= self._terms.max_pending_bytes:
            return 0
        return max(self._terms.max_pending - len(self._records), 0)

    def deliver(self, records: Sequence[Record], nbytes: int) -> None:
        """These records are delivered for the first time; each counts ``nbytes`` bytes."""
        with self._mutex:
            for record in records:
                assert record.offset is not None, "a record of a log has an offset"
                self._records[record.offset] = _Pending(record, nbytes)
                self._next = record.offset + 1
                self._nbytes += nbytes

    def withdraw(self, records: Sequence[Record]) -> None:
        """The last of the records were not delivered after all: the reader wants no more for now."""
        with self._mutex:
            for record in records:
                assert record.offset is not None, "a record of a log has an offset"
                self._settle(record.offset)
            self._next = min(self._next, *(record.offset for record in records if record.offset is not None))

    def next_due(self) -> float:
        """When the next refused record is to be delivered again."""
        with self._mutex:
            return self._due()

    def _due(self) -> float:
        if not self._refused:
            return float("inf")
        # All wait equally long, so the first one that was refused is the first that is due.
        return next(iter(self._refused.values())).due

    def take_due(self, now: float, most: int) -> list[Record]:
        """The records that are delivered again now, in the order in which they were refused."""
        with self._mutex:
            taken: list[Record] = []
            while len(taken) < most and self._due() <= now:
                each = self._refused.pop(next(iter(self._refused)))
                each.state = _State.OUT
                each.deliveries += 1
                taken.append(each.record)
            self.redelivered += len(taken)
            return taken

    def give_back(self, records: Sequence[Record]) -> None:
        """These were due, but the reader wants no more for now: they remain the next ones."""
        with self._mutex:
            first: dict[int, _Pending] = {}
            for record in records:
                each = self._records.get(record.offset) if record.offset is not None else None
                if record.offset is not None and each is not None and each.state is _State.OUT:
                    each.state = _State.REFUSED
                    each.deliveries -= 1
                    self.redelivered -= 1
                    first[record.offset] = each
            self._refused = {**first, **self._refused}

    def size_of(self, records: Sequence[Record]) -> int:
        """The size of the largest of these."""
        with self._mutex:
            found = [self._records.get(record.offset) for record in records if record.offset is not None]
            return max((each.nbytes for each in found if each is not None), default=0)

    def lowest(self) -> int | None:
        """The offset of the oldest record that is not settled; None if all are."""
        with self._mutex:
            return next(iter(self._records), None)

    def dead(self) -> list[RefusedRecord]:
        """The records that have to become dead letters."""
        with self._mutex:
            if not self._dead:
                return []
            found = [each for each in self._records.values() if each.state is _State.DEAD]
            return [RefusedRecord(each.record, each.deliveries, each.reason) for each in found]

    def stored(self, offsets: Sequence[int | None]) -> None:
        """These are dead letters now."""
        with self._mutex:
            for offset in offsets:
                pending = None if offset is None else self._records.get(offset)
                if offset is not None and pending is not None and pending.state is _State.DEAD:
                    self._dead -= 1
                    self._settle(offset)


class LetterWriter:
    """Writes records that were refused the last time to a stream of dead letters; the reader goes on."""

    def __init__(
        self,
        pending: PendingRecords,
        endpoint: str,
        codec: Codec,
        *,
        curve: CurveClient | None,
        patience: float,
        place: Callable[[], dict[str, int | str | None]],
        wake: Callable[[], None],
    ) -> None:
        self.failure: BaseException | None = None
        """Why no dead letter can be written any more."""
        self._pending = pending
        self._endpoint = endpoint
        self._codec = codec
        self._curve = curve
        self._patience = patience
        self._place = place
        self._wake = wake
        self._name = f"dead-letters-{secrets.token_hex(8)}"
        self._batch = 0
        self._thread: threading.Thread | None = None

    def write_soon(self) -> None:
        """Write what there is on another thread, unless one is at it."""
        if self.failure is None and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, name="penstock-dead-letters", daemon=True)
            self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until what is being written is written."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            with Producer(self._endpoint, self._name, patience=self._patience, curve=self._curve) as producer:
                while found := self._pending.dead()[:_LETTERS_AT_ONCE]:
                    with producer.transaction(self._batch) as transaction:
                        transaction.write([self._letter(each) for each in found])
                    self._batch += 1
                    self._pending.stored([each.record.offset for each in found])
                    self._wake()
        except BaseException as error:  # The subscription waits for its letters, or for a failure.
            self.failure = error
        self._wake()

    def _letter(self, refused: RefusedRecord) -> Record:
        record = refused.record
        place = {**self._place(), "offset": record.offset, "deliveries": refused.deliveries}
        value = self._codec.encode(record.value)
        letter = dead_letter(value, refused.reason, longest=LONGEST, size=None, **place)
        return Record(msgspec.json.encode(letter), key=record.key)


def refused_too_often(refused: RefusedRecord) -> RefusedTooOften:
    """The error if there is no stream for dead letters."""
    return RefusedTooOften(
        f"record {refused.record.offset} was refused {refused.deliveries} times, the last time because of: "
        f"{refused.reason or 'no reason given'}; it is not acknowledged. To go on without such records, give "
        "Redelivery(dead_letters=…) the endpoint of a writable stream"
    )
