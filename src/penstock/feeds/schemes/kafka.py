"""The records of a Kafka topic: each exactly once, with its key, and in the order of its partition.

The offsets are stored with the records, in one transaction of the journal, and are where it continues. A
group, if one is given, is told of them after the commit. While the gateway does not ask, the partitions are
paused.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.delivery import Delivery
from penstock.feeds.connected import ConnectedFeed, ConnectionLost, down
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.kafka_consumer import KafkaReader, KafkaSettings
from penstock.feeds.kafka_positions import KafkaPositions
from penstock.feeds.kafka_thread import ConsumerThread
from penstock.feeds.kafka_topic import RecordsLost
from penstock.feeds.lines import LineTooLong
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.kafka import KAFKA_PARAMETERS, KAFKA_SCHEMES, KafkaAddress, require_kafka
from penstock.spec import Publisher
from penstock.streams import Flux

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["SCHEMES", "KafkaFeed", "KafkaSettings"]

_log = logging.getLogger("penstock.feeds")

_T = TypeVar("_T")

_IDLE: Final = 1.0
"""Seconds without demand after which the feed rests; it polls the group as often."""
_LEAVING: Final = 10.0
"""Seconds for closing: the last records are stored, and their offsets are committed to the group."""


class KafkaFeed(ConnectedFeed):
    """The records of a topic, or of those of its partitions that a group gives to this gateway."""

    def __init__(self, address: KafkaAddress, settings: KafkaSettings, options: FeedOptions) -> None:
        super().__init__(f"kafka topic {address.shown}")
        self.bad = self._bad = options.bad_lines()
        self.lost_records = 0
        """How many offsets were gone before they could be read, and were skipped (``lost=skip``)."""
        self._address = address
        self._settings = settings
        self._decode = options.decoder()
        self._longest = options.max_line
        self._positions = KafkaPositions(address.topic, settings.group)
        self._has_demand = False
        self._ending = threading.Lock()
        """For the three that follow: a subscriber may leave, and a program close, on any thread."""
        self._is_cancelled = False
        self._reading: tuple[Future[None], asyncio.AbstractEventLoop] | None = None
        """The connection that is read: done when it has left; and its loop."""
        self._leaving: dict[Future[None], asyncio.AbstractEventLoop | None] = {}
        """The connections that nobody reads any more, each with the loop that has to end it first."""

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return what the connections give, one after the other."""
        self._is_cancelled = False
        return Flux.from_async_iterable(self._connections).do_on_cancel(self._cancel)

    def resume(self, marks: Mapping[str, str]) -> None:
        """Continue after the records that are in the journal."""
        self._positions.resume(marks)
        others = " and ".join(map(_as_group, sorted(self._positions.other_groups)))
        if others:
            _log.warning(
                "%s: the log has what was read %s; it is continued %s, where that ended. To read the topic "
                "again, take a new journal",
                self.name,
                others,
                _as_group(self._settings.group or ""),
            )

    def close(self) -> None:
        """Tell the group what is in the journal, and leave it."""
        self._positions.abandon()
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        with self._ending:
            # A loop that is closed, or is kept waiting here, cannot end anything.
            leaving = [
                left
                for left, loop in self._leaving.items()
                if loop is None or not (loop is here or loop.is_closed())
            ]
        wait(leaving, _LEAVING)

    def _cancel(self) -> None:
        """The subscriber leaves. Its connection ends soon, on the loop; from now on, `close` waits for it."""
        with self._ending:
            self._is_cancelled = True
            if self._reading is not None:
                left, loop = self._reading
                self._leaving[left] = loop

    async def connection(self) -> AsyncGenerator[Any, None]:
        """Find the topic, and yield what its partitions have."""
        left: Future[None] = Future()
        with self._ending:
            if self._is_cancelled:
                return
            self._reading = left, asyncio.get_running_loop()
        thread = ConsumerThread("penstock-kafka")
        self._positions.revive()
        reader = KafkaReader(self.name, self._address, self._settings, self._positions)
        resting: asyncio.Future[None] | None = None
        try:
            starts = await _on(thread, reader.open)
            self.connected()
            resting = asyncio.ensure_future(self._rest(thread, reader))
            if starts:
                # From now on: a restart before the first record must not move it.
                yield Delivery([], self._positions.take(starts), partial(self._positions.store, starts))
            while True:
                self._has_demand = True
                messages = await _on(thread, reader.read)
                self._has_demand = False
                delivery, error = self._delivery(messages)
                if delivery is not None:
                    yield delivery
                if error is not None:
                    raise error
        except RecordsLost as lost:
            if not self._settings.skips_lost:
                raise BadFeed(
                    f"{self.name}: {lost}; write lost=skip to go on with {lost.goes_on_at}"
                ) from lost
            self.lost_records += lost.count
            _log.warning("%s: %s; it goes on with %s", self.name, lost, lost.goes_on_at)
            if lost.topic_id is not None:
                self._positions.restart(lost.topic_id)
            for number, offset in lost.positions.items():
                self._positions.move(number, offset, lost.beyond.get(number))
            raise ConnectionLost(str(lost)) from lost
        finally:
            self._has_demand = False
            if resting is not None:
                resting.cancel()
            with self._ending:
                self._reading, self._leaving[left] = None, None
            thread.submit(partial(reader.close, _LEAVING)).add_done_callback(partial(self._left, left))
            thread.end()

    def _left(self, left: Future[None], closed: Future[None]) -> None:
        if (error := closed.exception()) is not None:
            _log.warning("%s: the consumer cannot be closed: %s", self.name, error)
        with self._ending:
            del self._leaving[left]
        left.set_result(None)

    async def _rest(self, thread: ConsumerThread, reader: KafkaReader) -> None:
        """While there is no demand, stay in the group and read nothing."""
        reads = 0
        while True:
            await asyncio.sleep(_IDLE)
            before, reads = reads, reader.reads
            if self._has_demand or reads != before:
                continue  # There was demand meanwhile: a slow gateway asks a few times in a second.
            try:
                await _on(thread, reader.rest)
                if self.state.status == "down":
                    self.connected()
            except ConnectionLost as error:
                # It reconnects when there is demand; that it is down is told now.
                self.state = down(self.state, error, 0, 0.0)

    # ---------------------------------------------------------------- records
    def _delivery(self, messages: Sequence[Message]) -> tuple[Delivery | None, ValueError | None]:
        """What the messages become; those before a bad one, and the error, if that ends the feed."""
        records: list[Any] = []
        ends: dict[int, int] = {}
        error: ValueError | None = None
        size = 0
        for message in messages:
            number, offset, value = message.partition(), message.offset(), message.value() or b""
            assert number is not None
            assert offset is not None
            try:
                records.append(self._record(message, value))
            except (ValueError, RecursionError, OverflowError) as problem:
                where = f"offset {offset} of partition {number} of {self.name}"
                try:
                    records += self._bad.refuse(problem, value, at=where, key=_bytes(message.key()))
                except ValueError as refused:
                    error = refused
                    break
            ends[number] = offset + 1
            size += len(value)
        if not ends:
            return None, error
        self._visit.took(0, size)
        marks = self._positions.take(ends)
        return Delivery(records, marks, partial(self._positions.store, ends)), error

    def _record(self, message: Message, value: bytes) -> Any:
        from penstock.aquifer import Record

        if len(value) > self._longest:
            raise LineTooLong(f"has {len(value)} bytes; allow more with max_line (--max-line)")
        made = value if self._decode is None else self._decode(value)
        key = message.key()
        timestamp = None
        if self._settings.timestamps:
            _, milliseconds = message.timestamp()
            timestamp = milliseconds * 1000 if milliseconds >= 0 else None
        return made if key is None and timestamp is None else Record(made, key=key, timestamp=timestamp)


