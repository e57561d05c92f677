"""The topic that a feed of Kafka reads: its partitions, its identity, and whether what comes next is there.

A topic can be deleted and created again, records can be deleted before they are read, and a partition can be
truncated. Each of these is an error of its own, with the place where the feed could go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from penstock.feeds.connected import ConnectionLost
from penstock.feeds.kafka_positions import KafkaPositions
from penstock.kafka import BrokerErrors, KafkaAddress, broker_error, client_settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, TopicPartition
    from confluent_kafka.admin import AdminClient

__all__ = ["PATIENCE", "KafkaTopic", "RecordsLost"]

PATIENCE: Final = 10.0
"""Seconds for an answer."""
_RECOVERY: Final = 5.0
"""Seconds for a broker that was just started to find the end of its log."""

_NONE: Final[Mapping[int, int]] = MappingProxyType({})


class RecordsLost(Exception):
    """Records that come next are not in the topic any more."""

    def __init__(
        self,
        text: str,
        positions: Mapping[int, int],
        count: int,
        goes_on_at: str,
        *,
        beyond: Mapping[int, int] = _NONE,
        topic_id: str | None = None,
    ) -> None:
        super().__init__(text)
        self.positions = positions
        """Where it could go on, by partition."""
        self.count = count
        """How many offsets are missing, as far as that is known."""
        self.goes_on_at = goes_on_at
        self.beyond = beyond
        """The offsets that are beyond the end, by partition."""
        self.topic_id = topic_id
        """The id of the topic, if it is another one now."""


class KafkaTopic:
    """One topic, as the brokers describe it.

    ``failure`` makes an error of the brokers the one that the feed raises.
    """

    def __init__(
        self,
        address: KafkaAddress,
        positions: KafkaPositions,
        errors: BrokerErrors,
        failure: Callable[[KafkaError], Exception],
    ) -> None:
        self._address = address
        self._positions = positions
        self._errors = errors
        self._failure = failure
        self._admin: AdminClient | None = None

    def open(self) -> None:
        """Connect."""
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient(client_settings(self._address, self._errors))

    def places(self, numbers: Iterable[int]) -> list[TopicPartition]:
        """These partitions, as the client wants them."""
        from confluent_kafka import TopicPartition

        return [TopicPartition(self._address.topic, number) for number in numbers]

    def places_at(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        """The same with an offset for each."""
        from confluent_kafka import TopicPartition

        return [TopicPartition(self._address.topic, number, offset) for number, offset in offsets.items()]

    def partitions(self) -> set[int]:
        """The partitions of the topic; it must be the one that the offsets belong to."""
        from confluent_kafka import KafkaException, TopicCollection

        assert self._admin is not None
        topic = self._address.topic
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=PATIENCE)[topic]
        try:
            found = asked.result()
        except KafkaException as failure:
            error = broker_error(failure)
            self._admin.poll(0)  # Errors that were noted meanwhile.
            if error.code() == error.UNKNOWN_TOPIC_OR_PART:
                raise ConnectionLost(f"there is no topic {topic}; create it, or check the name") from failure
            raise self._failure(error) from failure
        identity = str(found.topic_id)
        numbers = {each.id for each in found.partitions}
        if (before := self._positions.identify(identity)) is not None:
            raise RecordsLost(
                f"the topic {topic} was deleted and created again (its id was {before}, and is {identity})",
                dict.fromkeys(numbers, 0),
                0,
                "the oldest records of the new topic",
                topic_id=identity,
            )
        return numbers

    def bounds(self, consumer: Consumer, number: int) -> tuple[int, int]:
        """Where a partition begins and ends."""
        from confluent_kafka import TopicPartition

        place = TopicPartition(self._address.topic, number)
        low, high = consumer.get_watermark_offsets(place, timeout=PATIENCE)
        return low, high

    def check(self, consumer: Consumer, positions: Mapping[int, int]) -> None:
        """RecordsLost if what comes next is not there any more."""
        from confluent_kafka import KafkaException

        for number, offset in positions.items():
            deadline = time.monotonic() + _RECOVERY
            while True:
                try:
                    low, high = self.bounds(consumer, number)
                except KafkaException as error:
                    raise ConnectionLost(self._errors.about(broker_error(error))) from error
                if offset <= high or time.monotonic() > deadline:
                    break
                time.sleep(_RECOVERY / 20)
            if low <= offset <= high:
                continue
            what = f"partition {number} of {self._address.topic}"
            if offset < low:
                raise RecordsLost(
                    f"the offsets {offset} to {low - 1} of {what} were deleted before they were read; keep "
                    "more of the topic (retention.ms, retention.bytes)",
                    {number: low},
                    low - offset,
                    f"offset {low}",
                )
            reader = "the journal has" if self._positions.of(number) == offset else "the group has read"
            raise RecordsLost(
                f"{what} ends at offset {high}, and {reader} what came before {offset}: the topic was "
                "truncated",
                {number: high},
                0,
                f"offset {high}",
                beyond={number: offset},
            )
