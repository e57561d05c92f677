"""MQTT 5 with a real broker: acknowledged after the commit, held back, and continued after every death."""

import os
import queue
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mqtt5
import pytest
import trustme

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway, Record, SqliteJournal, probe
from penstock.feeds import BadFeed, Delivery, FeedOptions, LineTooLong, mqtt_connection
from penstock.feeds.schemes.mqtt import MqttFeed
from tests.cli.running import PATIENCE
from tests.feeds.brokers import (
    Mosquitto,
    Process,
    gateway_command,
    records_of,
    resident,
    storm,
    wait_until,
)
from tests.feeds.mqtt_sender import MqttSender
from tests.feeds.reading import Reader, followed
from tests.free_ports import free_port

HERE = "tcp://127.0.0.1:0"
RECORDS = int(os.environ.get("PENSTOCK_FEED_RECORDS", "3000"))
LONG = max(PATIENCE * 3, RECORDS / 50)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).replace("[", "/").replace("]", "")


def url(broker: Mosquitto, topic: str, more: str = "") -> str:
    return f"mqtt://127.0.0.1:{broker.port}/{topic}/%23?{more}"


def publish(broker: Mosquitto, topic: str, numbers: range, qos: int = 1) -> list[bytes]:
    values = [b"%d" % number for number in numbers]
    with MqttSender(broker.port) as sender:
        sender.publish(((f"{topic}/{int(value) % 3}", value) for value in values), qos)
    return values


def values(records: list[Record]) -> list[Any]:
    return [record.value for record in records]


def is_up(feed: feeds.Feed) -> None:
    wait_until(lambda: feed.state.status == "up", f"the feed is {feed.state}")


