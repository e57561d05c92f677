"""The consumer behind a feed of Kafka: reading on demand, and partitions that come and go.

Everything here runs on one thread, the one that belongs to the connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.feeds.connected import ConnectionLost
from penstock.feeds.feed import BadFeed
from penstock.feeds.kafka_positions import KafkaPositions
from penstock.feeds.kafka_topic import PATIENCE, KafkaTopic, RecordsLost
from penstock.kafka import BrokerErrors, KafkaAddress, broker_error, client_settings, is_refusal

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

__all__ = ["KafkaReader", "KafkaSettings"]

_log = logging.getLogger("penstock.feeds")

_RECORDS: Final = 500
_BYTES: Final = 256 * 1024
"""A delivery has at most so many records, and about so many bytes."""
_QUEUED_KIB: Final = 8 * 1024
_QUEUED: Final = 20_000
"""So much is read ahead at most: KiB, and records."""
_WAIT: Final = 0.25
"""Seconds for which a read waits for the first record."""
_RESTS: Final = 30
"""How often in a row it rests, a second each time, before the partitions are paused.

A pause costs what was read ahead: the client forgets it, and fetches it again.
"""
_SESSION_MS: Final = 10_000
"""Milliseconds after which the group gives away the partitions of a member that is silent."""
_COMMIT_EVERY: Final = 0.5
_LOOK_EVERY: Final = 5.0
"""Seconds between two looks at the topic: it may have more partitions, or have been deleted."""
_HAND_OVER: Final = 30.0
"""Seconds that others of the group wait at most for what we have read to become safe."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Which part of a topic is read, and as whom."""

    group: str | None = None
    """The consumer group; None to read all partitions, and to tell nobody."""
    member: str | None = None
    """The name in the group, as ``group.instance.id``."""
    from_now: bool = False
    """Whether a new reader begins at the end of the topic."""
    isolation: str = "read_committed"
    skips_lost: bool = False
    """Whether the feed continues if records were deleted before they were read."""
    timestamps: bool = False
    """Whether records keep the times that Kafka has for them."""


