"""The two topics of a log in Kafka: one with its batches, and a compacted one with what changes.

A batch is a message, with its offsets in the headers. Batches, cursors and marks of an append are one
transaction. The transactional id belongs to the topic: a gateway that opens the log fences the one that had
it open.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.aquifer.errors import (
    BatchTooLarge,
    JournalDamaged,
    JournalError,
    JournalInUse,
    OutcomeUnknown,
)
from penstock.aquifer.log.batch_sequence import Position
from penstock.aquifer.log.kafka_index import BatchPlace
from penstock.aquifer.log.kafka_topic_settings import LARGEST, created_topics, settings_to_mend
from penstock.aquifer.records.batch import Batch
from penstock.kafka import BrokerErrors, KafkaAddress, broker_error, client_settings, is_refusal

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer
    from confluent_kafka.admin import AdminClient

__all__ = ["KafkaTopics", "StateChanges", "batch_in"]

StateChanges = Mapping[str, bytes | None]
"""What to write to the compacted topic, by key; None deletes."""

_log = logging.getLogger("penstock.aquifer")

_READ_AHEAD_KIB: Final = 4096
_TRANSACTION_MS: Final = 60_000
_HEADER: Final = "penstock"
"""Its value: first offset, count, bytes before, format, metadata, time of the log; packed with msgpack."""


class _BatchHeader(msgspec.Struct, array_like=True, frozen=True):
    first: int
    count: int
    before: int
    format: str
    metadata: bytes
    stored: int = 0
    """In milliseconds since 1970; 0 if an earlier version has written it."""


_pack_header = msgspec.msgpack.Encoder().encode
_unpack_header = msgspec.msgpack.Decoder(_BatchHeader).decode


def batch_in(message: Message) -> tuple[BatchPlace, Batch]:
    """The batch in a message, and where it is."""
    headers = dict(message.headers() or ())
    found = headers.get(_HEADER)
    place = message.offset()
    assert place is not None
    try:
        header = _unpack_header(found if isinstance(found, bytes) else b"")
    except msgspec.MsgspecError:
        raise JournalDamaged(
            f"the message {place} of the topic {message.topic()} is not a batch; another program has written "
            "to it. Give the journal a topic of its own"
        ) from None
    stored = header.stored or message.timestamp()[1]
    position = Position(header.first, header.before)
    batch = Batch(header.first, header.count, message.value() or b"", header.metadata, header.format)
    return BatchPlace(position, place, stored), batch


class KafkaTopics:
    """Clients of the brokers; every call waits at most ``patience`` seconds, and is made by one thread."""

    def __init__(self, address: KafkaAddress, patience: float) -> None:
        from confluent_kafka.admin import AdminClient

        self.name = address.shown
        self._address = address
        self._topic, self._state = address.topic, f"{address.topic}-state"
        self._patience = patience
        self._errors = BrokerErrors()
        self._open_admin: AdminClient | None = AdminClient(client_settings(address, self._errors))
        self._producer: Producer | None = None
        self._deletion: Future[Any] | None = None
        """The answer to the last request to delete."""
        self._deleting = 0
        """Before which place that was."""
        self._undeleted: str | None = None
        """Why nothing is deleted, as it was told."""
        self._found: list[str] = []
        """The topics that were there."""

    @property
    def _admin(self) -> AdminClient:
        if self._open_admin is None:
            raise JournalError(f"the journal {self.name} is closed; open it again where it is needed")
        return self._open_admin

    # ---------------------------------------------------------------- opening
    def create(self) -> None:
        """Make the topics if they are not there. A user who may not do that can use those that are."""
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        settings = created_topics(self._topic, self._state)
        new = [
            NewTopic(name, num_partitions=1, replication_factor=-1, config=config)
            for name, config in settings.items()
        ]
        made = self._admin.create_topics(new, operation_timeout=self._patience)
        for name, creation in made.items():
            try:
                creation.result(self._patience)
            except (KafkaException, TimeoutError) as error:
                found = broker_error(error)
                if found.code() == found.TOPIC_AUTHORIZATION_FAILED:
                    # It says this also of a topic that is there.
                    self._check_presence(name, settings[name])
                elif found.code() != found.TOPIC_ALREADY_EXISTS:
                    self._admin.poll(0)
                    raise self.problem(error) from error
                self._found.append(name)

    def _check_presence(self, name: str, settings: Mapping[str, str]) -> None:
        """JournalError, with the command that helps, if there is no topic that this user may use."""
        from confluent_kafka import KafkaException

        try:
            self._describe(name)
        except (KafkaException, TimeoutError) as error:
            found = broker_error(error)
            if found.code() not in (found.UNKNOWN_TOPIC_OR_PART, found.TOPIC_AUTHORIZATION_FAILED):
                raise self.problem(error) from error
            given = " ".join(f"--config {setting}={value}" for setting, value in settings.items())
            raise JournalError(
                f"the brokers of the log {self.name} do not let this user create the topic {name}, which is "
                "not there, or which the user may not see. Give the user the rights Create, Describe, Read "
                "and Write for it; or give it the last three, and create the topic as another user: "
                f"kafka-topics --bootstrap-server {','.join(self._address.brokers)} --create --topic {name} "
                f"--partitions 1 {given}"
            ) from error

    def check_settings(self) -> None:
        """JournalError, with the commands that help, if Kafka would not keep all of the log."""
        wrong, commands = [], []
        for name in self._found:
            settings = self._settings_of(name)
            if settings is None:
                continue
            mended = settings_to_mend(settings, compacted=name == self._state)
            wrong += [f"{name} has {setting}={settings.get(setting, '')}" for setting in mended]
            if mended:
                given = ",".join(f"{setting}={value}" for setting, value in mended.items())
                commands.append(
                    f"kafka-configs --bootstrap-server {','.join(self._address.brokers)} --alter "
                    f"--topic {name} --add-config {given}"
                )
        if wrong:
            raise JournalError(
                f"Kafka would not keep all of the log {self.name}: {' and '.join(wrong)}; run "
                f"{' && '.join(commands)}"
            )

    def _settings_of(self, name: str) -> dict[str, str] | None:
        """The settings of a topic; None, with a warning, if we may not see them."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

        resource = ConfigResource(ResourceType.TOPIC, name)
        asked = self._admin.describe_configs([resource], request_timeout=self._patience)[resource]
        try:
            return {setting: str(entry.value) for setting, entry in asked.result(self._patience).items()}
        except (KafkaException, TimeoutError) as error:
            if not is_refusal(broker_error(error)):
                raise self.problem(error) from error
            _log.warning(
                "the log %s: the user may not see the settings of the topic %s (DescribeConfigs); make sure "
                "that %s has retention.ms=-1 and retention.bytes=-1, and %s has cleanup.policy=compact",
                self.name,
                name,
                self._topic,
                self._state,
            )
            return None

    def check_partitions(self) -> None:
        """JournalError if a topic has more than one partition."""
        for name in self._found:
            _, count = self._identity(name)
            if count != 1:
                raise JournalError(
                    f"the topic {name} has {count} partitions, and a log needs a topic with one. Give the "
                    "log another name; or, if nobody needs what is in this topic, delete it, and the gateway "
                    f"creates it: kafka-topics --bootstrap-server {','.join(self._address.brokers)} "
                    f"--delete --topic {name}"
                )

    def take_over(self) -> None:
        """Begin to write: the gateway that wrote before is fenced, and what it had not committed is gone."""
        from confluent_kafka import KafkaException, Producer

        producer = Producer(
            client_settings(
                self._address,
                self._errors,
                transactional_id=f"penstock-journal-{self._topic}",
                transaction_timeout_ms=_TRANSACTION_MS,
                message_max_bytes=LARGEST,
                queue_buffering_max_kbytes=4 * LARGEST // 1024,
                linger_ms=0,
            )
        )
        try:
            producer.init_transactions(self._patience)
        except KafkaException as error:
            with suppress(KafkaException):
                producer.poll(0)  # Errors that were noted meanwhile.
            raise self.problem(error) from error
        self._producer = producer

    def topic_id(self) -> str:
        """What Kafka calls the topic with the batches: another one if it is deleted and created again."""
        return self._identity(self._topic)[0]

    def _identity(self, name: str) -> tuple[str, int]:
        """The id of a topic, and how many partitions it has."""
        from confluent_kafka import KafkaException

        try:
            return self._describe(name)
        except (KafkaException, TimeoutError) as error:
            raise self.problem(error) from error

    def _describe(self, name: str) -> tuple[str, int]:
        from confluent_kafka import TopicCollection

        described = self._admin.describe_topics(TopicCollection([name]), request_timeout=self._patience)
        found = described[name].result(self._patience)
        return str(found.topic_id), len(found.partitions)

    # ---------------------------------------------------------------- writing
    def write(
        self, batches: Sequence[Batch], start: Position, changes: StateChanges, stored: int
    ) -> list[BatchPlace]:
        """All of it in one transaction; returns where the batches are.

        ``stored`` is the time of the log, in milliseconds since 1970.

        JournalInUse if another gateway has taken over. OutcomeUnknown if it is not known whether it was
        stored, or cannot be now: call :meth:`take_over`, and look.
        """
        from confluent_kafka import KafkaException

        producer = self._producer
        if producer is None:
            raise OutcomeUnknown(f"the log {self.name} has no connection; it is tried again")
        places: dict[int, BatchPlace] = {}
        failed: list[KafkaError] = []
        # Brokers refuse a time that is far from their own, so messages have that of the clock on the wall.
        # The time of the log is in the header: the next owner of the log needs it.
        now = int(time.time() * 1000)

        def delivered(position: Position | None) -> Any:
            def told(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    failed.append(error)
                elif position is not None:
                    places[position.offset] = BatchPlace(position, message.offset() or 0, stored)

            return told

        try:
            producer.begin_transaction()
            for batch in batches:
                metadata = bytes(batch.metadata)
                header = _BatchHeader(batch.first, batch.count, start.before, batch.format, metadata, stored)
                producer.produce(
                    self._topic,
                    bytes(batch.payload),
                    partition=0,
                    timestamp=now,
                    headers=[(_HEADER, _pack_header(header))],
                    on_delivery=delivered(start),
                )
                start = Position(batch.end, start.before + batch.nbytes)
            for key, value in changes.items():
                producer.produce(self._state, value, key=key, partition=0, on_delivery=delivered(None))
            if producer.flush(self._patience) or failed:
                raise KafkaException(failed[0]) if failed else TimeoutError("no answer")
            producer.commit_transaction(self._patience)
        except (KafkaException, BufferError, TimeoutError, SystemError) as error:
            if isinstance(error, SystemError) and not isinstance(error.__cause__, KafkaException):
                raise
            self._producer = None
            self._abandon(producer)
            del producer  # It has threads, and an error keeps its frames for a while.
            raise self.problem(error) from error
        return [places[first] for first in sorted(places)]

    def _abandon(self, producer: Producer) -> None:
        """Nothing of it is sent any more; the broker ends its transaction when we take over."""
        from confluent_kafka import KafkaException

        # It is fenced, or there is no broker: there is nothing to abort, or nobody to tell.
        with suppress(KafkaException, SystemError):
            producer.poll(0)  # Errors that were noted meanwhile.
        with suppress(KafkaException, SystemError):
            producer.purge()
            producer.abort_transaction(0)

    def delete_before(self, place: int) -> None:
        """Let go of the messages before this one; how soon is up to Kafka."""
        from confluent_kafka import TopicPartition

        where = TopicPartition(self._topic, 0, place)
        self._deletion, self._deleting = self._admin.delete_records([where])[where], place
        self._admin.poll(0)

    def failed_deletion(self) -> int | None:
        """The place of the last request to delete if that has failed, which is told once; or None."""
        from confluent_kafka import KafkaException

        if self._deletion is None or not self._deletion.done():
            return None
        deletion, self._deletion = self._deletion, None
        try:
            deletion.result()
        except KafkaException as error:
            found = broker_error(error)
            why = found.str()
            if is_refusal(found):
                why += f"; give the user the right Delete for the topic {self._topic}"
            if why != self._undeleted:
                _log.warning(
                    "the log %s: its topic grows, because Kafka does not delete what was forgotten: %s",
                    self.name,
                    why,
                )
            self._undeleted = why
            return self._deleting
        self._undeleted = None
        return None

    # ---------------------------------------------------------------- reading
    def state(self) -> dict[str, bytes]:
        """What the compacted topic has."""
        found: dict[str, bytes] = {}
        for message in self._messages(self._state, 0):
            key, value = (message.key() or b"").decode(), message.value()
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return found

    def batches(self, place: int = 0) -> Generator[tuple[BatchPlace, Batch], None, None]:
        """The batches from a place in the topic on, to its end."""
        for message in self._messages(self._topic, place):
            yield batch_in(message)

    def consumer(self) -> Consumer:
        """A consumer for one partition, which reads what was committed."""
        from confluent_kafka import Consumer

        return Consumer(
            client_settings(
                self._address,
                self._errors,
                group_id="penstock",
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                enable_partition_eof=True,
                check_crcs=True,
                queued_max_messages_kbytes=_READ_AHEAD_KIB,
                fetch_queue_backoff_ms=20,
                fetch_message_max_bytes=1 << 20,
            )
        )

    def read_from(self, consumer: Consumer, place: int) -> None:
        """Have a consumer read the log from a place on."""
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(self._topic, 0, place)])

    def oldest_place(self, consumer: Consumer) -> int:
        """The place of the oldest message of the log."""
        return self._bounds(consumer)[0]

    def bounds(self) -> tuple[int, int]:
        """The same, and the place of the message that comes next: 0 if there was never one."""
        from confluent_kafka import KafkaException

        consumer = self.consumer()
        try:
            return self._bounds(consumer)
        except KafkaException as error:
            raise self.problem(error) from error
        finally:
            consumer.close()

    def _bounds(self, consumer: Consumer) -> tuple[int, int]:
        from confluent_kafka import TopicPartition

        low, high = consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=self._patience)
        return low, high

    def _messages(self, topic: str, place: int) -> Iterator[Message]:
        """From a place to the end, as it is when it is reached."""
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        consumer = self.consumer()
        try:
            consumer.assign([TopicPartition(topic, 0, place or OFFSET_BEGINNING)])
            deadline = time.monotonic() + self._patience
            while True:
                for message in consumer.consume(500, 0.05):
                    error = message.error()
                    if error is None:
                        deadline = time.monotonic() + self._patience
                        yield message
                    elif error.code() == error._PARTITION_EOF:
                        return
                    elif is_refusal(error):
                        raise self.problem(error)
                if time.monotonic() > deadline:
                    raise self.problem(TimeoutError("no answer"))
        finally:
            consumer.close()

    def close(self) -> None:
        """Disconnect, when the last request to delete has been answered. It can be called again."""
        from confluent_kafka import KafkaException

        if self._deletion is not None:
            # A client that is gone sends nothing any more.
            with suppress(KafkaException, TimeoutError):
                self._deletion.result(self._patience)
            self.failed_deletion()
            self._deletion = None
        # Each has threads and connections, and goes with the last reference. Not with the one to this object:
        # an error of a request and the frames that it has gone through refer to one another.
        self._producer = self._open_admin = None

    def problem(self, error: BaseException | KafkaError) -> JournalError:
        """What an error of the brokers means to a journal."""
        found = broker_error(error) if isinstance(error, BaseException) else error
        if found.code() in (
            found._FENCED,
            found.PRODUCER_FENCED,
            found.INVALID_PRODUCER_EPOCH,
            found.INVALID_PRODUCER_ID_MAPPING,
        ):
            return JournalInUse(found.str())
        if self._errors.refused is not None or is_refusal(found):
            why = self._errors.refused or found.str()
            return JournalError(f"the brokers of the log {self.name} refuse: {why}")
        if found.code() in (found.MSG_SIZE_TOO_LARGE, found.RECORD_LIST_TOO_LARGE):
            return BatchTooLarge(
                f"a batch is too large for the topic {self.name}: raise its max.message.bytes, and the "
                "brokers' message.max.bytes"
            )
        return OutcomeUnknown(
            f"the brokers of the log {self.name} do not answer as they should: {self._errors.about(found)}"
        )