class Unstored(Reader):
    """Takes deliveries, and tells nobody that they are stored; with ``keeps``, the journal has them."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self._keeps = keeps

    def on_next(self, element: Any, /) -> None:
        if not element.records:
            super().on_next(element)  # The name, without which nothing comes.
        else:
            super().on_next(Delivery(element.records, element.marks if self._keeps else {}))


# -------------------------------------------------------------------- the usual
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_that_are_sent_while_the_gateway_is_away_are_stored_later(
    broker: Mosquitto, topic: str, tmp_path: Path, qos: int
) -> None:
    sent: list[bytes] = []
    for turn in range(3):
        if turn:
            sent += publish(broker, topic, range(len(sent), len(sent) + 150), qos)
        journal = SqliteJournal(tmp_path / "log.db")
        with (
            feeds.open(url(broker, topic, f"qos={qos}")) as feed,
            Gateway(feed, HERE, journal=journal) as gateway,
        ):
            is_up(feed)
            sent += publish(broker, topic, range(len(sent), len(sent) + 150), qos)
            wait_until(partial(_has, journal, len(sent)), "not all messages are stored")
            assert gateway.status().source.state == "up"
    assert records_of(tmp_path / "log.db") == sent


def _has(journal: SqliteJournal, count: int) -> bool:
    return journal.head >= count


def test_the_topic_is_the_key_of_a_record(broker: Mosquitto, topic: str, tmp_path: Path) -> None:
    options = FeedOptions(codec="json")
    with (
        feeds.open(url(broker, topic), options) as feed,
        Gateway(feed, HERE, journal=SqliteJournal(tmp_path / "log.db"), codec="json") as gateway,
    ):
        is_up(feed)
        with MqttSender(broker.port) as sender:
            sender.publish([(f"{topic}/kitchen", b'{"celsius": 20.5}'), (f"{topic}/å", b"21")])
        reading = AquiferPublisher(gateway.endpoint, codec="json", records=True, stop=2).flux()
        found = [(record.key, record.value) for record in reading]
    assert found == [(f"{topic}/kitchen".encode(), {"celsius": 20.5}), (f"{topic}/å".encode(), 21)]


def test_two_gateways_share_a_subscription(broker: Mosquitto, topic: str) -> None:
    shared = f"mqtt://127.0.0.1:{broker.port}/$share/readers/{topic}/+"
    with (
        feeds.open(shared) as one,
        feeds.open(shared) as other,
        followed(one) as first,
        followed(other) as second,
    ):
        is_up(one)
        is_up(other)
        sent = publish(broker, topic, range(200))
        wait_until(lambda: first.lines.qsize() + second.lines.qsize() == len(sent), "messages are missing")
        parts = [values(first.take(first.lines.qsize())), values(second.take(second.lines.qsize()))]
    assert sorted(parts[0] + parts[1], key=int) == sent
    assert all(parts)


def test_retained_messages_come_once_with_a_new_subscription_or_not_at_all(
    broker: Mosquitto, topic: str
) -> None:
    with MqttSender(broker.port) as sender:
        sender.publish([(f"{topic}/last", b"retained")], retain=True)
    marks: dict[str, str] = {}
    for _ in range(2):
        with feeds.open(url(broker, topic)) as feed:
            feed.resume(marks)
            with followed(feed, marks=marks) as reader:
                is_up(feed)
                (sent,) = publish(broker, topic, range(1))
                first = reader.take(1)[0].value
                if first == b"retained":
                    assert not _, "it comes again"
                    first = reader.take(1)[0].value
                assert first == sent
                # Otherwise the broker sends what it has no answer to again: with QoS 1 it may.
                wait_until(lambda: _is_answered(feed), "the broker is not told")
    with feeds.open(url(broker, topic, "retained=no")) as feed, followed(feed) as reader:
        is_up(feed)
        assert publish(broker, topic, range(1)) == values(reader.take(1))


def _is_answered(feed: feeds.Feed) -> bool:
    assert isinstance(feed, MqttFeed)
    return feed._session.is_finished and not feed._session.outgoing


# -------------------------------------------------------------------- held back
def test_no_more_messages_come_than_receive_maximum_before_they_are_stored(
    broker: Mosquitto, topic: str
) -> None:
    reader = Unstored(keeps=False)
    with feeds.open(url(broker, topic, "receive-maximum=10")) as feed:
        feed(0).subscribe(reader)
        reader.subscription.request(1000)
        is_up(feed)
        sent = publish(broker, topic, range(100))
        assert values(reader.take(10)) == sent[:10]
        # A message on another way shows that the broker has sent what it may.
        with MqttSender(broker.port) as sender:
            sender.publish([(f"{topic}/late", b"QoS 0")], qos=0)
        assert values(reader.take(1)) == [b"QoS 0"]
        reader.subscription.cancel()


def test_a_slow_reader_keeps_the_memory_flat_and_loses_nothing(
    broker: Mosquitto, topic: str, tmp_path: Path
) -> None:
    port, count, size = free_port(), 400, 100_000
    source = url(broker, topic, "client-id=slow")
    arguments = ("--max-bytes", "2M", "--journal", str(tmp_path / "log.db"))
    with Process(tmp_path / "gateway.log", *gateway_command(source, *arguments, port=port)) as gateway:
        reader = Reader()
        AquiferPublisher(f"tcp://127.0.0.1:{port}", id="slow").subscribe(reader)
        reader.subscription.request(1)
        wait_until(lambda: "as slow" in broker.log.read_text(), "it does not connect")

        def send(first: int) -> None:
            with MqttSender(broker.port) as sender:
                numbers = range(first, first + count // 2)
                sender.publish((f"{topic}/x", b"%06d" % number + b"x" * size) for number in numbers)

        send(0)
        reader.take(1)
        wait_until(lambda: probe(f"tcp://127.0.0.1:{port}", PATIENCE).records >= 15, "the log is not full")
        wait_until(lambda: _is_still(tmp_path / "log.db"), "the gateway goes on reading")
        memory = resident(gateway.pid)
        send(count // 2)
        wait_until(lambda: _is_still(tmp_path / "log.db"), "the gateway goes on reading")
        assert resident(gateway.pid) - memory < 10_000_000, "20 MB wait at the broker"
        reader.subscription.request(count)
        numbers = [int(record[:6]) for record in reader.take(count - 1)]
        assert numbers == list(range(1, count))
        assert resident(gateway.pid) - memory < 30_000_000
        reader.subscription.cancel()


_sizes: dict[Path, tuple[int, int]] = {}


def _is_still(path: Path) -> bool:
    """Whether the journal has not changed for some looks."""
    state = path.with_name(path.name + "-wal").stat().st_mtime_ns
    before, looks = _sizes.get(path, (0, 0))
    _sizes[path] = (state, looks + 1 if state == before else 0)
    return _sizes[path][1] >= 15


# -------------------------------------------------------------------- deaths
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_stored_comes_again(broker: Mosquitto, topic: str, qos: int) -> None:
    dying = Unstored(keeps=False)
    with feeds.open(url(broker, topic, f"qos={qos}&client-id=again{qos}")) as feed:
        feed(0).subscribe(dying)
        dying.subscription.request(1000)
        is_up(feed)
        sent = publish(broker, topic, range(50), qos)
        assert values(dying.take(50)) == sent
        dying.subscription.cancel()
    with (
        feeds.open(url(broker, topic, f"qos={qos}&client-id=again{qos}")) as feed,
        followed(feed) as reader,
    ):
        assert values(reader.take(50)) == sent


def test_what_was_stored_and_not_acknowledged_is_recognised_with_qos_2(broker: Mosquitto, topic: str) -> None:
    dying = Unstored(keeps=True)
    with feeds.open(url(broker, topic, "qos=2")) as feed:
        feed(0).subscribe(dying)
        dying.subscription.request(1000)
        is_up(feed)
        sent = publish(broker, topic, range(50), 2)
        assert values(dying.take(50)) == sent
        dying.subscription.cancel()
    with feeds.open(url(broker, topic, "qos=2")) as feed:
        feed.resume(dying.marks)
        with followed(feed, marks=dying.marks) as reader:
            is_up(feed)
            late = publish(broker, topic, range(50, 60), 2)
            assert values(reader.take(10)) == late
            wait_until(lambda: dying.marks[f"mqtt:{topic}/#"].endswith(" {}"), "ids stay in the journal")


def test_a_broker_that_comes_later_and_one_that_has_lost_the_session_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Mosquitto(tmp_path / "late") as late:
        late.kill()
        with feeds.open(url(late, "t")) as feed:
            reader = Reader()
            feed(0).subscribe(reader)
            reader.subscription.request(1_000_000)
            wait_until(lambda: feed.state.status == "down", "it does not say that it is down")
            late.start()
            is_up(feed)
            sent = publish(late, "t", range(5))
            assert values(reader.take(5)) == sent
            late.kill()  # Nothing is saved: the session is gone.
            wait_until(lambda: feed.state.status == "down", "it does not say that it is down")
            late.start()
            is_up(feed)
            sent = publish(late, "t", range(5, 10))
            assert values(reader.take(5)) == sent
            reader.subscription.cancel()
    assert "has lost the session of the client id penstock-" in caplog.text
    assert "connected again, after" in caplog.text


def _numbers(noted: Path) -> int:
    return noted.read_bytes().count(b"\n") if noted.exists() else 0


@pytest.mark.slow
@pytest.mark.timeout(LONG + 120)
@pytest.mark.parametrize("qos", [1, 2])
def test_gateway_broker_and_sender_are_killed_in_turn_and_nothing_acknowledged_is_lost(
    tmp_path: Path, qos: int
) -> None:
    log, noted, enough = tmp_path / "log.db", tmp_path / "noted", tmp_path / "enough"
    batch = max(500, RECORDS // 100)
    with Mosquitto(tmp_path / "m", saved_every=1) as broker:
        source = _subscribed(url(broker, "killed", f"qos={qos}&client-id=killed"))
        sending = (sys.executable, "-m", "tests.feeds.mqtt_sender", str(broker.port), "killed/x", str(qos))
        files = (str(batch), str(noted), str(enough), str(broker.database))
        with (
            Process(tmp_path / "gateway.log", *gateway_command(source, "--journal", str(log))) as gateway,
            Process(tmp_path / "sender.log", *sending, *files) as sender,
        ):
            stages = {"broker": broker, "sender": sender, "gateway": gateway}
            kills = 6 if RECORDS < 10_000 else 20
            storm(stages, lambda: _numbers(noted), kills, max(1, RECORDS // kills))
            _wait_long(lambda: _numbers(noted) >= RECORDS)
            enough.touch()
            assert sender.wait() == 0, sender.log.read_text()
            _wait_for_the_end(broker, "killed", log)
    stored = records_of(log)
    acknowledged = noted.read_bytes().splitlines()
    # A broker that was restarted sends again what it had sent, also with QoS 2.
    print(len(acknowledged), "acknowledged,", len(stored), "stored,", len(stored) - len(set(stored)), "again")
    assert set(acknowledged) <= set(stored), "lost"


@pytest.mark.slow
@pytest.mark.timeout(LONG + 120)
def test_with_qos_2_every_message_is_stored_once_while_gateway_and_sender_are_killed_in_turn(
    tmp_path: Path,
) -> None:
    log, noted, enough = tmp_path / "log.db", tmp_path / "noted", tmp_path / "enough"
    with Mosquitto(tmp_path / "m") as broker:
        source = _subscribed(url(broker, "once", "qos=2&client-id=once"))
        sending = (sys.executable, "-m", "tests.feeds.mqtt_sender", str(broker.port), "once/x", "2")
        with (
            Process(tmp_path / "gateway.log", *gateway_command(source, "--journal", str(log))) as gateway,
            Process(tmp_path / "sender.log", *sending, "100", str(noted), str(enough)) as sender,
        ):
            # Not the broker: Mosquitto comes back without knowing what it had released (PUBREL).
            stages = {"sender": sender, "gateway": gateway}
            kills = 9 if RECORDS < 10_000 else 30
            storm(stages, lambda: _numbers(noted), kills, max(1, RECORDS // kills))
            _wait_long(lambda: _numbers(noted) >= RECORDS)
            enough.touch()
            assert sender.wait() == 0, sender.log.read_text()
            _wait_for_the_end(broker, "once", log)
    stored = records_of(log)
    acknowledged = noted.read_bytes().splitlines()
    print(len(acknowledged), "acknowledged,", len(stored), "stored")
    assert len(stored) == len(set(stored)), "stored twice"
    assert set(acknowledged) <= set(stored), "lost"


@pytest.mark.slow
@pytest.mark.rare(20)
@pytest.mark.timeout(LONG + 120)
def test_more_messages_than_there_are_packet_ids_are_stored_once_and_in_order(tmp_path: Path) -> None:
    """Mosquitto 2.0.11 sends all of them at once, whatever Receive Maximum is, and uses ids twice."""
    with Mosquitto(tmp_path / "m") as broker:
        source = _subscribed(url(broker, "many", "qos=2&client-id=many"))
        sent = publish(broker, "many", range(75_000), 2)
        for turn in range(2):
            journal = SqliteJournal(tmp_path / "log.db")
            with feeds.open(source) as feed, Gateway(feed, HERE, journal=journal):
                if turn:  # They come after what the broker believes unfinished.
                    sent += publish(broker, "many", range(len(sent), len(sent) + 100), 2)
                _wait_long(partial(_has, journal, len(sent)))
    assert records_of(tmp_path / "log.db") == sent


def _subscribed(source: str) -> str:
    """The broker has a session for this feed from now on."""
    with feeds.open(source) as feed, followed(feed):
        is_up(feed)
    return source


def _wait_long(true: Any) -> None:
    for _ in range(round(LONG / PATIENCE) + 1):
        try:
            wait_until(true, "not done")
        except AssertionError:
            continue
        return
    raise AssertionError("the sender does not come to its end")


def _wait_for_the_end(broker: Mosquitto, topic: str, log: Path) -> None:
    """A last message comes after all others, so when it is stored, they are."""
    with MqttSender(broker.port) as sender:
        sender.publish([(f"{topic}/end", b"the end")])
    _wait_long(lambda: any(b"the end" in _bytes_of(each) for each in log.parent.glob("log.db*")))


def _bytes_of(file: Path) -> bytes:
    """What is in a file, which SQLite may have removed since it was found."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


