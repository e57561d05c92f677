"""Writing to a gateway over real sockets: what gets in, at which pace, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.aquifer import (
    AquiferError,
    AquiferPublisher,
    CurveClient,
    CurveServer,
    Gateway,
    GatewayUnreachable,
    Journal,
    Limits,
    MemoryJournal,
    ProtocolViolation,
    Refused,
    SqliteJournal,
    Unreadable,
    generate_keys,
)
from penstock.aquifer.client import connection
from penstock.aquifer.records.arrow import to_arrow_stream
from penstock.aquifer.records.batch import Batch
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, eventually, free_endpoint, has, reading, stays
from tests.aquifer.writing import METADATA, Connect, couriers, deliver, log_of, numbered, stage

Start = Callable[..., Gateway]


@pytest.fixture
def start() -> Iterator[Start]:
    """Gateways that can be written to."""
    with ExitStack() as gateways:

        def open_gateway(journal: Journal | None = None, **settings: Any) -> Gateway:
            gateway = Gateway(
                None, settings.pop("control", ANYWHERE), journal=journal, writable=True, **settings
            )
            return gateways.enter_context(gateway)

        yield open_gateway


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Couriers to a gateway, or to an endpoint."""
    with couriers() as open_courier:
        yield open_courier


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Future[Any]]]:
    """Calls a function on another thread."""
    with ThreadPoolExecutor(4) as threads:
        yield threads.submit


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Couriers that ask again soon."""
    monkeypatch.setattr(connection, "_REPEAT", 0.3)


# ---------------------------------------------------------------- in and out
@pytest.mark.parametrize("durable", [False, True])
def test_what_is_published_is_read_batch_by_batch(
    start: Start, connect: Connect, tmp_path: Path, durable: bool
) -> None:
    gateway = start(SqliteJournal(tmp_path / "log.db") if durable else MemoryJournal())
    courier = connect(gateway)
    with reading(gateway.endpoint) as reader:
        for batch in range(5):
            parts = [
                stage(courier, batch, [b"%d.%d.a" % (batch, part)], [b"%d.%d.b" % (batch, part)], part=part)
                for part in range(2)
            ]
            courier.publish("query", batch, parts)
        gateway.complete()
        reader.wait()

        expected = [b"%d.%d.%s" % (batch, p, s) for batch in range(5) for p in range(2) for s in (b"a", b"b")]
        assert reader.items == expected
        assert reader.completed


def test_staged_records_are_not_to_be_seen(start: Start, connect: Connect) -> None:
    gateway = start()
    courier = connect(gateway)
    stage(courier, 0, [b"staged"])

    assert gateway.status()["head"] == 0


def test_a_batch_that_is_delivered_again_is_there_once(start: Start, connect: Connect) -> None:
    gateway = start()
    for _ in range(3):
        courier = connect(gateway)
        for batch in range(2):
            deliver(courier, batch, numbered(batch, 10))

    assert log_of(gateway.endpoint) == [*numbered(0, 10), *numbered(1, 10)]


def test_a_record_may_be_much_longer_than_a_message(start: Start, connect: Connect) -> None:
    gateway = start()
    record = b"x" * 5_000_000
    deliver(connect(gateway), 0, [record])

    assert log_of(gateway.endpoint) == [record]


def test_writers_beside_each_other_and_beside_a_source(connect: Connect, elsewhere: Any) -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE, writable=True) as gateway:
        couriers = [connect(gateway) for _ in range(3)]

        def write(number: int) -> None:
            for batch in range(20):
                deliver(couriers[number], batch, [b"%d %d" % (number, batch)] * 3, query=f"query {number}")

        writers = [elsewhere(write, number) for number in range(3)]
        source.give(*[b"source"] * 50)
        for writing in writers:
            writing.result(60)
        eventually(lambda: gateway.status()["head"] == 50 + 180)

        log = log_of(gateway.endpoint)
        for number in range(3):
            mine = [record for record in log if record.startswith(b"%d " % number)]
            assert mine == [b"%d %d" % (number, batch) for batch in range(20) for _ in range(3)]


def test_rows_that_cannot_be_shown_as_json_fail_those_who_want_them_so_and_nobody_else(
    start: Start, connect: Connect
) -> None:
    gateway = start()
    far_away = pa.record_batch({"time": pa.array([2**62], pa.timestamp("us"))})
    courier = connect(gateway)
    payload = to_arrow_stream(far_away)
    courier.stage("query", 0, 0, 0, 0, count=1, payload=payload, metadata=METADATA, format="arrow")
    courier.publish("query", 0, [(0, 0, 1)])

    with pytest.raises(Unreadable, match="cannot be sent"):
        list(AquiferPublisher(gateway.endpoint, stop=1).flux())
    assert list(AquiferPublisher(gateway.endpoint, stop=1, codec="arrow").flux()) == [far_away]


# ---------------------------------------------------------------- the pace of the readers
def test_a_commit_waits_for_the_readers_when_the_log_is_full(
    start: Start, connect: Connect, elsewhere: Any
) -> None:
    gateway = start(MemoryJournal(max_records=10))
    courier = connect(gateway)
    with reading(gateway.endpoint, 0, window=5, max_window=5) as reader:
        eventually(lambda: gateway.status()["subscribers"])
        deliver(courier, 0, numbered(0, 10))
        publishing = elsewhere(deliver, courier, 1, numbered(1, 10))
        stays(lambda: not publishing.done() and gateway.status()["head"] == 10)

        reader.request(9)
        eventually(has(reader, 9))
        stays(lambda: not publishing.done())
        reader.request(11)

        publishing.result(60)
        eventually(has(reader, 20))
        assert reader.items == [*numbered(0, 10), *numbered(1, 10)]


def test_a_commit_that_waits_for_long_is_asked_for_again_and_published_once(
    start: Start, connect: Connect, elsewhere: Any, impatient: None
) -> None:
    gateway = start(MemoryJournal(max_records=10))
    courier = connect(gateway)
    with reading(gateway.endpoint, 0) as reader:
        eventually(lambda: gateway.status()["subscribers"])
        deliver(courier, 0, numbered(0, 10))
        publishing = elsewhere(deliver, courier, 1, numbered(1, 10))
        stays(lambda: not publishing.done(), seconds=1.0)
        reader.request(100)
        publishing.result(60)
        deliver(courier, 2, numbered(2, 1))
        eventually(has(reader, 21))

        assert reader.items == [*numbered(0, 10), *numbered(1, 10), *numbered(2, 1)]


@pytest.mark.parametrize("durable", [False, True])
def test_a_batch_that_is_larger_than_the_log_waits_until_the_log_was_read(
    start: Start, connect: Connect, elsewhere: Any, tmp_path: Path, durable: bool
) -> None:
    bound = {"max_records": 10}
    gateway = start(SqliteJournal(tmp_path / "log.db", **bound) if durable else MemoryJournal(**bound))
    courier = connect(gateway)
    large = numbered(1, 100)
    with reading(gateway.endpoint, 0) as reader:
        eventually(lambda: gateway.status()["subscribers"])
        deliver(courier, 0, numbered(0, 5))
        parts = [stage(courier, 1, *[large[at : at + 20] for at in range(0, 100, 20)])]
        publishing = elsewhere(courier.publish, "query", 1, parts)
        stays(lambda: not publishing.done())

        reader.request(5)
        publishing.result(60)
        assert gateway.status()["head"] == 105
        following = elsewhere(deliver, courier, 2, numbered(2, 5))
        stays(lambda: not following.done())
        reader.request(100)
        following.result(60)
        reader.request(5)
        eventually(has(reader, 110))

        assert reader.items == [*numbered(0, 5), *large, *numbered(2, 5)]


def test_who_waits_for_too_long_is_told(start: Start, connect: Connect) -> None:
    gateway = start(MemoryJournal(max_records=10))
    courier = connect(gateway)
    deliver(courier, 0, numbered(0, 10))
    parts = [stage(courier, 1, numbered(1, 10))]

    with pytest.raises(GatewayUnreachable, match="does anybody read"):
        courier.publish("query", 1, parts, timeout=0.3)


# ---------------------------------------------------------------- the end
def test_nothing_can_be_added_to_a_stream_that_has_ended(start: Start, connect: Connect) -> None:
    gateway = start()
    courier = connect(gateway)
    deliver(courier, 0, [b"last"])
    gateway.complete()
    assert gateway.join(60)

    with pytest.raises(Unreadable, match="has ended"):
        deliver(courier, 1, [b"too late"])
    deliver(courier, 0, [b"last"])
    assert list(AquiferPublisher(gateway.endpoint).flux()) == [b"last"]


def test_a_batch_that_waits_for_room_is_published_before_the_end(
    start: Start, connect: Connect, elsewhere: Any
) -> None:
    gateway = start(MemoryJournal(max_records=10))
    courier = connect(gateway)
    with reading(gateway.endpoint, 0) as reader:
        eventually(lambda: gateway.status()["subscribers"])
        deliver(courier, 0, numbered(0, 10))
        publishing = elsewhere(deliver, courier, 1, numbered(1, 10))
        eventually(lambda: any(each["pending"] for each in gateway.status()["producers"]))
        gateway.complete()
        reader.request(100)
        publishing.result(60)
        reader.wait()

        assert reader.items == [*numbered(0, 10), *numbered(1, 10)]
        assert reader.completed


def test_a_failing_journal_is_told_to_who_waits_and_to_who_comes(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(MemoryJournal):
        def append(self, batches: Sequence[Batch], marks: Mapping[str, str] | None = None) -> None:
            raise RuntimeError("the disk is gone")

    gateway = start(Broken())
    courier = connect(gateway)

    for batch in range(2):
        with pytest.raises(Unreadable, match="the disk is gone"):
            deliver(courier, batch, [b"record"])
    assert "cannot write its journal any more" in caplog.text


def test_a_source_that_breaks_off_does_not_leave_writers_waiting(connect: Connect) -> None:
    with Gateway(Flux.just(b"good", "no bytes"), ANYWHERE, writable=True) as gateway:
        assert gateway.join(60)
        courier = connect(gateway)

        with pytest.raises(Unreadable, match="has ended"):
            deliver(courier, 0, [b"record"])


# ---------------------------------------------------------------- refused
def test_a_gateway_that_is_not_writable_refuses(connect: Connect) -> None:
    with Gateway(Flux.never(), ANYWHERE) as gateway, pytest.raises(ProtocolViolation, match="writable=True"):
        deliver(connect(gateway), 0, [b"record"])


def test_more_than_the_gateway_has_room_for_is_refused(start: Start, connect: Connect) -> None:
    gateway = start(limits=Limits(staged_bytes=100_000))

    with pytest.raises(AquiferError, match="staged_bytes"):
        stage(connect(gateway), 0, *[[b"x" * 10_000]] * 10)


def test_a_gateway_that_has_too_much_to_do_is_asked_again(start: Start, connect: Connect) -> None:
    # A busy machine may take some time for each, but not a third of a second.
    gateway = start(limits=Limits(requests_per_second=3))
    courier = connect(gateway)
    parts = stage(courier, 0, *[[b"record"]] * 9)
    courier.publish("query", 0, [parts])

    assert gateway.status()["head"] == 9
    assert gateway.status()["counters"]["too many requests"] > 0


def test_nobody_there_is_told_after_the_patience(connect: Connect) -> None:
    with pytest.raises(GatewayUnreachable, match="is it running"):
        deliver(connect(free_endpoint(), patience=0.3), 0, [b"record"])


def test_a_key_that_is_not_known_is_refused_and_a_known_one_writes(connect: Connect) -> None:
    server, friend, stranger = generate_keys(), generate_keys(), generate_keys()
    curve = CurveServer(server, [friend.public])
    with Gateway(None, None, curve=curve, curve_control=ANYWHERE, writable=True) as gateway:
        deliver(connect(gateway.curve_endpoint, curve=CurveClient(friend, server.public)), 0, [b"record"])
        assert gateway.status()["head"] == 1
        outsider = connect(gateway.curve_endpoint, curve=CurveClient(stranger, server.public))
        with pytest.raises(Refused):
            deliver(outsider, 1, [b"record"])
