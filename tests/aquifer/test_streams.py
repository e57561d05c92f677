"""Several streams in one gateway: each has a log, ids and writers of its own, and all share the sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zmq

from penstock.aquifer import (
    Administrator,
    AquiferPublisher,
    Batch,
    CurveClient,
    CurveServer,
    Evicted,
    Gateway,
    JournalError,
    LogReader,
    MemoryJournal,
    Producer,
    SqliteJournal,
    StreamOptions,
    UnknownStream,
    generate_keys,
    pack_values,
    probe,
)
from penstock.streams import Flux
from tests.aquifer.faults.rigs import (
    ANYWHERE,
    ByHand,
    Numbers,
    Peer,
    eventually,
    our_threads,
    read,
    stays,
)
from tests.aquifer.writing import METADATA


def values(endpoint: str, **settings: Any) -> list[Any]:
    return list(AquiferPublisher(endpoint, **settings).flux())


def two() -> dict[str, StreamOptions]:
    return {"orders": StreamOptions(Flux.just({"id": 7}), codec="json"), "clicks": StreamOptions(Numbers(3))}


# ---------------------------------------------------------------- reading
def test_each_stream_is_read_by_its_name() -> None:
    with Gateway(Flux.just(b"own"), ANYWHERE, streams=two()) as gateway:
        assert gateway.streams == ("", "orders", "clicks")
        assert values(gateway.endpoint) == [b"own"]
        assert values(f"{gateway.endpoint}/orders", codec="json") == [{"id": 7}]
        assert values(f"{gateway.endpoint}/clicks") == [b"0", b"1", b"2"]
    eventually(lambda: our_threads() == [], "a thread is left")


def test_without_a_source_of_its_own_the_first_stream_is_the_default_one() -> None:
    with Gateway(control=ANYWHERE, streams=two()) as gateway:
        assert values(gateway.endpoint, codec="json") == [{"id": 7}]
        assert values(gateway.endpoint, codec="json", dialect="plain") == [{"id": 7}]


def test_an_unknown_stream_is_refused_with_the_names_that_there_are() -> None:
    with Gateway(control=ANYWHERE, streams=two()) as gateway:
        nowhere = f"{gateway.endpoint}/order"
        with pytest.raises(UnknownStream, match="no stream 'order' here: there are clicks, orders"):
            values(nowhere)
        with pytest.raises(UnknownStream, match="clicks, orders"):
            probe(nowhere)
        with pytest.raises(UnknownStream, match="clicks, orders"), LogReader(nowhere) as log:
            log.state()
        with pytest.raises(UnknownStream, match="clicks, orders"), Producer(nowhere) as producer:
            producer.transaction(1).write_batch(_batch())
        with pytest.raises(UnknownStream, match="clicks, orders"), Administrator(nowhere) as administrator:
            administrator.ids()
        assert gateway.status().counters["unknown stream"] == 5


def test_a_gateway_with_one_stream_says_that_it_has_no_name() -> None:
    with (
        Gateway(Numbers(1), ANYWHERE) as gateway,
        pytest.raises(UnknownStream, match="one stream, without a name"),
    ):
        values(f"{gateway.endpoint}/orders")


def test_a_slow_reader_of_one_stream_does_not_hold_up_another() -> None:
    slow, fast = Numbers(), Numbers(50_000)
    streams = {
        "slow": StreamOptions(slow, journal=MemoryJournal(max_records=100)),
        "fast": StreamOptions(fast, journal=MemoryJournal(max_records=100)),
    }
    with Gateway(control=ANYWHERE, streams=streams) as gateway:
        stuck = read(f"{gateway.endpoint}/slow", 1)
        eventually(lambda: stuck.items, "the first record")
        assert len(values(f"{gateway.endpoint}/fast")) == 50_000
        given = slow.given
        stays(lambda: slow.given == given, "the source of a stuck reader goes on", 0.2)
        stuck.cancel()


def test_one_id_is_two_readers_in_two_streams(tmp_path: Path) -> None:
    def streams() -> dict[str, StreamOptions]:
        return {
            name: StreamOptions(
                Flux.from_iterable([f"{name}{n}".encode() for n in range(4)]) if new else Flux.empty(),
                journal=SqliteJournal(tmp_path / f"{name}.db"),
            )
            for name in ("a", "b")
        }

    new = True
    with Gateway(control=ANYWHERE, streams=streams()) as gateway:
        assert gateway.join(60)
        for name, count in (("a", 1), ("b", 3)):
            reader = read(f"{gateway.endpoint}/{name}", count, id="same")
            eventually(lambda: len(reader.items) == count, "records")  # noqa: B023
            reader.cancel()
        eventually(lambda: not gateway.status("a").subscribers and not gateway.status("b").subscribers)
        assert gateway.status("a").saved["same"].acknowledged == 1
        assert gateway.status("b").saved["same"].acknowledged == 3
    new = False
    with Gateway(control=ANYWHERE, streams=streams()) as gateway:
        assert values(f"{gateway.endpoint}/a", id="same") == [b"a1", b"a2", b"a3"]
        assert values(f"{gateway.endpoint}/b", id="same") == [b"b3"]


# ---------------------------------------------------------------- on the wire
def test_a_connection_that_subscribes_to_another_stream_leaves_the_first() -> None:
    with Gateway(control=ANYWHERE, streams=two()) as gateway, Peer(gateway.endpoint) as peer:
        assert peer.subscribe(stream="clicks")["x"]["stream"] == "clicks"
        assert len(gateway.status("clicks").subscribers) == 1
        assert peer.subscribe(stream="orders")["x"]["stream"] == "orders"
        assert not gateway.status("clicks").subscribers
        assert len(gateway.status("orders").subscribers) == 1
        peer.ask({"jsonClass": "Subscribe", "cancel": True})
        assert not gateway.status("orders").subscribers


def test_a_question_about_another_stream_ends_no_session() -> None:
    with Gateway(control=ANYWHERE, streams=two()) as gateway, Peer(gateway.endpoint) as peer:
        peer.subscribe(stream="clicks")
        answer = peer.ask(
            {"jsonClass": "Subscribe", "cancel": False, "x": {"v": 1, "probe": True, "stream": "orders"}}
        )
        assert answer["x"]["stream"] == answer["x"]["status"]["stream"] == "orders"
        assert len(gateway.status("clicks").subscribers) == 1
        peer.join()
        peer.grant(limit=3)
        assert peer.frame().count


def test_a_late_message_is_answered_by_the_stream_whose_session_has_ended() -> None:
    with Gateway(control=ANYWHERE, streams=two()) as gateway, Peer(gateway.endpoint) as peer:
        peer.subscribe(stream="clicks", id="nightly")
        gateway.evict("nightly", "clicks")
        answer = peer.ask({"jsonClass": "Next", "count": 1, "x": {"limit": 1}})
        assert answer["x"]["code"] == "EVICTED"


def test_the_routing_id_of_another_key_ends_no_session_of_another_stream() -> None:
    server, alice, bob = generate_keys(), generate_keys(), generate_keys()
    curve = CurveServer(server, [alice.public, bob.public])
    streams = {"a": StreamOptions(ByHand()), "b": StreamOptions(ByHand())}
    with (
        Gateway(control=None, curve=curve, curve_control=ANYWHERE, streams=streams) as gateway,
        Peer(gateway.curve_endpoint, CurveClient(alice, server.public)) as owner,
        Peer(gateway.curve_endpoint, CurveClient(bob, server.public)) as thief,
    ):
        answers = []
        for peer, name in ((owner, "a"), (thief, "b")):
            peer.control.disconnect(peer.endpoint)
            peer.control.setsockopt(zmq.IDENTITY, b"same")
            peer.control.connect(peer.endpoint)
            answers.append(peer.subscribe(stream=name))
        assert answers[0]["jsonClass"] == "OnSubscribe"
        assert answers[1]["x"]["code"] == "AUTH"
        assert len(gateway.status("a").subscribers) == 1


def test_a_client_that_names_a_stream_notices_a_gateway_that_knows_of_no_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a gateway ignores the field, and would serve its only stream."""
    monkeypatch.setattr("penstock.aquifer.protocol.session_table.stream_in", lambda message: "")
    with Gateway(None, ANYWHERE, writable=True) as gateway:
        endpoint = f"{gateway.endpoint}/orders"
        with pytest.raises(UnknownStream, match="leave /orders out"):
            values(endpoint)
        with pytest.raises(UnknownStream, match="leave /orders out"):
            probe(endpoint)
        with pytest.raises(UnknownStream, match="leave /orders out"), Producer(endpoint) as producer:
            producer.transaction(1).write_batch(_batch())
        eventually(lambda: not gateway.status().subscribers, "the session that nobody wanted is left")