# -------------------------------------------------------------------- what is wrong
def test_a_bad_message_ends_the_stream_after_those_before_it_or_is_skipped(
    broker: Mosquitto, topic: str
) -> None:
    bad = [b"1", b"not JSON", b'"' + b"x" * 2000 + b'"', b'"' + b"y" * 500_000 + b'"', b"4"]
    options = FeedOptions(codec="json", on_bad_line="skip", max_line=1000)
    marks: dict[str, str] = {}
    with feeds.open(url(broker, topic, "client-id=skips"), options) as feed:
        with followed(feed, marks=marks) as reader:
            is_up(feed)
            with MqttSender(broker.port) as sender:
                sender.publish((f"{topic}/x", payload) for payload in bad)
            assert values(reader.take(2)) == [1, 4]
            assert feed.skipped == 3
        with followed(feed, marks=marks) as reader:
            is_up(feed)
            sent = publish(broker, topic, range(7, 8))
            assert values(reader.take(1)) == [int(sent[0])], "the skipped ones are acknowledged"
    options = FeedOptions(codec="json", max_line=1000, on_bad_line="dead-letter")
    with feeds.open(url(broker, topic, "session=0"), options) as feed, followed(feed) as reader:
        is_up(feed)
        with MqttSender(broker.port) as sender:
            sender.publish([(f"{topic}/x", each) for each in bad[1:]])
        letters = reader.take(4)[:3]
        assert [letter.value for letter in letters] == [bad[1], bad[2], b""], "the last one is never read"
        assert {letter.key for letter in letters} == {f"{topic}/x".encode()}
        assert letters[2].size is not None
        assert letters[2].size >= len(bad[3])
    for kind, payload, message in (
        (ValueError, bad[1], f"a message of the topic {topic}/x: JSON is malformed"),
        (LineTooLong, bad[2], f"a message of the topic {topic}/x has 2002 bytes; allow more with max_line"),
        (LineTooLong, bad[3], r"has 500\d+ bytes; allow more with max_line"),
    ):
        reader = Reader()
        options = FeedOptions(codec="json", max_line=1000)
        with feeds.open(url(broker, topic, "session=0"), options) as feed:
            feed(0).subscribe(reader)
            reader.subscription.request(1000)
            is_up(feed)
            with MqttSender(broker.port) as sender:
                sender.publish([(f"{topic}/x", b"1"), (f"{topic}/x", payload)])
            assert values(reader.take(1)) == [1]
            assert reader.ended.wait(PATIENCE)
            with pytest.raises(kind, match=message):
                raise reader.error or AssertionError


