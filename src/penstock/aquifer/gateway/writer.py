"""The writer: packs what has arrived, makes it durable, and decides how much more may come.

Whatever arrives while a transaction is being written goes into the next one: the slower the disk, the larger
the groups.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from penstock.aquifer.errors import JournalError, JournalFull, JournalLocked
from penstock.aquifer.gateway.intake import Intake
from penstock.aquifer.log.journal import Cursor
from penstock.aquifer.log.log import Log
from penstock.aquifer.protocol.transactions import PendingTransaction
from penstock.aquifer.records.batch import Batch
from penstock.aquifer.records.packer import Packer, Unpackable
from penstock.spec import UNBOUNDED

__all__ = ["Writer"]

_log = logging.getLogger("penstock.aquifer")

_GROUP: Final = 50_000
"""The most elements in one transaction."""
_IDLE: Final = 0.25
"""Seconds between looks at what is due without elements: cursors to store, records to retire."""
_WITHDRAWN: Final = "the key of this writer may not write here any more"
_ENDED: Final = "the stream of this gateway has ended, and nothing can be added to it"


class Writer:
    """The only thread that changes the journal."""

    def __init__(
        self,
        log: Log,
        packer: Packer,
        *,
        prefetch: int,
        prefetch_bytes: int,
        published: Callable[[], None],
        take_cursors: Callable[[], Mapping[str, Cursor | None]],
    ) -> None:
        self.stalled: str | None = None
        """Why nothing can be written at the moment, if so."""
        self._log = log
        self._packer = packer
        self._prefetch = prefetch
        self._prefetch_bytes = prefetch_bytes
        self._published = published
        self._take_cursors = take_cursors
        self._intake = Intake(self._wake, prefetch_bytes)
        self._deliveries: deque[PendingTransaction] = deque()
        """Batches of those who write to the gateway."""
        self._over: str | None = None
        """Why no batch of theirs can be written any more."""
        self._stopping = False
        self._house_kept = 0.0
        self._written = 0
        """How many elements are in the journal."""
        self._allowed = 0
        self._thread = threading.Thread(target=self._run, name="penstock-gateway-writer", daemon=True)

    @property
    def intake(self) -> Intake:
        """Where elements come in."""
        return self._intake

    def submit(self, delivery: PendingTransaction) -> None:
        """Write a batch from outside as soon as there is room; its ``end`` says when that was done."""
        self._deliveries.append(delivery)
        self._wake()
        if self._over is not None:
            self._turn_away(self._over)

    def start(self) -> None:
        """Begin to ask and to write."""
        self._intake.start()
        self._thread.start()

    def stop(self) -> None:
        """Cancel the source; write what has arrived, if there is room; store the cursors."""
        self._intake.cancel()
        with self._log.moved:
            self._stopping = True
            self._log.moved.notify_all()
        self._thread.join()
        self._intake.join(1.0)

    def _wake(self) -> None:
        with self._log.moved:
            self._log.moved.notify_all()

    # ---------------------------------------------------------------- the thread
    def _run(self) -> None:
        try:
            while self._step():
                pass
            if not self._stopping:  # Otherwise they may ask again, after a restart.
                self._turn_away(_ENDED)
            while self._wait(_IDLE):
                self._keep_house()
            self._keep_house()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        # The text of a JournalError says it all; anything else is a defect, and has to be found.
        unexpected = None if isinstance(error, JournalError) else error
        _log.error("the gateway cannot write its journal any more: %s", error, exc_info=unexpected)
        self._end(f"the journal of the gateway failed: {error}")
        self._intake.cancel()
        self._turn_away(f"the journal of the gateway failed: {error}")

    def _turn_away(self, why: str) -> None:
        """Nothing will be written any more: say so to those who wait, and to those who come."""
        self._over = why  # First: who comes after this does the rest itself.
        with suppress(IndexError):
            while True:
                self._deliveries.popleft().failure = why

    def _step(self) -> bool:
        """Write a group, or wait for something to do; False when there is nothing left to do."""
        self._look_after_the_house()
        intake = self._intake
        done = intake.done  # Read first: what arrived before the end is taken below.
        if self._deliveries:
            going_on = self._deliver(self._deliveries[0])
            self._deliveries.popleft()  # Not before: if the journal fails, somebody waits to be told.
            return going_on
        elements = intake.take(_GROUP)
        if elements:
            return self._write(elements)
        if done and self._log.end is None:
            self._end(None if intake.error is None else f"{type(intake.error).__name__}: {intake.error}")
        if self._stopping:
            return False
        self._allow_more()
        with self._log.moved:
            intake.writer_idle = True
            nothing = not intake.waiting and not self._deliveries and intake.done == done
            if nothing and not self._stopping:
                self._log.moved.wait(_IDLE)
            intake.writer_idle = False
        return True

    def _write(self, elements: list[object]) -> bool:
        bad: Unpackable | None = None
        try:
            packed = self._packer.pack(elements, self._log.head)
        except Unpackable as unpackable:
            bad, packed = unpackable, unpackable.packed
        if packed and not self._append(packed):
            return False
        self._written += len(elements) if bad is None else bad.taken
        if bad is not None:
            self._intake.cancel()
            cause = bad.cause
            self._end(f"an element could not become a record: {type(cause).__name__}: {cause}")
            _log.error("the gateway stopped: an element could not become a record", exc_info=cause)
            return False
        self._allow_more()
        return True

    def _deliver(self, delivery: PendingTransaction) -> bool:
        """All of it at once, with its mark: it is there as a whole, or not at all."""
        if self._log.end is not None:
            delivery.failure = _ENDED
            return True
        if delivery.withdrawn:
            delivery.failure = _WITHDRAWN
            return True
        batches, first = [], self._log.head
        for batch in delivery.batches:
            batches.append(replace(batch, first=first))
            first = batches[-1].end
        if batches and not self._wait_for_room(batches, delivery):
            return False
        if delivery.withdrawn:
            delivery.failure = _WITHDRAWN
            return True
        if not self._store(batches, delivery.marks_after(self._log.journal.marks)):
            return False
        delivery.end = self._log.head
        self._published()
        return True

    def _append(self, packed: list[Batch]) -> bool:
        """Append in pieces that fit; False if the gateway is stopped while there is no room."""
        while packed:
            fits = len(packed)
            while fits and not self._make_room(packed[:fits]):
                fits = fits // 2
            if not fits:
                if not self._wait_for_room(packed[:1]):
                    return False
                continue
            if not self._store(packed[:fits]):
                return False
            packed = packed[fits:]
            self._published()
        return True

    def _make_room(self, packed: list[Batch]) -> bool:
        records = sum(batch.count for batch in packed)
        nbytes = sum(batch.nbytes for batch in packed)
        with self._log.moved:  # Or somebody might come just now who needs what is about to be forgotten.
            return self._log.journal.make_room(records, nbytes, self._log.low_watermark)

    def _wait_for_room(self, batches: list[Batch], delivery: PendingTransaction | None = None) -> bool:
        self._published()
        while True:
            with self._log.moved:
                if self._make_room(batches) or self._empty_for(batches):
                    return True
                if delivery is not None and delivery.withdrawn:
                    return True
                if self._stopping:
                    return False
                self._log.moved.wait(_IDLE)
            self._look_after_the_house()  # What gets too old meanwhile makes room.

    def _empty_for(self, batches: list[Batch]) -> bool:
        """Whether the log could be emptied for what is larger than all of it."""
        journal = self._log.journal
        records, nbytes = sum(batch.count for batch in batches), sum(batch.nbytes for batch in batches)
        if records <= journal.max_records and nbytes <= journal.max_bytes:
            return False
        return journal.make_room(journal.max_records, journal.max_bytes, self._log.low_watermark)

    def _store(self, packed: list[Batch], marks: Mapping[str, str] | None = None) -> bool:
        """Append, and try again for as long as the disk is full or another program has the journal locked.

        The source waits, nothing is lost. False if the gateway is stopped meanwhile.
        """
        while True:
            self._save_cursors()
            try:
                self._log.journal.append(packed, marks)
            except (JournalFull, JournalLocked) as error:
                self._stall(error)
                if not self._wait(_IDLE):
                    return False
                self._retire()  # What is deleted makes room, too.
            else:
                self._go_on()
                return True

    def _look_after_the_house(self) -> None:
        if time.monotonic() >= self._house_kept + _IDLE:
            self._keep_house()

    def _keep_house(self) -> None:
        """Store how far the readers are, and let go of what is too old."""
        self._house_kept = time.monotonic()
        self._save_cursors()
        try:
            self._retire()
            self._log.journal.flush()
        except (JournalFull, JournalLocked) as error:
            self._stall(error)
        else:
            self._go_on()

    def _save_cursors(self) -> None:
        for name, cursor in self._take_cursors().items():
            self._log.journal.save_cursor(name, cursor)

    def _retire(self) -> None:
        with self._log.moved:
            self._log.journal.retire(self._log.low_watermark, needed=self._log.needed)

    def _stall(self, error: JournalError) -> None:
        if str(error) != self.stalled:
            _log.error("%s; the gateway waits, and its source with it", error)
        self.stalled = str(error)

    def _go_on(self) -> None:
        if self.stalled is not None:
            _log.warning("the journal can be written again: the gateway goes on")
            self.stalled = None

    def _wait(self, seconds: float) -> bool:
        """Wait, whatever happens meanwhile; False if the gateway is stopped."""
        until = time.monotonic() + seconds
        with self._log.moved:
            while not self._stopping and (left := until - time.monotonic()) > 0:
                self._log.moved.wait(left)
            return not self._stopping

    def _end(self, failure: str | None) -> None:
        # The text of an error may hold what UTF-8 has no place for: a part of the name of a file, say.
        self._log.finish(failure and failure.encode(errors="backslashreplace").decode())
        self._published()

    # ---------------------------------------------------------------- demand
    def _allow_more(self) -> None:
        """Let the source give what there is room for, in portions."""
        journal = self._log.journal
        held = journal.held_from(self._log.low_watermark)
        ahead = min(
            self._prefetch / self._packer.records_per_element,
            self._prefetch_bytes / self._packer.bytes_per_element,
        )
        room = min(
            (journal.max_records - held.records) / self._packer.records_per_element,
            (journal.max_bytes - held.nbytes) / self._packer.bytes_per_element,
            ahead,
            self._packer.first_request or UNBOUNDED,
        )
        if held.records < journal.max_records and held.nbytes < journal.max_bytes:
            room = max(room, 1)
        allowed = self._written + int(room)
        outstanding = self._allowed - self._intake.received
        if allowed - self._allowed >= ahead / 4 or (allowed > self._allowed and outstanding <= 0):
            self._allowed = allowed
            self._intake.allow(allowed)