class KafkaReader:
    """One consumer, from its connection to its end."""

    def __init__(
        self, name: str, address: KafkaAddress, settings: KafkaSettings, positions: KafkaPositions
    ) -> None:
        self._name = name
        self._address = address
        self._settings = settings
        self._positions = positions
        self._errors = BrokerErrors()
        self._consumer: Consumer | None = None
        self._topic = KafkaTopic(address, positions, self._errors, self._failure)
        self._assigned: set[int] = set()
        self._starts: dict[int, int] = {}
        """Where partitions begin of which nothing was ever read."""
        self._paused = False
        self._spare: list[Message] = []
        """Records that came while there was no demand: one for each poll that kept us in the group."""
        self.reads = 0
        """How often it was read."""
        self._rested = 0
        """How often it has rested since then."""
        self._problem: Exception | None = None
        """What went wrong in a callback; raised by the call that made it."""
        self._looked = self._committed = time.monotonic()
        self._telling = 0
        """How many commits to the group have not been answered yet."""
        self._leaving = False
        """Whether the group takes its partitions away because this member leaves."""
        self._average = 1024.0
        """Bytes of a record, lately."""

    # ---------------------------------------------------------------- connecting
    def open(self) -> dict[int, int]:
        """Connect; return where partitions begin that are read from now on."""
        from confluent_kafka import Consumer, KafkaException

        settings = self._settings
        member: dict[str, object] = {"on_commit": self._told}
        if settings.member is not None:
            member["group.instance.id"] = settings.member
        config = client_settings(
            self._address,
            self._errors,
            group_id=settings.group or "penstock",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="error",
            isolation_level=settings.isolation,
            partition_assignment_strategy="cooperative-sticky",
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=_SESSION_MS // 5,
            queued_max_messages_kbytes=_QUEUED_KIB,
            queued_min_messages=_QUEUED,
            fetch_queue_backoff_ms=20,
            fetch_max_bytes=_QUEUED_KIB * 1024,
            max_partition_fetch_bytes=1 << 20,
        )
        try:
            self._topic.open()
            self._consumer = consumer = Consumer({**config, **member})
            found = self._topic.partitions()
            if settings.group is None:
                self._assign(found)
            else:
                consumer.subscribe(
                    [self._address.topic],
                    on_assign=lambda _, given: self._given([it.partition for it in given]),
                    on_revoke=lambda _, taken: self._taken_away([it.partition for it in taken]),
                    on_lost=lambda _, lost: self._lost([it.partition for it in lost]),
                )
        except KafkaException as error:
            raise self._failure(broker_error(error)) from error
        return dict(self._starts)

    def close(self, patience: float) -> None:
        """Wait for what was read to become safe, tell the group, and disconnect."""
        from confluent_kafka import KafkaException

        consumer = self._consumer
        if consumer is None:
            return
        try:
            if self._settings.group is not None:
                self._wait_until_safe(self._assigned, patience)
                self._commit(consumer)
                self._wait_until_told(consumer)
        except KafkaException as error:
            _log.info("%s: the group was not told of the last records: %s", self._name, error)
        finally:
            self._leaving = True
            consumer.close()
            self._consumer = None

    def _wait_until_told(self, consumer: Consumer) -> None:
        """A commit that waits by itself does so for ever if there is no broker."""
        deadline = time.monotonic() + PATIENCE
        consumer.pause(consumer.assignment())
        while self._telling and not self._errors.all_down and time.monotonic() < deadline:
            consumer.poll(0.05)

    # ---------------------------------------------------------------- reading
    def read(self) -> list[Message]:
        """What is there, up to the bounds of a delivery; empty if nothing came for a moment."""
        from confluent_kafka import KafkaException

        consumer = self._open_consumer()
        self.reads += 1
        self._rested = 0
        try:
            if self._paused:
                self._paused = False
                consumer.resume(consumer.assignment())
            found = self._found(consumer)
            self._keep_up(consumer)
        except KafkaException as error:
            raise self._failure(broker_error(error)) from error
        return self._good(found)

    def _found(self, consumer: Consumer) -> list[Message]:
        found, self._spare = self._spare, []
        if not found:
            first = consumer.poll(_WAIT)
            found = [] if first is None else [first]
        size = sum(map(len, found))
        while found and len(found) < _RECORDS and size < _BYTES:
            fit = max(1, min(_RECORDS - len(found), int((_BYTES - size) / self._average)))
            more = consumer.consume(fit, 0)
            size += sum(map(len, more))
            found += more
            if len(more) < fit:
                break
        if found:
            self._average = max(1.0, 0.9 * self._average + 0.1 * size / len(found))
        return found

    def rest(self) -> None:
        """Read nothing, and stay in the group; ConnectionLost if there is nobody to stay with."""
        from confluent_kafka import KafkaException

        consumer = self._open_consumer()
        self._rested += 1
        try:
            if not self._paused and (self._rested > _RESTS or sum(map(len, self._spare)) > _BYTES):
                self._paused = True
                consumer.pause(consumer.assignment())
            came = consumer.poll(0)
            if came is not None:
                self._spare.append(came)
            self._keep_up(consumer)
        except KafkaException as error:
            raise ConnectionLost(self._errors.about(broker_error(error))) from error
        except (BadFeed, RecordsLost) as problem:
            self._problem = problem  # For the next read.

    def _open_consumer(self) -> Consumer:
        if self._consumer is None:
            raise ConnectionLost("the consumer is closed")
        return self._consumer

    def _keep_up(self, consumer: Consumer) -> None:
        """Tell the group what is safe, look at the topic now and then, and raise what went wrong."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        if self._errors.refused is not None:
            raise BadFeed(f"{self._name} refuses the user or the password: {self._errors.refused}")
        if self._errors.all_down:
            self._errors.all_down = False
            raise ConnectionLost(self._errors.reason or "no broker answers")
        now = time.monotonic()
        if self._settings.group is not None and now - self._committed >= _COMMIT_EVERY:
            self._committed = now
            self._commit(consumer)
        if now - self._looked >= _LOOK_EVERY:
            self._looked = now
            found = self._topic.partitions()
            if self._settings.group is None and found - self._assigned:
                self._assign(found)

    def _good(self, messages: list[Message]) -> list[Message]:
        """The records; the first error is raised by the next read, so that those before it are delivered."""
        good: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                # What was read of a partition that now belongs to another is for that one.
                if message.partition() in self._assigned:
                    good.append(message)
                continue
            problem = self._problem_with(message, error)
            if problem is not None:
                self._problem = problem
                break
        if not good and self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        return good

    def _problem_with(self, message: Message, error: KafkaError) -> Exception | None:
        if error.code() in (error._AUTO_OFFSET_RESET, error.OFFSET_OUT_OF_RANGE, error._LOG_TRUNCATION):
            number = message.partition()
            assert number is not None
            try:
                self._topic.check(self._open_consumer(), {number: self._positions.of(number) or 0})
            except (RecordsLost, ConnectionLost) as problem:
                return problem
            return ConnectionLost(error.str())  # It is there after all.
        if error.code() == error._MAX_POLL_EXCEEDED:
            _log.warning(
                "%s: this process was stopped for so long that the group went on without it", self._name
            )
            return None
        return self._failure(error)

    def _failure(self, error: KafkaError) -> Exception:
        if is_refusal(error) or self._errors.refused is not None:
            return BadFeed(f"{self._name} refuses the user: {self._errors.refused or error.str()}")
        if error.code() in (error._FATAL, error.FENCED_INSTANCE_ID):
            # For a fatal error the code is in the text only.
            if self._settings.member is None or "fenced" not in error.str():
                return BadFeed(f"{self._name}: {error.str()}")
            return BadFeed(
                f"{self._name}: another member of the group {self._settings.group} has the name "
                f"{self._settings.member}; give each gateway a name of its own with &member=NAME"
            )
        return ConnectionLost(self._errors.about(error))

    # ---------------------------------------------------------------- partitions
    def _assign(self, numbers: set[int]) -> None:
        """Without a group: read all partitions, and those that were added since."""
        new = self._where_to_start(sorted(numbers - self._assigned), {})
        self._open_consumer().incremental_assign(new)
        self._assigned |= numbers
        if self._paused:
            self._open_consumer().pause(new)

    def _given(self, numbers: list[int]) -> None:
        """The group gives partitions to us."""
        from confluent_kafka import KafkaException

        consumer = self._open_consumer()
        asked = self._topic.places(numbers)
        try:
            committed = {each.partition: each.offset for each in consumer.committed(asked, timeout=PATIENCE)}
            where = self._where_to_start(numbers, committed)
        except KafkaException as error:
            self._problem = self._failure(broker_error(error))
            return
        except (RecordsLost, ConnectionLost) as problem:
            self._problem = problem
            return
        consumer.incremental_assign(where)
        self._assigned |= set(numbers)
        if self._paused:
            consumer.pause(where)
        _log.info("%s: the group %s gives us the partitions %s", self._name, self._settings.group, numbers)

    def _where_to_start(self, numbers: list[int], committed: Mapping[int, int]) -> list[TopicPartition]:
        """After what we have read, or what the others of the group have."""
        consumer = self._open_consumer()
        known: dict[int, int] = {}
        # A partition that was added later is read from its beginning.
        from_now = self._settings.from_now and not self._positions.any_taken()
        for number in numbers:
            known[number] = self._positions.start(number, committed.get(number, -1))
            if known[number] < 0:
                low, high = self._topic.bounds(consumer, number)
                known[number] = high if from_now else low
                if from_now and self._settings.group is None:
                    self._starts[number] = high
                elif from_now:
                    self._positions.move(number, high)  # The group is told.
        self._topic.check(consumer, known)
        return self._topic.places_at(known)

    def _taken_away(self, numbers: list[int]) -> None:
        """Another member gets these; what we have read of them must be safe, and the group know it."""
        from confluent_kafka import KafkaException

        consumer = self._open_consumer()
        if self._leaving:
            # close() has waited and told the group before. Another commit would keep librdkafka from closing
            # for as long as no broker answers it (confluentinc/librdkafka#3740).
            self._let_go(consumer, numbers)
            return
        self._wait_until_safe(set(numbers) & self._assigned, _HAND_OVER)
        try:
            # On the same line as what follows, and before it: the next member gets these offsets.
            self._commit(consumer)
        except KafkaException as error:
            _log.warning("%s: the group was not told of the last records: %s", self._name, error)
        self._let_go(consumer, numbers)
        _log.info("%s: the group %s takes the partitions %s", self._name, self._settings.group, numbers)

    def _wait_until_safe(self, numbers: set[int], patience: float) -> None:
        """Wait until the journal has what was read of partitions that are about to go to other members."""
        if not self._positions.wait_until_stored(numbers, patience):
            _log.warning(
                "%s: the partitions %s go to another member of the group %s before all that was read of them "
                "is in the journal; some records can be in the logs of both",
                self._name,
                sorted(numbers),
                self._settings.group,
            )

    def _lost(self, numbers: list[int]) -> None:
        """The group has given them away already: we were silent for too long."""
        self._let_go(self._open_consumer(), numbers)
        _log.warning(
            "%s: the group %s gave the partitions %s to others, because this member was silent for too long; "
            "records that were on their way can be in the logs of both",
            self._name,
            self._settings.group,
            numbers,
        )

    def _let_go(self, consumer: Consumer, numbers: list[int]) -> None:
        consumer.incremental_unassign(self._topic.places(numbers))
        self._assigned -= set(numbers)

    def _commit(self, consumer: Consumer) -> None:
        """Tell the group what is in the journal; :meth:`_told` says whether it has heard."""
        ends = self._positions.uncommitted(self._assigned)
        if not ends:
            return
        self._positions.commit(ends)
        self._telling += 1
        consumer.commit(offsets=self._topic.places_at(ends), asynchronous=True)

    def _told(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        self._telling -= 1
        if error is not None:
            _log.debug("%s: the group was not told of %s: %s", self._name, offsets, error)
            self._positions.forget_commits()  # It is told again.