def error_of(feed: feeds.Feed) -> str:
    with pytest.raises(BadFeed) as raised:
        feed.flux().collect_list().block(PATIENCE)
    return str(raised.value)


def test_a_user_who_is_refused_is_told_what_to_do(tmp_path: Path) -> None:
    passwords, rights = tmp_path / "passwords", tmp_path / "rights"
    folder = tmp_path / "locked"
    folder.mkdir()
    passwords.write_text("reader:right\n")
    rights.write_text("user reader\ntopic read open/#\n")
    Process(tmp_path / "log", "mosquitto_passwd", "-U", str(passwords)).wait()
    for path in (passwords, rights):
        path.chmod(0o644)
    settings = ("allow_anonymous false", f"password_file {passwords}", f"acl_file {rights}")
    with Mosquitto(folder, *settings) as locked:
        for user in ("", "reader:wrong@", "nobody:right@"):
            with feeds.open(f"mqtt://{user}127.0.0.1:{locked.port}/open/x") as feed:
                assert "not authorised; give a user with mqtt://USER:PASSWORD@HOST" in error_of(feed)
        secret = tmp_path / "secret"
        secret.write_text("right\n")
        allowed = f"mqtt://reader@127.0.0.1:{locked.port}/open/x?password-file={secret}"
        with feeds.open(allowed) as feed, followed(feed):
            is_up(feed)