def _as_group(group: str) -> str:
    return f"as the group {group}" if group else "without a group"


def _bytes(key: object) -> bytes | None:
    return key if isinstance(key, bytes) else None


async def _on(thread: ConsumerThread, function: Callable[[], _T]) -> _T:
    """Call a function there; if we are cancelled meanwhile, what it returns or raises is of no interest."""
    return await asyncio.wrap_future(thread.submit(function))


_STARTS: Final = ("start", "now")
_ISOLATIONS: Final = ("read_committed", "read_uncommitted")
_LOSSES: Final = ("fail", "skip")


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    try:
        require_kafka("feeds of Kafka")
    except ModuleNotFoundError as error:
        raise BadFeed(str(error)) from error
    given = url.parameters
    chosen = {}
    for name, possible in (("from", _STARTS), ("isolation", _ISOLATIONS), ("lost", _LOSSES)):
        chosen[name] = given.get(name, possible[0])
        if chosen[name] not in possible:
            raise BadFeed(f"{url.shown}: {name}={chosen[name]} is not known; write {' or '.join(possible)}")
    if given.get("group") == "":
        raise BadFeed(f"{url.shown}: group= needs a name; write ?group=NAME, or leave it out")
    if "member" in given and "group" not in given:
        raise BadFeed(f"{url.shown}: member names one of a group; write ?group=NAME&member=NAME")
    connecting = {name: value for name, value in given.items() if name in KAFKA_PARAMETERS}
    try:
        address = KafkaAddress.of(url.rest, tls=KAFKA_SCHEMES[url.scheme], parameters=connecting)
    except ValueError as error:
        raise BadFeed(f"{url.shown}: {error}") from None
    settings = KafkaSettings(
        group=given.get("group"),
        member=given.get("member"),
        from_now=chosen["from"] == "now",
        isolation=chosen["isolation"],
        skips_lost=chosen["lost"] == "skip",
        timestamps="timestamps" in url.flags,
    )
    return KafkaFeed(address, settings, options)


SCHEMES = tuple(
    Scheme(
        name,
        f"{name}://HOST:PORT/TOPIC",
        f"the records of a Kafka topic{', over TLS' if tls else ''}, each exactly once",
        _open,
        flags={"timestamps": "each record keeps the time that Kafka has for it"},
        parameters={
            "group": "the consumer group to read as, and to commit offsets to; without it, all partitions "
            "are read, and only the journal has the offsets",
            "member": "the name in the group; a gateway that comes back under it has its partitions at once",
            "from": "where a new reader begins: start (the oldest record) or now",
            "isolation": "read_committed (the default) or read_uncommitted",
            "lost": "what happens if records were deleted before they were read: fail (the default) or skip",
            **{
                name: text
                for name, text in KAFKA_PARAMETERS.items()
                if tls or name not in ("ca", "certificate", "key")
            },
        },
    )
    for name, tls in KAFKA_SCHEMES.items()
)
