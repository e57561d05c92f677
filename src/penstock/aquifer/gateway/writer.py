"""The writer: packs what has arrived, appends it to the log, and turns the log's space into demand.

Elements that arrive while a transaction is being written go into the next one: the slower the disk, the
larger the groups.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from penstock.aquifer.errors import (
    BatchTooLarge,
    JournalError,
    JournalFull,
    JournalLocked,
    JournalUnavailable,
    OutcomeUnknown,
)
from penstock.aquifer.gateway.dead_letters import BadRecords, Misfit
from penstock.aquifer.gateway.intake import Intake
from penstock.aquifer.hop_clock import Doing
from penstock.aquifer.log import Log, PendingAppend, Spool
from penstock.aquifer.log.spool import is_spooled
from penstock.aquifer.records.batch import Batch
from penstock.aquifer.records.compression import Compressor
from penstock.aquifer.records.packer import Packed, Packer
from penstock.delivery import BadRecord, Delivery
from penstock.spec import UNBOUNDED

__all__ = ["FEED_MARK", "LogWriter"]

_log = logging.getLogger("penstock.aquifer")

FEED_MARK: Final = "feed:"
"""What the names of a source's marks begin with in the journal."""
_GROUP: Final = 50_000
"""The most elements in one transaction."""
_IDLE: Final = 0.25
"""Seconds after which the writer stores cursors and retires records even if no element comes."""
_WITHDRAWN: Final = "the key of this writer may not write here any more"
_ENDED: Final = "the stream of this gateway has ended, and nothing can be added to it"