def test_a_session_that_another_client_has_taken_over_ends_the_feed() -> None:
    accepted = mqtt5.ConnAckPacket().write()
    taken_over = mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER).write()
    with _server(accepted + taken_over) as port, feeds.open(f"mqtt://127.0.0.1:{port}/t") as feed:
        assert "taken over the session; stop it, or give each gateway a client id" in error_of(feed)


def test_what_comes_just_before_the_broker_says_goodbye_is_stored() -> None:
    accepted = mqtt5.ConnAckPacket(session_present=True).write()
    one = mqtt5.PublishPacket("t", b"1", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1).write()
    shut_down = mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN).write()
    with (
        _server(accepted + one + shut_down) as port,
        feeds.open(f"mqtt://127.0.0.1:{port}/t") as feed,
        followed(feed) as reader,
    ):
        assert values(reader.take(1)) == [b"1"]
        wait_until(lambda: "SERVER_SHUTTING_DOWN" in str(feed.state), f"the feed is {feed.state}")


def test_a_broker_that_gives_no_reason_for_a_second_client_with_the_same_id_is_understood(
    broker: Mosquitto, topic: str
) -> None:
    mine = url(broker, topic, "client-id=mine")
    with feeds.open(mine) as feed, followed(feed):
        is_up(feed)
        with feeds.open(mine) as other, followed(other):
            taken = "another client has connected with the client id mine"
            wait_until(lambda: taken in str(feed.state), "it does not say that it is down")


