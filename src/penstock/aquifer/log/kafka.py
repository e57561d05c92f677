"""The journal that survives its machine: a Kafka topic.

**What is safe.** When :meth:`KafkaJournal.append` returns, its batches, the marks and the cursors are one
committed transaction of Kafka, on as many brokers as the topic has replicas in sync. A gateway that is
started on another machine opens the same topic and continues where the dead one was, with the same epoch and
offsets.

**Who writes.** The gateway that opened the log last. Whoever had it open before is fenced by Kafka: its next
append fails with :class:`~penstock.aquifer.JournalInUse`, and nothing of it gets into the log.

**What may come back.** What was forgotten is deleted with the next append or flush, as in the other journals.

**What it needs.** Two topics of one partition each, ``NAME`` and ``NAME-state``, which are created if they
are not there. The places of all batches are in memory, 32 bytes each. ``NAME-state`` has most of them, so
that opening reads only the end of the log.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Final

from penstock.aquifer.errors import (
    BatchTooLarge,
    JournalDamaged,
    JournalError,
    JournalInUse,
    JournalUnavailable,
    OutcomeUnknown,
)
from penstock.aquifer.log.annotated_journal import AnnotatedJournal
from penstock.aquifer.log.batch_sequence import BatchSequence, Position, end_of
from penstock.aquifer.log.journal import Cursor, Held, a_bound, an_age, lacks_zstd, remaining
from penstock.aquifer.log.kafka_index import BatchPlace, KafkaIndex
from penstock.aquifer.log.kafka_reader import KafkaBatchReader
from penstock.aquifer.log.kafka_segments import IndexSegments
from penstock.aquifer.log.kafka_state import (
    FORMAT,
    FORMAT_WITH_ZSTD,
    KafkaLogState,
    changes_of,
    cursors_in,
    log_state_in,
    marks_in,
)
from penstock.aquifer.log.kafka_topics import KafkaTopics
from penstock.aquifer.log.marks import Marks
from penstock.aquifer.records.batch import Batch
from penstock.aquifer.records.compression import knows_zstd
from penstock.arguments import a_count, a_flag, a_number
from penstock.kafka import KafkaAddress, require_kafka

__all__ = ["KafkaJournal"]

_log = logging.getLogger("penstock.aquifer")

_MIB: Final = 1024 * 1024
_DELETE_EVERY: Final = 1.0
"""Seconds between two requests to delete what was forgotten."""


class KafkaJournal(AnnotatedJournal):
    """Keeps records in a Kafka topic until their number, their size or their age reaches a bound.

    ``brokers`` is ``host:port``, or several with commas; ``settings`` are properties of librdkafka for the
    connection, such as ``security.protocol``. The bounds, ``max_age``, ``keep_acknowledged`` and
    ``cache_bytes`` mean what they mean for a :class:`~penstock.aquifer.SqliteJournal`. The brokers have
    ``patience`` seconds for an answer; while they do not answer, the gateway and its source wait.
    """

    def __init__(
        self,
        brokers: str,
        topic: str,
        max_records: int | None = 10_000_000,
        max_bytes: int | None = 1024 * _MIB,
        max_age: float | None = None,
        keep_acknowledged: bool = True,
        cache_bytes: int = 32 * _MIB,
        patience: float = 10.0,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        require_kafka("journals in Kafka")
        self._address = KafkaAddress.given(brokers, topic, settings or {})
        scheme = "kafkas" if self._address.is_secure else "kafka"
        self.path = f"{scheme}://{','.join(self._address.brokers)}/{topic}"
        """Where it is, for messages."""
        self.max_records = a_bound(max_records, "KafkaJournal(max_records)")
        self.max_bytes = a_bound(max_bytes, "KafkaJournal(max_bytes)")
        self._max_age = an_age(max_age, "KafkaJournal(max_age)")
        self._keep_acknowledged = a_flag(keep_acknowledged, "KafkaJournal(keep_acknowledged)")
        self._cache_bytes = a_count(cache_bytes, "KafkaJournal(cache_bytes)")
        self._patience = a_number(patience, "KafkaJournal(patience)", above=0)
        self.durable = True
        self._owner = secrets.token_hex(8)
        self._opened = self._closed = self._broken = False
        self._fenced: str | None = None
        self._gives_way_until = 0.0
        """Somebody has fenced this one, and may have the log by then."""
        self._unsaved: dict[str, Cursor | None] = {}
        self._attempted: Sequence[Batch] = ()
        """The batches of an append whose outcome was not known."""
        self._deletable: int | None = None
        self._deleted = 0.0
        self._topics = KafkaTopics(self._address, self._patience)
        try:
            self._topics.create()
            self._topics.take_over()
            self._load()
            self._reader = KafkaBatchReader(self._topics, self._cache_bytes, min(5.0, self._patience))
        except JournalInUse as error:
            raise self._taken_over(str(error)) from error
        except BaseException:
            self._topics.close()
            raise

    def beside(self, suffix: str, max_records: int, max_bytes: int) -> KafkaJournal:
        """Another log at the same brokers, in a topic whose name ends with ``suffix``."""
        brokers, settings = ",".join(self._address.brokers), self._address.settings
        return KafkaJournal(
            brokers,
            self._address.topic + suffix,
            max_records,
            max_bytes,
            settings=settings,
            patience=self._patience,
        )

    # ---------------------------------------------------------------- opening
    def _load(self) -> None:
        stored = self._topics.state()
        found = log_state_in(stored, self.path)
        state = found or KafkaLogState(FORMAT, secrets.token_hex(6), "", 0, 0, "")
        if state.format == FORMAT_WITH_ZSTD and not knows_zstd():
            raise lacks_zstd(self.path)
        self.epoch, self._codec, self._format = state.epoch, state.codec, state.format
        self._topic_id = self._topics.topic_id()
        if state.topic_id not in ("", self._topic_id):
            raise self._another_topic()
        start = Position(state.first, state.before)
        if not self._read_with_segments(stored, start):
            self._read_everything(start)
        # Only now: what to do about the topic of another program is something else.
        if found is None:
            _, end = self._topics.bounds()
            if end:
                raise self._state_is_gone()
            self._topics.check_partitions()
        self._topics.check_settings()
        self.first, self.head = self._index.start.offset, self._index.end.offset
        self._cursors = cursors_in(stored)
        self._marks = Marks(marks_in(stored))
        self._saved: KafkaLogState | None = None
        self._start_clock(self._index.newest_stored / 1000)
        self._store((), {}, self._index.end)  # From here on the log says whose it is.
        self._opened = True

    def _read_with_segments(self, stored: Mapping[str, bytes], start: Position) -> bool:
        """Read what no segment has; False if the topic is not what the segments say."""
        self._index, self._segments = KafkaIndex(start), IndexSegments()
        self._segments.load(stored, self._index)
        last = self._index.at(self._index.end.offset - 1)
        if last is None:
            return False
        oldest = self._index.at(start.offset)
        if oldest is None or self._topics.bounds()[0] > oldest.place:
            return False  # Something else has deleted batches.
        self._recent = BatchSequence(last.position)
        with closing(self._topics.batches(last.place)) as found:
            for place, batch in islice(found, 1):
                if (place.position, place.place, batch.end) == (*last[:2], self._index.end.offset):
                    self._remember([batch])
                    return all(self._follows(*more) for more in found)
        return False  # The topic ends before, or is another one.

    def _follows(self, place: BatchPlace, batch: Batch) -> bool:
        """Take in a batch that is the next one of the log; False if it is not."""
        if place.position != self._index.end:
            return False
        self._index.extend([place], Position(batch.end, place.position.before + batch.nbytes))
        self._remember([batch])
        return True

    def _read_everything(self, start: Position) -> None:
        self._segments.discard()
        self._index = KafkaIndex(start)
        self._recent = BatchSequence(start)
        for place, batch in self._topics.batches():
            if place.position.offset < self._index.end.offset:
                continue  # It was forgotten, and not deleted yet.
            if not self._follows(place, batch):
                self._missing(place.position)
                self._follows(place, batch)

    def _another_topic(self) -> JournalDamaged:
        # With the epoch and the cursors of the lost log, readers would take new records for old ones.
        topic = self._address.topic
        return JournalDamaged(
            f"the topic of the log {self.path} was deleted and created again, so its records are gone; "
            f"delete {topic}-state as well, which has the cursors of its readers, and a new log begins"
        )

    def _state_is_gone(self) -> JournalDamaged:
        # Without the marks, feeds would read again what the log has.
        topic = self._address.topic
        return JournalDamaged(
            f"the topic of the log {self.path} has records, and what {topic}-state had was deleted: the "
            f"epoch, the cursors of readers, and how far feeds were read; delete {topic} as well, and a new "
            "log begins"
        )

    def _missing(self, found: Position) -> None:
        _log.warning(
            "%s: the topic does not have the offsets %d to %d any more: something other than the gateway has "
            "deleted them (retention.ms and retention.bytes should be -1)",
            self.path,
            self._index.start.offset,
            found.offset - 1,
        )
        self._index = KafkaIndex(found)
        self._recent = BatchSequence(found)

    # ---------------------------------------------------------------- the interface
    @property
    def held(self) -> Held:
        """How many records and bytes are in the journal."""
        return self._held_after(self._index.start)

    def held_from(self, low_watermark: int) -> Held:
        """What is left if every batch that ends at or before ``low_watermark`` is forgotten."""
        return self._held_after(self._index.position_of(low_watermark))

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str | None] | None = None) -> None:
        """Store the batches, in one transaction that Kafka has committed when this returns.

        ValueError if they do not follow on the end of the log. JournalUnavailable if the brokers do not
        answer: call it again, with the same batches. If they were committed after all, they are recognised.
        """
        self._check_open()
        self._recover()
        if (
            batches
            and self._attempted
            and list(batches) == list(self._attempted)
            and batches[-1].end == self.head
        ):
            self._attempted = ()
            return
        self._store(batches, marks or {}, end_of(batches, self._index.end))

    def find(self, offset: int) -> Batch | None:
        """The batch with this offset in it; None if it is before ``first`` or not before ``head``."""
        if not self.first <= offset < self.head:
            return None
        batch = self._recent.find(offset)
        if batch is not None:
            return batch
        place = self._index.at(offset)
        if place is None:
            return None  # It was forgotten while we were looking.
        self._check_open()
        batch = self._reader.find(place)
        if batch is None and offset >= self.first:
            raise JournalError(f"the log {self.path} does not have the record {offset} any more")
        return batch

    def make_space(self, records: int, nbytes: int, low_watermark: int) -> bool:
        """Forget the oldest batches until so much more fits; none, if ``low_watermark`` does not allow it."""
        self._check_open()
        position = self._index.position_for(
            remaining(self.max_records, records), remaining(self.max_bytes, nbytes)
        )
        if position.offset > max(low_watermark, self.first):
            return False
        self._forget_before(position)
        return True

    def retire(self, low_watermark: int, now: float | None = None, needed: int | None = None) -> None:
        """Forget what is too old or, if so set, acknowledged, but no batch that ends after ``low_watermark``.

        What is too old goes up to ``needed``, if that is given.
        """
        self._check_open()
        if not self._keep_acknowledged:
            self._forget_before(self._index.position_of(low_watermark))
        if self._max_age is not None:
            reachable = self._index.position_of(low_watermark if needed is None else needed)
            oldest = (self._now() if now is None else now) - self._max_age
            self._forget_before(min(self._index.position_younger_than(int(oldest * 1000)), reachable))

    def save_cursor(self, name: str, cursor: Cursor | None) -> None:
        """Remember, or with None forget, a cursor; stored with the next :meth:`append` or :meth:`flush`."""
        super().save_cursor(name, cursor)
        self._unsaved[name] = cursor

    def flush(self) -> None:
        """Store the cursors that were saved since the last :meth:`append`, and delete what was forgotten."""
        self._check_open()
        self._recover()
        if self._unsaved or self._state() != self._saved:
            self._store((), {}, self._index.end)
        self._delete()

    def close(self) -> None:
        """Store the rest and disconnect. It can be called again."""
        if self._closed:
            return
        try:
            if self._fenced is None:
                self.flush()
        finally:
            self._closed = True
            self._reader.close()
            self._topics.close()

    # ---------------------------------------------------------------- storing
    def _store(self, batches: Sequence[Batch], new: Mapping[str, str | None], end: Position) -> None:
        marks = self._marks.changes(new, self._now())
        if any(batch.compressed for batch in batches):
            self._format = FORMAT_WITH_ZSTD
        state, unsaved = self._state(), dict(self._unsaved)
        changes = changes_of(state if state != self._saved else None, unsaved, marks)
        if not batches and not changes:
            return
        segments = self._segments.changes(self._index)
        changes |= segments
        try:
            places = self._topics.write(batches, self._index.end, changes, round(self._now() * 1000))
        except BatchTooLarge:
            self._broken = True  # The transaction is given up, and the next one needs another producer.
            raise
        except (JournalUnavailable, JournalInUse) as error:
            if not self._opened:
                raise
            # Whether it was committed is seen when we have taken over again.
            self._broken, self._attempted = True, tuple(batches)
            if isinstance(error, JournalInUse):
                self._gives_way_until = time.monotonic() + self._patience
            self._recover()
            if batches and self.head == end.offset:
                self._attempted = ()
                return
            if isinstance(error, JournalInUse):  # Whoever has fenced this one does not have the log.
                raise OutcomeUnknown(str(error)) from error
            raise
        self._saved, self._attempted = state, ()
        for name in unsaved:
            self._unsaved.pop(name, None)
        self._marks.apply(marks)
        self._segments.written(segments)
        self._index.extend(places, end)
        self._remember(batches)
        # From here on other threads look for them.
        self.head = end.offset

    def _recover(self) -> None:
        """After an error: take over again, and look what was committed; JournalInUse if it is another's."""
        if not self._broken:
            return
        owned = self._topics
        self._check_owner(owned.state())  # First: to take over would disturb another one that has it.
        if time.monotonic() < self._gives_way_until:
            # Or that is about to have it: it says so when it has read the log.
            raise OutcomeUnknown(
                f"another gateway is opening the log {self.path}; this one goes on if that one fails"
            )
        try:
            owned.take_over()
        except JournalInUse as error:
            raise self._taken_over(str(error)) from error
        stored = owned.state()
        self._saved = self._check_owner(stored)
        last = self._index.at(self.head - 1)
        for place, batch in owned.batches(0 if last is None else last.place):
            self._follows(place, batch)
        self._marks.reload(marks_in(stored))
        self.head = self._index.end.offset
        # Cursors that were saved are written again: the last ones are the true ones.
        self._unsaved = {name: self._cursors.get(name) for name in {*self._cursors, *self._unsaved}}
        self._broken = False

    def _check_owner(self, stored: Mapping[str, bytes]) -> KafkaLogState:
        state = log_state_in(stored, self.path)
        if state is None or state.owner != self._owner:
            raise self._taken_over("Kafka has fenced it")
        return state

    def _taken_over(self, why: str) -> JournalInUse:
        self._fenced = (
            f"another gateway has opened the log {self.path}, and this one may not write to it any more "
            f"({why}); run one gateway for each log, or give this one a topic of its own"
        )
        self._topics.close()
        return JournalInUse(self._fenced)

    def _state(self) -> KafkaLogState:
        first, before = self._index.start
        return KafkaLogState(
            self._format, self.epoch, self._codec, first, before, self._owner, self._topic_id
        )

    def _remember(self, batches: Sequence[Batch]) -> None:
        self._recent.extend(batches)
        self._recent.forget_before(self._recent.position_for(self._recent.end.offset, self._cache_bytes))

    def _forget_before(self, position: Position) -> None:
        if position.offset > self.first:
            self.first = position.offset
            kept = self._index.forget_before(position)
            self._recent.forget_before(position)
            self._deletable = kept if kept is not None else self._deletable

    def _delete(self) -> None:
        """Have Kafka delete what was forgotten, now that the log says so."""
        now = time.monotonic()
        failed = self._topics.failed_deletion()
        if self._deletable is None:
            self._deletable = failed
        if self._deletable is not None and now - self._deleted >= _DELETE_EVERY:
            self._topics.delete_before(self._deletable)
            self._deletable, self._deleted = None, now

    def _held_after(self, position: Position) -> Held:
        end = self._index.end
        return Held(end.offset - position.offset, end.before - position.before)

    def _check_open(self) -> None:
        if self._fenced is not None:
            raise JournalInUse(self._fenced)
        if self._closed:
            raise JournalError(f"the journal {self.path} is closed; open it again where it is needed")
