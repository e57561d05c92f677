"""Redis streams: each entry becomes a record exactly once, whoever dies; nothing is read without demand."""

import os
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway, SqliteJournal, probe
from penstock.feeds import BadFeed, FeedOptions
from tests.cli.running import PATIENCE
from tests.feeds.brokers import (
    Process,
    RedisServer,
    gateway_command,
    records_of,
    resident,
    storm,
    wait_until,
)
from tests.feeds.reading import Reader, followed
from tests.free_ports import free_port

HERE = "tcp://127.0.0.1:0"
RECORDS = int(os.environ.get("PENSTOCK_FEED_RECORDS", "1000"))
"""Entries that are sent while everybody is killed in turn."""
DELIVERIES = 32
"""So many may be on their way to a gateway."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    client = server.client()
    client.flushall()
    yield client
    client.close()


def url(server: RedisServer, more: str = "") -> str:
    return f"redis://127.0.0.1:{server.port}/readings?group=g{more}"


def add(client: redis.Redis, numbers: range) -> list[bytes]:
    values = [b"%d" % number for number in numbers]
    pipe = client.pipeline()
    for value in values:
        pipe.xadd("readings", {"value": value})
    pipe.execute()
    return values


def pending(client: redis.Redis) -> int:
    return int(client.xpending("readings", "g")["pending"])


def _has(journal: SqliteJournal, count: int) -> bool:
    return journal.head >= count


def test_entries_are_acknowledged_after_the_commit_and_a_restart_continues(
    server: RedisServer, client: redis.Redis, tmp_path: Path
) -> None:
    sent: list[bytes] = []
    for _ in range(3):
        sent += add(client, range(len(sent), len(sent) + 700))
        journal = SqliteJournal(tmp_path / "log.db")
        with feeds.open(url(server, "&field=value")) as feed, Gateway(feed, HERE, journal=journal):
            wait_until(partial(_has, journal, len(sent)), "not all entries are stored")
            wait_until(lambda: pending(client) == 0, "not all entries are acknowledged")
            assert feed.state.status == "up"
    assert records_of(tmp_path / "log.db") == sent


class DyingReader(Reader):
    """Takes the name and one delivery, and dies before Redis is told of it."""

    def __init__(self, *, stores: bool) -> None:
        super().__init__()
        self._stores = stores

    def on_next(self, element: Any, /) -> None:
        if element.records:
            element = feeds.Delivery(element.records, element.marks if self._stores else {})
        super().on_next(element)

    def read(self, feed: feeds.Feed, count: int) -> list[bytes]:
        feed(0).subscribe(self)
        self.subscription.request(2)
        taken = self.take(count)
        self.subscription.cancel()
        return taken


def test_what_was_stored_and_not_acknowledged_is_recognised(server: RedisServer, client: redis.Redis) -> None:
    sent = add(client, range(600))
    dying = DyingReader(stores=True)
    with feeds.open(url(server, "&field=value")) as feed:
        first = dying.read(feed, 256)
    assert pending(client) == 256
    with feeds.open(url(server, "&field=value")) as feed:
        feed.resume(dying.marks)
        with followed(feed) as reader:
            assert first + reader.take(600 - 256) == sent
            wait_until(lambda: pending(client) == 0, "entries stay pending")


def test_what_was_read_and_not_stored_is_read_again(server: RedisServer, client: redis.Redis) -> None:
    sent = add(client, range(600))
    dying = DyingReader(stores=False)
    with feeds.open(url(server, "&field=value")) as feed:
        assert dying.read(feed, 256) == sent[:256]
    with feeds.open(url(server, "&field=value")) as feed:
        feed.resume(dying.marks)
        with followed(feed) as reader:
            assert reader.take(600) == sent
            wait_until(lambda: pending(client) == 0, "entries stay pending")


def test_a_name_that_is_given_gets_what_is_pending_for_it_although_the_journal_is_further(
    server: RedisServer, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    add(client, range(3))
    client.xgroup_create("readings", "g", "0")
    client.xreadgroup("g", "dead", {"readings": ">"}, count=2)
    marks: dict[str, str] = {}
    with feeds.open(url(server, "&field=value")) as feed, followed(feed, marks=marks) as reader:
        assert reader.take(1) == [b"2"]
        wait_until(lambda: pending(client) == 2, "it does not acknowledge")
    assert "the consumer dead of the group g has 2 entries" in caplog.text
    with feeds.open(url(server, "&field=value&consumer=dead")) as feed:
        feed.resume(marks)
        with followed(feed) as reader:
            assert reader.take(2) == [b"0", b"1"]
            wait_until(lambda: pending(client) == 0, "entries stay pending")


def test_another_group_does_not_read_the_stream_again_into_the_same_log(
    server: RedisServer, client: redis.Redis
) -> None:
    values = add(client, range(10))
    marks: dict[str, str] = {}
    with feeds.open(url(server, "&field=value")) as feed, followed(feed, marks=marks) as reader:
        assert reader.take(10) == values
    other = url(server, "&field=value").replace("group=g", "group=h")
    with feeds.open(other) as feed:
        feed.resume(marks)
        with pytest.raises(
            BadFeed, match=r"was read as the group g, .* write \?group=g, or take a new journal"
        ):
            feed.flux().collect_list().block(PATIENCE)
    with feeds.open(url(server, "&field=value")) as feed:
        feed.resume({**marks, "redis:0/readings/h": "1-0 name", "redis:0/readings/x/g": "1-0 name"})
        with followed(feed) as reader:
            more = add(client, range(10, 12))
            assert reader.take(2) == more


def test_without_a_field_a_record_is_an_object_of_all_fields(
    server: RedisServer, client: redis.Redis
) -> None:
    client.xadd("readings", {"celsius": "20.5", "room": "å"})
    for codec, record in (
        ("bytes", '{"celsius":"20.5","room":"å"}'.encode()),
        ("json", {"celsius": "20.5", "room": "å"}),
    ):
        with feeds.open(url(server, codec), FeedOptions(codec=codec)) as feed, followed(feed) as reader:
            assert reader.take(1) == [record]


def test_a_bad_entry_ends_the_stream_after_those_before_it_or_is_skipped(
    server: RedisServer, client: redis.Redis
) -> None:
    client.xadd("readings", {"value": "1"})
    client.xadd("readings", {"other": "2"})
    client.xadd("readings", {"value": "3" * 2000})
    client.xadd("readings", {"value": "4"})
    options = FeedOptions(codec="json", on_bad_line="skip", max_line=1000)
    with feeds.open(url(server, "1&field=value"), options) as feed, followed(feed) as reader:
        assert reader.take(2) == [1, 4]
        assert feed.skipped == 2
    taken: list[object] = []
    with (
        feeds.open(url(server, "2&field=value"), FeedOptions(codec="json")) as feed,
        pytest.raises(ValueError, match=r"entry \d+-\d+ of .* has no field 'value'"),
    ):
        feed.flux().do_on_next(taken.append).collect_list().block(PATIENCE)
    assert taken == [1]


def test_large_entries_come_a_few_at_a_time(server: RedisServer, client: redis.Redis) -> None:
    for number in range(20):
        client.xadd("readings", {"value": bytes([number]) * 200_000})
    reader = Reader()
    with feeds.open(url(server, "&field=value")) as feed:
        feed(0).subscribe(reader)
        reader.subscription.request(2)  # The name, and one delivery.
        assert len(reader.take(2)) == 2
        assert reader.lines.empty()
        assert client.xinfo_groups("readings")[0]["entries-read"] == 2
        reader.subscription.cancel()


def test_entries_that_were_trimmed_are_counted(
    server: RedisServer, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with feeds.open(url(server, "&field=value")) as feed:
        assert isinstance(feed, feeds.RedisFeed)
        reader = Reader()
        feed(0).subscribe(reader)
        sent = add(client, range(100))
        reader.subscription.request(2)
        assert reader.take(100) == sent
        for start in (100, 300):
            add(client, range(start, start + 200))
            client.xtrim("readings", maxlen=50, approximate=False)
            reader.subscription.request(1)
            assert reader.take(50) == [b"%d" % number for number in range(start + 150, start + 200)]
        wait_until(lambda: feed.trimmed == 300, f"{feed.trimmed} entries are missing")
        reader.subscription.cancel()
    assert "150 entries were removed before they could be read, 300 so far" in caplog.text


def test_a_wrong_key_a_wrong_password_and_a_wrong_url_are_clear_errors(
    server: RedisServer, client: redis.Redis, tmp_path: Path
) -> None:
    client.set("readings", "a text")
    with feeds.open(url(server)) as feed, pytest.raises(BadFeed, match="not a stream; check the name"):
        feed.flux().collect_list().block(PATIENCE)
    with RedisServer(tmp_path / "locked", "--requirepass", "right") as locked:
        locked.client().close()
        for user in ("", ":wrong@"):
            where = f"redis://{user}127.0.0.1:{locked.port}/readings?group=g"
            with feeds.open(where) as feed, pytest.raises(BadFeed, match="refuses the user or the password"):
                feed.flux().collect_list().block(PATIENCE)
        sender = locked.client(password="right")
        sender.xadd("readings", {"value": "1"})
        sender.close()
        right = f"redis://:right@127.0.0.1:{locked.port}/readings?group=g&field=value"
        with feeds.open(right) as feed, followed(feed) as reader:
            assert reader.take(1) == [b"1"]
    for wrong, message in (
        ("redis://h/s", "names no group"),
        ("redis://h?group=g", "names no stream"),
        ("redis://h/s?group=g&from=there", "write start or now"),
        ("redis://h/s?group=g&db=x", "not a number"),
        ("redis://h/s?group=g&consumer=", "needs a name"),
    ):
        with pytest.raises(BadFeed, match=message):
            feeds.open(wrong)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(BadFeed, match=r"pip install 'penstock-streams\[redis\]'"):
        feeds.open("redis://h/s?group=g")


def test_a_feed_that_is_cancelled_in_the_middle_of_a_command_disconnects(
    server: RedisServer, client: redis.Redis
) -> None:
    add(client, range(20_000))
    for number in range(40):
        with feeds.open(url(server, f"{number}&field=value")) as feed, followed(feed) as reader:
            reader.take(1 + 97 * number)

    def connected() -> list[str]:
        return [each["addr"] for each in client.client_list() if each["name"] == "penstock"]

    wait_until(lambda: not connected(), "a feed that was cancelled goes on")


def test_a_server_that_comes_later_is_a_state(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "later") as server:
        client = server.client()
        client.xadd("readings", {"value": "1"})
        server.kill()
        with feeds.open(url(server, "&field=value")) as feed:
            reader = Reader()
            feed(0).subscribe(reader)
            reader.subscription.request(100)
            wait_until(lambda: feed.state.status == "down", "it does not say that it is down")
            server.start()
            assert reader.take(1) == [b"1"]
            assert feed.state.status == "up"
            reader.subscription.cancel()
        client.close()


def test_a_server_without_its_data_continues_with_new_entries(
    server: RedisServer, client: redis.Redis
) -> None:
    with feeds.open(url(server, "&field=value")) as feed, followed(feed) as reader:
        client.xadd("readings", {"value": "1"}, id="99999999999999-0")
        assert reader.take(1) == [b"1"]
        client.flushall()
        wait_until(lambda: bool(client.exists("readings")), "the group is not made again")
        wait_until(
            lambda: client.xinfo_stream("readings")["last-generated-id"] == b"99999999999999-0",
            "new ids could be below those in the journal",
        )
        client.xadd("readings", {"value": "2"})
        assert reader.take(1) == [b"2"]


@pytest.mark.timeout(120 + RECORDS / 50)
def test_gateway_server_and_sender_are_killed_in_turn_and_every_entry_is_stored_once(tmp_path: Path) -> None:
    log, noted, enough = tmp_path / "log.db", tmp_path / "noted", tmp_path / "enough"
    with RedisServer(tmp_path / "redis") as server:
        client = server.client()
        source = url(server, "&field=value")
        sending = (sys.executable, "-m", "tests.feeds.redis_sender", str(server.port), "readings")

        def group() -> dict[str, Any]:
            try:
                groups: Any = client.xinfo_groups("readings")
            except redis.RedisError:
                groups = []
            return groups[0] if groups else {"last-delivered-id": b"0-0"}

        def progress() -> int:
            """The time of the last entry that the gateway was given."""
            return int(group()["last-delivered-id"].partition(b"-")[0])

        def all_is_acknowledged() -> bool:
            last = client.xinfo_stream("readings")["last-generated-id"]
            return bool(group()["last-delivered-id"] == last and group()["pending"] == 0)

        with (
            Process(tmp_path / "sender.log", *sending, str(noted), str(enough)) as sender,
            Process(tmp_path / "gateway.log", *gateway_command(source, "--journal", str(log))) as gateway,
        ):
            stages = {"server": server, "sender": sender, "gateway": gateway}
            # A long run has some kills for each part of its records.
            while not noted.exists() or noted.read_bytes().count(b"\n") < RECORDS:
                storm(stages, progress, 6, 500 if RECORDS < 10_000 else 5000)
            enough.touch()
            assert sender.wait() == 0, sender.log.read_text()
            wait_until(all_is_acknowledged, "not everything is acknowledged")
        entries: Any = client.xrange("readings")
        client.close()
    stored = records_of(log)
    print(len(stored), "records")
    assert stored == [fields[b"value"] for _, fields in entries]
    assert set(noted.read_bytes().split()) <= set(stored)
    assert len(stored) >= RECORDS


def test_a_slow_reader_leaves_the_entries_in_redis_and_the_memory_flat(
    server: RedisServer, client: redis.Redis, tmp_path: Path
) -> None:
    def fill() -> None:
        pipe = client.pipeline()
        for _ in range(300):
            pipe.xadd("readings", {"value": b"x" * 100_000})
        pipe.execute()

    client.config_set("appendonly", "no")
    port = free_port()
    command = [
        *gateway_command(
            url(server, "&field=value"), "--max-bytes", "2M", "--journal", str(tmp_path / "l.db")
        )
    ]
    command[command.index("--control") + 1] = f"tcp://127.0.0.1:{port}"
    with Process(tmp_path / "gateway.log", *command) as gateway:
        reader = Reader()
        AquiferPublisher(f"tcp://127.0.0.1:{port}", id="slow").subscribe(reader)
        reader.subscription.request(1)
        for _ in range(3):
            fill()
        reader.take(1)
        group: Any = None
        looks = 0

        def held() -> bool:
            """Whether the log is full, and nothing has been read for some looks."""
            nonlocal group, looks
            before, group = group, client.xinfo_groups("readings")
            looks = looks + 1 if before == group and group and group[0]["pending"] else 0
            return looks >= 15 and probe(f"tcp://127.0.0.1:{port}", PATIENCE).records >= 15

        wait_until(held, "the gateway goes on reading")
        memory = resident(gateway.pid)
        left = group[0]["lag"]
        assert left > 500, "most of the 900 entries stay in Redis"
        reader.subscription.request(300)
        reader.take(300)
        wait_until(lambda: client.xinfo_groups("readings")[0]["lag"] <= left - 50, "it does not go on")
        wait_until(held, "the gateway goes on reading")
        # When the log was full, fewer deliveries may have been on their way than now (decision 0068).
        assert group[0]["lag"] >= left - 300 - DELIVERIES
        assert resident(gateway.pid) - memory < 20_000_000
        reader.subscription.cancel()
    client.config_set("appendonly", "yes")


@contextmanager
def _stranger(answer: bytes) -> Iterator[int]:
    """The port of a server that gives everybody the same answer."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1000)
            self.request.sendall(answer)
            while self.request.recv(1000):
                pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join(PATIENCE)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="a web server"),
        pytest.param(b"$-5\r\n", id="a length below zero"),
        pytest.param(b":many\r\n", id="a number that is none"),
        pytest.param(b"*1\r\n" * 3000, id="lists within lists"),
        pytest.param(b"|1\r\n", id="a kind that is not known"),
        pytest.param(b"+OK\r\n" * 50, id="OK to everything"),
    ],
)
def test_a_server_that_does_not_answer_as_redis_does_is_a_state(answer: bytes) -> None:
    with (
        _stranger(answer) as port,
        feeds.open(f"redis://127.0.0.1:{port}/stream?group=g") as feed,
        followed(feed),
    ):
        wait_until(lambda: "check the port" in str(feed.state), f"the feed is {feed.state}")