# ---------------------------------------------------------------- writing and administering
def _batch() -> Batch:
    return Batch(0, 2, pack_values([b"x", b"y"]), METADATA)


def test_writers_write_to_the_stream_that_they_name() -> None:
    streams = {name: StreamOptions(writable=True) for name in ("orders", "clicks")}
    with Gateway(control=ANYWHERE, streams=streams) as gateway:
        for name in streams:
            with Producer(f"{gateway.endpoint}/{name}", "same") as producer:
                for _ in range(2):  # The second time it is published already, in this stream.
                    with producer.transaction(1) as transaction:
                        transaction.write([name.encode()])
        gateway.complete(stream="orders")
        gateway.complete(stream="clicks")
        assert values(f"{gateway.endpoint}/orders") == [b"orders"]
        assert values(f"{gateway.endpoint}/clicks") == [b"clicks"]
        with LogReader(f"{gateway.endpoint}/clicks") as log:
            assert [batch.count for batch in log.read(0, 1)] == [1]


def test_an_administrator_works_on_the_stream_of_its_endpoint() -> None:
    with Gateway(control=ANYWHERE, streams=two() | {"clicks": StreamOptions(Numbers())}) as gateway:
        reader = read(f"{gateway.endpoint}/clicks", 1, id="nightly")
        eventually(lambda: reader.items, "a record")
        with Administrator(f"{gateway.endpoint}/orders") as administrator:
            assert administrator.ids().total == 0
        with Administrator(f"{gateway.endpoint}/clicks") as administrator:
            assert [one.id for one in administrator.ids().ids] == ["nightly"]
            administrator.forget("nightly")
        assert isinstance(reader.wait().error, Evicted)
        assert gateway.ids("clicks").total == 0


