"""Reads batches back from Kafka, for subscribers that are too far behind for the batches in memory."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from penstock.aquifer.errors import JournalError, JournalUnavailable
from penstock.aquifer.log.batch_sequence import BatchSequence, Position
from penstock.aquifer.log.kafka_index import BatchPlace
from penstock.aquifer.log.kafka_topics import KafkaTopics, batch_in
from penstock.aquifer.log.run_cache import RUN_BATCHES, RunCache
from penstock.aquifer.records.batch import Batch

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

__all__ = ["KafkaBatchReader"]

_PAUSE: Final = 5.0
"""Seconds for which brokers that did not answer are not asked again: other subscribers would wait."""


class KafkaBatchReader:
    """Finds batches through a consumer of its own, from any thread."""

    def __init__(self, topics: KafkaTopics, cache_bytes: int, patience: float) -> None:
        self._lock = threading.Lock()
        self._topics = topics
        self._patience = patience
        self._cache = RunCache(cache_bytes, least=1)
        self._consumer: Consumer | None = topics.consumer()
        self._next: Position | None = None
        """What the consumer reads next, if that is known."""
        self._not_before = 0.0

    def find(self, wanted: BatchPlace) -> Batch | None:
        """The batch at a place; None if Kafka has deleted it. JournalUnavailable if nobody answers."""
        offset = wanted.position.offset
        with self._lock:
            run = self._cache.run_with(offset)
            if run is None:
                if time.monotonic() < self._not_before:
                    raise JournalUnavailable(f"the brokers of the log {self._topics.name} do not answer")
                run = self._read(wanted)
                if run is None:
                    return None
                self._cache.keep(run)
            return run.find(offset)

    def close(self) -> None:
        """Wait until nobody reads, and disconnect. It can be called again."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None
            self._cache.clear()

    def _read(self, wanted: BatchPlace) -> BatchSequence | None:
        """A run that begins with this batch."""
        consumer = self._consumer
        if consumer is None:
            raise JournalError(f"the journal {self._topics.name} is closed; open it again")
        if self._next != wanted.position:
            self._topics.read_from(consumer, wanted.place)
        self._next = None
        run = BatchSequence(wanted.position)
        first = self._first(consumer, wanted.place)
        if first is None or batch_in(first)[0].position != wanted.position:
            return None  # Kafka has deleted it, and went on with one that is there.
        message: Message | None = first
        for _ in range(RUN_BATCHES):
            if message is None or message.error() is not None:
                break
            place, batch = batch_in(message)
            if place.position != run.end:
                return run
            run.extend((batch,))
            if run.nbytes >= self._cache.run_bytes:
                break
            message = consumer.poll(0)
        self._next = run.end
        return run

    def _first(self, consumer: Consumer, place: int) -> Message | None:
        """The next message; None if there is none at this place any more."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._patience
        # The end of what was committed can come before the message: that is found a moment later.
        while time.monotonic() < deadline:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                return message
        try:
            if self._topics.oldest_place(consumer) > place:
                return None
            why = "no answer"
        except KafkaException as error:
            why = str(error)
        self._not_before = time.monotonic() + _PAUSE
        raise JournalUnavailable(f"the brokers of the log {self._topics.name} do not answer: {why}")