def test_a_broker_without_mqtt_5_ends_the_feed() -> None:
    with _server(b"\x20\x02\x00\x01") as port, feeds.open(f"mqtt://127.0.0.1:{port}/t") as feed:
        assert "does not speak MQTT 5; update it" in error_of(feed)


def test_a_server_that_is_not_a_broker_is_a_state() -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with (
        _server(answer) as port,
        feeds.open(f"mqtt://127.0.0.1:{port}/t") as feed,
        followed(feed),
    ):
        wait_until(lambda: feed.state.status == "down", "it does not say that it is down")
        assert "does not answer as an MQTT broker does" in str(feed.state)


_ACCEPTED = mqtt5.ConnAckPacket().write()
_ONE = mqtt5.PublishPacket("t", b"1", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1).write()
_BAD_TOPIC = mqtt5.PublishPacket("topic", b"2").write().replace(b"topic", b"to\xffic")
_BAD_PROPERTY = mqtt5.PublishPacket("t", b"2", content_type="type").write().replace(b"type", b"ty\xff\xff")


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(_BAD_TOPIC, id="a topic that is not UTF-8"),
        pytest.param(
            _BAD_PROPERTY,
            id="a property that is not UTF-8",
            # The library leaves an error behind.
            marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
        ),
        pytest.param(b"\x90\x03\x00\x01\x00", id="an answer to the subscription without a code"),
        pytest.param(b"\x90\xff\xff\xff\x7f", id="an answer of 256 MiB"),
        pytest.param(b"\x36\x05\x00\x01t\x00\x00", id="QoS 3"),
        pytest.param(b"\x00\x00", id="a packet of no kind"),
    ],
)
def test_a_broker_that_sends_what_is_wrong_does_not_end_the_feed(wrong: bytes) -> None:
    with (
        _server(_ACCEPTED + _ONE + wrong) as port,
        feeds.open(f"mqtt://127.0.0.1:{port}/t") as feed,
        followed(feed) as reader,
    ):
        assert values(reader.take(1)) == [b"1"], "what came before is taken"
        # It connects anew, and is up for a moment each time.
        wait_until(lambda: "the broker" in str(feed.state), f"the feed is {feed.state}")


def test_a_broker_that_allows_a_long_silence_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_connection, "_KEEP_ALIVE", 1)
    heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    with (
        _server(mqtt5.ConnAckPacket(server_keep_alive=600).write(), heard.put) as port,
        feeds.open(f"mqtt://127.0.0.1:{port}/t") as feed,
        followed(feed),
    ):
        said = b""
        while mqtt5.PingReqPacket().write() not in said:
            said += heard.get(timeout=PATIENCE)
            assert said.count(b"MQTT") <= 1, "it has connected anew, because it has heard nothing"


def test_a_client_id_that_a_broker_has_chosen_may_have_spaces() -> None:
    chosen = mqtt5.ConnAckPacket(assigned_client_id="one of many").write()
    granted = mqtt5.SubAckPacket(1, [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE]).write()
    marks: dict[str, str] = {}
    for _ in range(2):
        with (
            _server(chosen + granted + _ONE) as port,
            feeds.open(f"mqtt://127.0.0.1:{port}/t?session=0") as feed,
        ):
            feed.resume(marks)
            with followed(feed, marks=marks) as reader:
                assert values(reader.take(1)) == [b"1"]
        assert "one of many" in str(marks)