class LogWriter:
    """The only thread that appends to the log."""

    def __init__(
        self,
        log: Log,
        intake: Intake,
        packer: Packer,
        *,
        prefetch: int,
        prefetch_bytes: int,
        bad: BadRecords | None = None,
        stream: str = "",
    ) -> None:
        self._about: Final = {"stream": stream}
        """What a message of the log is about."""
        self._bad = bad or BadRecords("fail")
        self._log = log
        self._intake = intake
        self._packer = packer
        self._prefetch = prefetch
        self._prefetch_bytes = prefetch_bytes
        self._stopping = False
        self._house_kept = 0.0
        self._written = 0
        """How many elements are in the log."""
        self._demand = 0
        """How many elements the intake was told to request, since the beginning."""
        self._thread = threading.Thread(target=self._run, name="penstock-gateway-writer", daemon=True)

    def start(self) -> None:
        """Begin to request and to write."""
        self._intake.start()
        self._thread.start()

    def stop(self) -> None:
        """Cancel the source; write what has arrived, if it fits; store the cursors."""
        self._intake.cancel()
        with self._log.changed:
            self._stopping = True
            self._log.changed.notify_all()
        self._thread.join()
        self._intake.join(1.0)

    # ---------------------------------------------------------------- the thread
    def _run(self) -> None:
        try:
            while self._step():
                pass
            if not self._stopping:  # Otherwise they may ask again, after a restart.
                self._log.refuse_submissions(_ENDED)
            while self._wait(_IDLE):
                self._keep_house()
            self._keep_house()
        except BaseException as error:  # Also what asks a thread to stop: readers wait for an end.
            self._fail(error)
        finally:
            self._log.stores_no_more()

    def _fail(self, error: BaseException) -> None:
        # The text of a JournalError says it all; anything else is a defect, and has to be found.
        unexpected = None if isinstance(error, JournalError) else error
        _log.error(
            "the gateway cannot write its journal any more: %s", error, exc_info=unexpected, extra=self._about
        )
        self._end(f"the journal of the gateway failed: {error}")
        self._intake.cancel()
        self._log.refuse_submissions(f"the journal of the gateway failed: {error}")

    def _step(self) -> bool:
        """Write a group, or wait for something to do; False when there is nothing left to do."""
        self._look_after_the_house()
        intake = self._intake
        done = intake.done  # Read first: what arrived before the end is taken below.
        pending = self._log.next_submitted()
        if pending is not None:
            going_on = self._append_submitted(pending)
            self._log.done_with(pending)  # Not before: if the journal fails, somebody waits to be told.
            return going_on
        elements = intake.take(_GROUP)
        if elements:
            return self._write(elements)
        if done and self._log.end is None:
            self._end(None if intake.error is None else f"{type(intake.error).__name__}: {intake.error}")
        if self._stopping:
            return False
        self._request_more()
        with self._log.changed:
            intake.idle = True
            nothing = not intake.waiting and self._log.next_submitted() is None and intake.done == done
            if nothing and not self._stopping:
                if intake.arrived < self._demand or done:
                    self._log.clock.now(Doing.WAITING_FOR_DATA)
                else:
                    self._log.waits_for_space()
                self._log.changed.wait(_IDLE)
            intake.idle = False
        return True

    def _write(self, elements: list[object]) -> bool:
        self._log.clock.now(Doing.WORKING)
        if self._intake.feed is not None and Delivery in set(map(type, elements)):
            deliveries = [each if isinstance(each, Delivery) else Delivery([each]) for each in elements]
            self._intake.count_delivered(len(deliveries), sum(len(each.records) for each in deliveries))
            return self._write_deliveries(deliveries)
        batches, taken, error = self._packer.pack(elements, self._log.head)
        if error is not None and self._bad.policy != "fail":
            return self._write_the_good(elements)
        if error is not None and _has_bad_record(elements):
            batches, taken, error = self._before_bad_record(elements)
        if batches and not self._append(self._compressed(batches)):
            return False
        self._written += taken
        if error is not None:
            return self._give_up(error)
        self._request_more()
        return True

    def _before_bad_record(self, elements: list[object]) -> Packed:
        """What comes before the first element that the source itself calls bad."""
        at = next(index for index, each in enumerate(elements) if isinstance(each, BadRecord))
        packed, bad = self._packer.pack(elements[:at], self._log.head), elements[at]
        assert isinstance(bad, BadRecord)
        return packed if packed.error is not None else packed._replace(error=ValueError(bad.reason))

    def _write_the_good(self, elements: list[object]) -> bool:
        """Leave the bad ones out, or make dead letters of them, which are stored first."""
        good, bad = self._bad.sieve(elements, self._packer, self._log.head)
        if not self._divert(bad):
            return False
        batches, _, error = self._packer.pack(good, self._log.head)
        if error is not None:
            return self._give_up(error)
        if batches and not self._append(self._compressed(batches)):
            return False
        self._written += len(elements)
        self._request_more()
        return True

    def _divert(self, bad: list[Misfit]) -> bool:
        for pending in self._bad.take(bad, self._log.epoch):
            while not pending.is_done:
                if self._bad.wait(pending) is None and self._stopping and not pending.is_done:
                    return False  # They come again after a restart, if the source can be read again.
                if not pending.is_done:
                    # Their log may be full for long, and this one has readers and old records meanwhile.
                    self._log.clock.now(Doing.WAITING_FOR_DEMAND)
                    self._look_after_the_house()
            if pending.failure is not None:
                raise JournalError(f"a dead letter could not be stored: {pending.failure}")
        self._intake.left_out, self._intake.left_out_for = self._bad.count, self._bad.reasons.newest
        return True

    def _give_up(self, error: BaseException) -> bool:
        self._intake.cancel()
        self._end(f"an element could not become a record: {type(error).__name__}: {error}")
        _log.error(
            "the gateway stopped: an element could not become a record", exc_info=error, extra=self._about
        )
        return False

    def _write_deliveries(self, deliveries: list[Delivery]) -> bool:
        """Each delivery with its marks in one transaction, and as many deliveries as fit in the same one."""
        records = [record for delivery in deliveries for record in delivery.records]
        batches, taken, error = self._packer.pack(records, self._log.head, len(deliveries))
        if error is not None and self._bad.policy != "fail":
            return self._write_good_deliveries(deliveries)
        if error is not None and _has_bad_record(records):
            return self._fail_at_bad_record(deliveries)
        if error is not None:
            whole = _whole_within(deliveries, taken)
            return (not whole or self._write_deliveries(whole)) and self._give_up(error)
        batches = self._compressed(batches)
        # An empty log takes what is larger than its bounds, if it cannot be divided; these can.
        too_many = len(deliveries) > 1 and self._log.is_oversized(*_size_of(batches))
        if batches and (too_many or not self._make_space(batches)):
            if len(deliveries) > 1:
                # The log is nearly full: those that fit first, so that their senders are told.
                middle = len(deliveries) // 2
                return self._write_deliveries(deliveries[:middle]) and self._write_deliveries(
                    deliveries[middle:]
                )
            if not self._wait_for_space(batches):
                return False
        marks = {FEED_MARK + name: it for each in deliveries for name, it in each.marks.items()}
        if (batches or marks) and not self._store(batches, marks):
            return False
        for delivery in deliveries:
            self._intake.tell_stored(delivery)
        self._written += len(deliveries)
        self._request_more()
        return True

    def _write_good_deliveries(self, deliveries: list[Delivery]) -> bool:
        mended: list[Delivery] = []
        misfits: list[Misfit] = []
        offset = self._log.head
        for each in deliveries:
            good, bad = self._bad.sieve(each.records, self._packer, offset)
            mended.append(dataclasses.replace(each, records=good))
            misfits += bad
            offset += sum(map(self._packer.records_in, good))
        return self._divert(misfits) and self._write_deliveries(mended)

    def _fail_at_bad_record(self, deliveries: list[Delivery]) -> bool:
        """Store the deliveries before the first one with a record that its source calls bad, and fail."""
        found = [[one for one in each.records if isinstance(one, BadRecord)] for each in deliveries]
        at = next(index for index, bad in enumerate(found) if bad)
        stored = at == 0 or self._write_deliveries(deliveries[:at])
        return stored and self._give_up(ValueError(found[at][0].reason))

    def _append_submitted(self, pending: PendingAppend) -> bool:
        """All of it at once, with its marks: it is in the log as a whole, or not at all."""
        if self._log.end is not None:
            pending.failure = _ENDED
            return True
        if pending.withdrawn:
            pending.failure = _WITHDRAWN
            return True
        batches, first = [], self._log.head
        for batch in pending.batches:
            batches.append(replace(batch, first=first))
            first = batches[-1].end
        batches = self._compressed_apart(batches)
        if batches and not self._wait_for_space(batches, pending):
            return False
        if pending.withdrawn:
            pending.failure = _WITHDRAWN
            return True
        try:
            if not self._store(batches, pending.marks_after(self._log.marks), pending):
                return False
        except BatchTooLarge as error:  # This writer has to know, and the others go on.
            pending.failure = str(error)
            return True
        if pending.failure is None:
            pending.end = self._log.head
            self._log.wake_readers()
        return True

    def _compressed(self, batches: list[Batch]) -> list[Batch]:
        """The batches as they are stored and sent: this is the one time that they are compressed."""
        compressor = self._log.compressor
        return batches if compressor is None else compressor.all_compressed(batches)

    def _compressed_apart(self, batches: list[Batch]) -> list[Batch]:
        """The same for more batches than fit into memory: those from a spool go to a spool.

        That takes space beside the batches, and beside what the journal needs for them. If the disk does not
        have it, they stay as they are.
        """
        compressor = self._log.compressor
        spooled = sum(batch.nbytes for batch in batches if is_spooled(batch))
        spool = self._log.open_spool() if compressor is not None and spooled else None
        if compressor is None or spool is None:
            return self._compressed(batches)
        with suppress(OSError):
            if spool.free_bytes() >= 2 * spooled:
                return [_compressed_into(spool, compressor, batch) for batch in batches]
        return batches

    def _append(self, packed: list[Batch]) -> bool:
        """Append in portions that fit; False if the gateway is stopped while the log is full."""
        while packed:
            fits = len(packed)
            while fits and not self._make_space(packed[:fits]):
                fits = fits // 2
            if not fits:
                if not self._wait_for_space(packed[:1]):
                    return False
                continue
            if not self._store(packed[:fits]):
                return False
            packed = packed[fits:]
        return True

    def _make_space(self, packed: list[Batch]) -> bool:
        return self._log.make_space(*_size_of(packed))

    def _wait_for_space(self, batches: list[Batch], pending: PendingAppend | None = None) -> bool:
        while True:
            with self._log.changed:
                if self._make_space(batches) or self._log.make_space_for_oversized(*_size_of(batches)):
                    return True
                if pending is not None and pending.withdrawn:
                    return True
                if self._stopping:
                    return False
                self._log.waits_for_space()
                self._log.changed.wait(_IDLE)
            self._look_after_the_house()  # Records that get too old meanwhile make space.

    def _store(
        self,
        packed: list[Batch],
        marks: Mapping[str, str | None] | None = None,
        pending: PendingAppend | None = None,
    ) -> bool:
        """Append, and try again as long as the disk is full or another program has locked the journal.

        Meanwhile the source waits, and nothing is lost. False if the gateway is stopped. What is withdrawn
        meanwhile has failed, unless it may have been stored.
        """
        while True:
            try:
                self._log.append(packed, marks)
            except (JournalFull, JournalLocked, JournalUnavailable) as error:
                self._stall(error)
                if not self._wait(_IDLE):
                    return False
                # What may be stored stays until that is known: the log goes on behind it.
                is_known = not isinstance(error, OutcomeUnknown)
                if is_known and pending is not None and pending.withdrawn:
                    pending.failure = _WITHDRAWN
                    return True
                self._log.retire()  # What is deleted makes space, too.
            else:
                self._go_on()
                self._intake.note_stored(self._log.head)
                return True

    def _look_after_the_house(self) -> None:
        if self._log.wants_flush or time.monotonic() >= self._house_kept + _IDLE:
            self._keep_house()

    def _keep_house(self) -> None:
        """Store the cursors, and forget records that are too old."""
        self._house_kept = time.monotonic()
        try:
            self._log.retire()
            self._log.flush()
        except (JournalFull, JournalLocked, JournalUnavailable) as error:
            self._stall(error)
        else:
            self._go_on()
        # Without a commit, too: a sender that has just connected wants to know what is in the log.
        self._intake.note_stored(self._log.head)

    def _stall(self, error: JournalError) -> None:
        why = str(error)
        if why != self._log.stalled:
            # Not the error itself: a handler may keep it, and with it the batches in its traceback.
            _log.error("%s; the gateway and its source wait", why, extra=self._about)
        self._log.stalled = why

    def _go_on(self) -> None:
        if self._log.stalled is not None:
            _log.warning("the journal can be written again: the gateway continues", extra=self._about)
            self._log.stalled = None

    def _wait(self, seconds: float) -> bool:
        """Wait so many seconds; False if the gateway is stopped."""
        until = time.monotonic() + seconds
        with self._log.changed:
            while not self._stopping and (left := until - time.monotonic()) > 0:
                self._log.changed.wait(left)
            return not self._stopping

    def _end(self, failure: str | None) -> None:
        # The text of an error may hold what UTF-8 cannot encode: a part of a file name, for instance.
        self._log.finish(failure and failure.encode(errors="backslashreplace").decode())
        self._bad.end()

    # ---------------------------------------------------------------- demand
    def _request_more(self) -> None:
        """Turn the space in the log into demand, in portions."""
        packer = self._packer
        records, nbytes = self._log.space()
        self._intake.set_free_space(min(records, self._prefetch), min(nbytes, self._prefetch_bytes))
        ahead = min(
            self._prefetch / packer.records_per_element, self._prefetch_bytes / packer.bytes_per_element
        )
        fit = min(
            records / packer.records_per_element,
            nbytes / packer.bytes_per_element,
            ahead,
            (packer.first_request if self._intake.feed is None else 1) if packer.first_request else UNBOUNDED,
        )
        if records > 0 and nbytes > 0:
            fit = max(fit, 1)
        demand = self._written + int(fit)
        outstanding = self._demand - self._intake.arrived
        if demand - self._demand >= ahead / 4 or (demand > self._demand and outstanding <= 0):
            self._demand = demand
            self._intake.set_demand(demand)


def _compressed_into(spool: Spool, compressor: Compressor, batch: Batch) -> Batch:
    smaller = compressor.tried(batch)
    if not (smaller.compressed and is_spooled(batch)):
        return smaller
    (payload,) = spool.put(smaller.payload)
    return replace(smaller, payload=payload)


def _size_of(batches: list[Batch]) -> tuple[int, int]:
    return sum(batch.count for batch in batches), sum(batch.nbytes for batch in batches)


def _has_bad_record(elements: Sequence[object]) -> bool:
    """Whether the source itself calls one of them bad."""
    return BadRecord in set(map(type, elements))


def _whole_within(deliveries: list[Delivery], records: int) -> list[Delivery]:
    """The first deliveries that have at most so many records together."""
    whole = []
    for delivery in deliveries:
        records -= len(delivery.records)
        if records < 0:
            break
        whole.append(delivery)
    return whole
