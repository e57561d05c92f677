"""Deliveries: stored together with their marks; their sender is told after the commit."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer import AquiferPublisher, Gateway, JournalLocked, MemoryJournal, SqliteJournal
from penstock.feeds import BadRecord, ConnectedFeed, Delivery, Feed, FeedState
from penstock.spec import Publisher
from penstock.streams import Flux
from tests.cli.running import PATIENCE
from tests.feeds.brokers import wait_until
from tests.feeds.reading import Reader

HERE = "tcp://127.0.0.1:0"


class ListFeed(Feed):
    """What a test wants to deliver."""

    name = "a list"

    def __init__(self, elements: Iterable[Any]) -> None:
        self.elements = elements
        self.resumed: Mapping[str, str] = {}

    def resume(self, marks: Mapping[str, str]) -> None:
        self.resumed = marks

    def __call__(self, journalled: int) -> Publisher[Any]:
        return Flux.from_iterable(self.elements)


class WatchedJournal(SqliteJournal):
    """Notes what each transaction stores."""

    def __init__(self, path: Path, **bounds: Any) -> None:
        super().__init__(path, **bounds)
        self.transactions: list[tuple[int, dict[str, str | None]]] = []
        self.fail_next = 0

    def append(self, batches: Any, marks: Mapping[str, str | None] | None = None) -> None:
        if self.fail_next:
            self.fail_next -= 1
            raise JournalLocked("locked, for a test")
        super().append(batches, marks)
        if batches or marks:
            self.transactions.append((sum(batch.count for batch in batches), dict(marks or {})))


def test_marks_are_stored_with_the_records_and_given_back_at_a_restart(tmp_path: Path) -> None:
    feed = ListFeed([Delivery([b"1", b"2"], {"page": "1"}), b"3", Delivery([b"4"], {"page": "2", "x": "y"})])
    with Gateway(feed, HERE, journal=SqliteJournal(tmp_path / "log.db")) as gateway:
        assert gateway.join(PATIENCE)
        assert list(AquiferPublisher(gateway.endpoint).flux()) == [b"1", b"2", b"3", b"4"]
        assert gateway.status().source.received == 4
    again = ListFeed([Delivery([], {"x": None})])
    with Gateway(again, HERE, journal=SqliteJournal(tmp_path / "log.db")) as gateway:
        assert gateway.join(PATIENCE)
    assert again.resumed == {"page": "2", "x": "y"}
    with closing(SqliteJournal(tmp_path / "log.db")) as journal:
        assert dict(journal.marks) == {"feed:page": "2"}
        assert journal.head == 4


def test_a_sender_is_told_when_its_records_and_marks_are_in_the_journal(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "log.db")
    seen: list[tuple[str, int, str | None]] = []

    def tell(number: int) -> Callable[[], None]:
        return lambda: seen.append(
            (threading.current_thread().name, journal.head, journal.marks.get("feed:n"))
        )

    deliveries = [Delivery([b"x"] * 10, {"n": str(number)}, tell(number)) for number in range(50)]
    with Gateway(ListFeed(deliveries), HERE, journal=journal) as gateway:
        assert gateway.join(PATIENCE)

    assert len(seen) == 50
    for number, (thread, head, mark) in enumerate(seen):
        assert thread == "penstock-gateway-writer"
        assert head >= 10 * (number + 1)
        assert mark is not None
        assert int(mark) >= number


def test_a_delivery_is_never_split_over_two_transactions(tmp_path: Path) -> None:
    # The log has room for 100 records: some deliveries fit together, one not at all.
    journal = WatchedJournal(tmp_path / "log.db", max_records=100)
    sizes = [1, 30, 30, 30, 30, 99, 2, 250, 3, 3]
    told: list[int] = []
    deliveries = [
        Delivery([b"%d" % number] * size, {"end": str(number)}, partial(told.append, number))
        for number, size in enumerate(sizes)
    ]
    with Gateway(ListFeed(deliveries), HERE, journal=journal) as gateway:
        # A reader that is required to have everything: the log may forget only what it has read.
        taken = list(AquiferPublisher(gateway.endpoint, id="all").flux())
        assert gateway.join(PATIENCE)

    assert taken == [b"%d" % number for number, size in enumerate(sizes) for _ in range(size)]
    assert told == list(range(len(sizes)))
    stored = 0
    for count, marks in journal.transactions:
        stored += count
        number = marks["feed:end"]
        assert number is not None
        assert stored == sum(sizes[: int(number) + 1])


def test_a_journal_that_is_locked_for_a_while_delays_the_answer_and_stores_once(tmp_path: Path) -> None:
    journal = WatchedJournal(tmp_path / "log.db")
    journal.fail_next = 2
    told = threading.Event()
    feed = ListFeed([Delivery([b"1"], {"n": "1"}, told.set)])
    with Gateway(feed, HERE, journal=journal) as gateway:
        assert told.wait(PATIENCE)
        assert gateway.join(PATIENCE)

    assert journal.transactions == [(1, {"feed:n": "1"})]


def test_an_element_that_cannot_be_a_record_ends_the_stream_before_its_delivery() -> None:
    told: list[int] = []
    journal = MemoryJournal()
    feed = ListFeed(
        [
            Delivery([b"1", b"2"], {"n": "1"}, lambda: told.append(1)),
            Delivery([b"3", object()], {"n": "2"}, lambda: told.append(2)),
        ]
    )
    with Gateway(feed, HERE, journal=journal) as gateway:
        assert gateway.join(PATIENCE)
        assert "could not become a record" in str(gateway.failure)

    assert told == [1]
    assert journal.head == 2
    assert dict(journal.marks) == {"feed:n": "1"}


def test_a_sender_that_cannot_be_told_does_not_end_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("gone")

    feed = ListFeed([Delivery([b"1"], stored=fail), Delivery([b"2"])])
    with Gateway(feed, HERE) as gateway:
        assert list(AquiferPublisher(gateway.endpoint).flux()) == [b"1", b"2"]
        assert gateway.failure is None
    assert "could not acknowledge a delivery" in caplog.text


def test_a_gateway_that_is_closed_while_its_log_is_full_does_not_tell_a_sender(tmp_path: Path) -> None:
    told: list[int] = []
    reads = threading.Event()

    def deliveries() -> Iterator[Delivery]:
        for number in range(4):
            yield Delivery([b"x"] * 8, {"n": str(number)}, partial(told.append, number))
            assert reads.wait(PATIENCE)

    journal = SqliteJournal(tmp_path / "log.db", max_records=10)
    with Gateway(ListFeed(deliveries()), HERE, journal=journal) as gateway:
        # It needs the first records, and asks for one of them only.
        slow = Reader()
        AquiferPublisher(gateway.endpoint, id="slow").subscribe(slow)
        slow.subscription.request(1)
        slow.take(1)
        reads.set()
        while gateway.status().source.received < 16:
            time.sleep(0.01)
        slow.subscription.cancel()
    assert told == [0]
    with closing(SqliteJournal(tmp_path / "log.db")) as kept:
        assert kept.head == 8
        assert kept.marks["feed:n"] == "0"


def test_the_state_of_a_feed_is_in_the_status_of_its_gateway() -> None:
    feed = ListFeed([b"1"])
    with Gateway(feed, HERE) as gateway:
        assert gateway.status().source.state == "up"
        feed.state = FeedState("down", 1000.0, "nobody there", 3)
        source = gateway.status().source
        assert (source.state, source.since, source.reason, source.attempts) == (
            "down",
            1000.0,
            "nobody there",
            3,
        )
        assert gateway.feed_state is feed.state
    with Gateway(Flux.just(b"1"), HERE) as gateway:
        assert gateway.feed_state is None
        assert "state" not in gateway.status().source.to_dict()


def test_deliveries_that_arrive_together_do_not_fill_an_empty_log_beyond_its_bounds(tmp_path: Path) -> None:
    arrived = threading.Event()

    class HeldUp(WatchedJournal):
        def append(self, batches: Any, marks: Mapping[str, str | None] | None = None) -> None:
            if self.head:
                assert arrived.wait(PATIENCE)  # Meanwhile the others wait for the writer, as one group.
            super().append(batches, marks)

    def deliveries() -> Iterator[Delivery]:
        yield Delivery([b"x"], {"n": "0"})
        for number in range(1, 9):
            if number == 8:
                arrived.set()
            yield Delivery([b"x"] * 300, {"n": str(number)})

    journal = HeldUp(tmp_path / "log.db", max_records=1000)
    with Gateway(ListFeed(deliveries()), HERE, journal=journal) as gateway:
        assert len(list(AquiferPublisher(gateway.endpoint, id="reader").flux())) == 2401
        assert gateway.join(PATIENCE)
    assert sum(count for count, _ in journal.transactions) == 2401
    assert max(count for count, _ in journal.transactions) <= 1000


def test_a_bad_record_of_a_delivery_is_a_dead_letter_with_the_offset_of_the_record_after_it() -> None:
    bad = BadRecord(b"?", "bad")
    feed = ListFeed([Delivery([b"0", bad, b"1"]), Delivery([bad]), Delivery([b"2", bad])])
    with Gateway(feed, HERE, on_bad_record="dead-letter") as gateway:
        letters = AquiferPublisher(f"{gateway.endpoint}/dead-letters", codec="json").flux()
        assert [letter["offset"] for letter in letters] == [1, 2, 3]
        assert list(AquiferPublisher(gateway.endpoint).flux()) == [b"0", b"1", b"2"]


class TrickleAndFlood(ConnectedFeed):
    """Gives one small record at a time, and then many large ones as fast as it is asked."""

    def __init__(self) -> None:
        super().__init__("a flood")
        self.given = 0

    async def connection(self) -> AsyncGenerator[Any, None]:
        self.connected()
        for _ in range(200):
            yield Delivery([b"x"])
        while True:
            await asyncio.sleep(0)
            self.given += 1
            yield Delivery([b"x" * 1000] * 100)


def test_a_feed_that_gave_one_record_at_a_time_cannot_flood_the_memory_behind_a_full_log() -> None:
    feed = TrickleAndFlood()
    with Gateway(feed, HERE, journal=MemoryJournal(max_records=1000)) as gateway:
        reader = Reader()
        AquiferPublisher(gateway.endpoint, id="slow").subscribe(reader)
        reader.subscription.request(200)
        assert reader.take(200) == [b"x"] * 200
        looks = [0]

        def is_still() -> bool:
            looks.append(feed.given)
            return len(looks) > 25 and looks[-25] == looks[-1] > 0

        wait_until(is_still, "it goes on although the log is full")
        assert feed.given * 100 <= 1000 + 2 * 32 * 100, "the log, and what it was asked for"
        reader.subscription.request(100_000)
        reader.take(20_000)
        reader.subscription.cancel()