@contextmanager
def _server(answer: bytes, hear: Callable[[bytes], object] = lambda said: None) -> Iterator[int]:
    """The port of a server that gives everybody the same answer."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1000)
            self.request.sendall(answer)
            while said := self.request.recv(1000):
                hear(said)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join(PATIENCE)


def test_tls_and_what_can_be_wrong_with_it(tmp_path: Path, broker: Mosquitto) -> None:
    authority, other = trustme.CA(), trustme.CA()
    files = {name: str(tmp_path / name) for name in ("ca", "other", "cert", "key", "own", "own-key")}
    authority.cert_pem.write_to_path(files["ca"])
    other.cert_pem.write_to_path(files["other"])
    server, own = authority.issue_cert("127.0.0.1"), authority.issue_cert("gateway@example.org")
    server.cert_chain_pems[0].write_to_path(files["cert"])
    server.private_key_pem.write_to_path(files["key"])
    own.cert_chain_pems[0].write_to_path(files["own"])
    own.private_key_pem.write_to_path(files["own-key"])
    listener = f"cafile {files['ca']}\ncertfile {files['cert']}\nkeyfile {files['key']}"
    with Mosquitto(tmp_path / "tls", listener=listener) as secure:
        where = f"127.0.0.1:{secure.port}/t"
        with feeds.open(f"mqtts://{where}?ca={files['ca']}") as feed, followed(feed):
            is_up(feed)
        with feeds.open(f"mqtts://{where}?ca={files['other']}") as feed:
            assert "is not trusted" in error_of(feed)
        with feeds.open(f"mqtts://{where.replace('127.0.0.1', 'localhost')}?ca={files['ca']}") as feed:
            assert "not valid for 'localhost'" in error_of(feed)
        with feeds.open(f"mqtt://{where}") as feed, followed(feed):
            wait_until(lambda: feed.state.status == "down", "it does not say that it is down")
            assert "write mqtts://" in str(feed.state)
    with feeds.open(f"mqtts://127.0.0.1:{broker.port}/t?ca={files['ca']}") as feed, followed(feed):
        wait_until(lambda: feed.state.status == "down", "it does not say that it is down")
        assert "does not speak TLS, write mqtt://" in str(feed.state)
    both = f"{listener}\nrequire_certificate true"
    with Mosquitto(tmp_path / "both", listener=both) as strict:
        where = f"127.0.0.1:{strict.port}/t?ca={files['ca']}"
        with feeds.open(f"mqtts://{where}") as feed:
            assert "wants a certificate" in error_of(feed)
        mine = f"mqtts://{where}&certificate={files['own']}&key={files['own-key']}"
        with feeds.open(mine) as feed, followed(feed):
            is_up(feed)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("mqtt://h", "names no topic"),
        ("mqtt://h/", "names no topic"),
        ("mqtt:///t", "names no host"),
        ("mqtt://h/a/%23/b", "# must be the last level"),
        ("mqtt://h/a%23", "# must be the last level"),
        ("mqtt://h/a+/b", r"\+ must be a whole level"),
        ("mqtt://h/$share/g", "write \\$share/GROUP/TOPIC"),
        ("mqtt://h/$share/+/t", "write \\$share/GROUP/TOPIC"),
        ("mqtt://h/t?qos=3", "write 0, 1 or 2"),
        ("mqtt://h/t?session=long", "is not a time"),
        ("mqtt://h/t?receive-maximum=70K", "at most 65535"),
        ("mqtt://h/t?client-id=", "needs a name without spaces"),
        ("mqtt://h/t?retained=maybe", "yes or no"),
        ("mqtt://h/t?ca=file", "is not known"),
        ("mqtts://h/t?ca=/nothing", "there is no file /nothing; check ca="),
        ("mqtts://h/t?certificate=/nothing", "there is no file /nothing; check certificate="),
        (f"mqtts://h/t?ca={__file__}", "cannot read the certificates"),
        ("mqtt://u@h/t?password-file=/nothing", "cannot read the password-file"),
    ],
)
def test_a_wrong_url_says_what_to_write(wrong: str, message: str) -> None:
    with pytest.raises(BadFeed, match=message):
        feeds.open(wrong)


def test_a_hash_in_a_topic_filter_needs_no_escape(broker: Mosquitto, topic: str) -> None:
    source = f"mqtt://127.0.0.1:{broker.port}/{topic}/#?qos=1"
    with feeds.open(source) as feed, followed(feed) as reader:
        assert feed.name.startswith(f"mqtt topic {topic}/# at")
        is_up(feed)
        assert publish(broker, topic, range(3)) == values(reader.take(3))


def test_senders_with_qos_0_are_told_about(
    broker: Mosquitto, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with feeds.open(url(broker, topic)) as feed, followed(feed) as reader:
        is_up(feed)
        publish(broker, topic, range(3), qos=0)
        reader.take(3)
    assert caplog.text.count("published with QoS 0, and can be lost") == 1


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mqtt5", None)
    with pytest.raises(BadFeed, match=r"pip install 'penstock-streams\[mqtt\]'"):
        feeds.open("mqtt://h/t")