def test_the_status_lists_all_streams() -> None:
    with Gateway(control=ANYWHERE, streams=two()) as gateway:
        assert gateway.join(60)
        status = probe(f"{gateway.endpoint}/clicks")
        assert (status.stream, status.head) == ("clicks", 3)
        assert [(one.name, one.default, one.head, one.codec) for one in status.streams] == [
            ("orders", True, 1, "json"),
            ("clicks", False, 3, "bytes"),
        ]
        assert probe(gateway.endpoint).stream == "orders"
        with pytest.raises(LookupError, match="no stream 'nothing'"):
            gateway.status("nothing")


# ---------------------------------------------------------------- its life
def test_a_stream_that_fails_does_not_end_the_others() -> None:
    streams = {
        "bad": StreamOptions(Flux.error(ValueError("broken"))),
        "good": StreamOptions(Numbers(2)),
    }
    with Gateway(control=ANYWHERE, streams=streams) as gateway:
        assert values(f"{gateway.endpoint}/good") == [b"0", b"1"]
        assert gateway.join(60)
        assert gateway.failure == "bad: ValueError: broken"
        assert gateway.status("good").failure is None


def test_a_journal_that_cannot_be_closed_does_not_keep_the_others_open(tmp_path: Path) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    gateway = Gateway(
        control=ANYWHERE,
        streams={
            "first": StreamOptions(ByHand(), journal=SqliteJournal(first)),
            "second": StreamOptions(ByHand(), journal=SqliteJournal(second)),
        },
    ).start()
    second.unlink()
    with pytest.raises(JournalError):
        gateway.close()
    SqliteJournal(first).close()  # Nobody has it any more.


def test_a_wrong_stream_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(ValueError, match="not the name of a stream"):
        Gateway(Numbers(1), ANYWHERE, streams={"a/b": StreamOptions(Numbers(1))})
    with pytest.raises(TypeError, match=r"StreamOptions\(None\) has no source"):
        StreamOptions()
    with pytest.raises(TypeError, match="has no source"):
        Gateway()
    with pytest.raises(ValueError, match="give each of the streams its journal"):
        Gateway(control=ANYWHERE, journal=MemoryJournal(), streams=two())
    with pytest.raises(ValueError, match="ends with the port"):
        Gateway(Numbers(1), "tcp://127.0.0.1:0/orders")
