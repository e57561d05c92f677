"""Readers that want the records of a few keys only, over real sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer import (
    AquiferPublisher,
    AquiferSubscription,
    Gateway,
    LogReader,
    MemoryJournal,
    ProtocolViolation,
    Record,
    offsets_of,
)
from penstock.streams import Flux
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import (
    ANYWHERE,
    ByHand,
    eventually,
    free_endpoint,
    has,
    read,
    reading,
    session_of,
)
from tests.streams.recording import Recorder


def keyed(count: int, keys: int = 10) -> list[Record]:
    return [Record(str(number).encode(), key=b"k%d" % (number % keys)) for number in range(count)]


def test_only_the_records_of_the_keys_come_with_their_offsets() -> None:
    with Gateway(Flux.from_iterable(keyed(5000)), ANYWHERE) as gateway:
        got = read(gateway.endpoint, keys=["k3", b"k8"], records=True).wait().items
    assert [(record.offset, record.key, int(record.value)) for record in got] == [
        (number, b"k%d" % (number % 10), number) for number in range(5000) if number % 10 in (3, 8)
    ]


@pytest.mark.parametrize("settings", [{"batches": True}, {"window": 1, "max_window": 1}, {"window_bytes": 1}])
def test_batches_and_small_windows_have_the_same_records(settings: dict[str, Any]) -> None:
    with Gateway(Flux.from_iterable(keyed(2000)), ANYWHERE) as gateway:
        got = read(gateway.endpoint, keys=["k7"], **settings).wait().items
    values = [value for batch in got for value in batch] if "batches" in settings else got
    assert values == [str(number).encode() for number in range(7, 2000, 10)]


def test_arrow_readers_get_the_rows_of_their_keys() -> None:
    pytest.importorskip("pyarrow")
    with Gateway(Flux.from_iterable(keyed(500)), ANYWHERE) as gateway:
        got = read(gateway.endpoint, keys=["k4"], codec="arrow").wait().items
    assert [row["offset"] for batch in got for row in batch.to_pylist()] == list(range(4, 500, 10))


def acknowledge(reader: Recorder, offset: int) -> None:
    subscription = reader.subscription
    assert isinstance(subscription, AquiferSubscription)
    subscription.acknowledge(offset)


@pytest.mark.parametrize("how", ["auto", "manual"])
def test_a_durable_reader_moves_on_past_records_that_it_does_not_want(how: str) -> None:
    """The log has room for 50 records, and a thousand with other keys follow the last one that it wants."""
    source = ByHand()
    with (
        Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=50)) as gateway,
        reading(gateway.endpoint, 1, id="me", keys=["mine"], records=True, acknowledge=how) as reader,
    ):
        source.give(Record(b"x", key=b"mine"))
        eventually(has(reader, 1))
        if how == "manual":
            acknowledge(reader, 1)
        # It has asked for no second record, but those that it does not want need no demand.
        source.give(*(Record(b"y", key=b"other") for _ in range(1000)))
        eventually(lambda: session_of(gateway, id="me")["acknowledged"] == 1001)
        status = session_of(gateway, id="me")
        assert (status["keys"], status["left_out"], status["records"]) == (1, 1000, 1)


def test_what_was_delivered_and_not_acknowledged_is_not_passed() -> None:
    source = ByHand()
    with (
        Gateway(source, ANYWHERE) as gateway,
        reading(gateway.endpoint, id="me", keys=["mine"], records=True, acknowledge="manual") as reader,
    ):
        source.give(Record(b"x", key=b"mine"), *(Record(b"y", key=b"other") for _ in range(100)))
        eventually(lambda: session_of(gateway, id="me")["received"] == 101)
        assert session_of(gateway, id="me")["acknowledged"] == 0
        acknowledge(reader, 1)
        eventually(lambda: session_of(gateway, id="me")["acknowledged"] == 101)


def test_records_of_a_megabyte_pass_beside_each_other() -> None:
    records = [Record(bytes([number]) * 1_000_000, key=b"k%d" % (number % 2)) for number in range(12)]
    with Gateway(Flux.from_iterable(records), ANYWHERE) as gateway:
        got = read(gateway.endpoint, keys=["k1"], window_bytes=1000).wait().items
    assert [(value[0], len(value)) for value in got] == [(number, 1_000_000) for number in range(1, 12, 2)]


def test_a_killed_gateway_goes_on_and_nothing_is_lost_or_twice(tmp_path: Path) -> None:
    endpoint, path = free_endpoint(), tmp_path / "log.db"
    arguments = (
        f"lambda done: Flux.from_iterable([Record(str(n).encode(), key=b'k%d' % (n % 7)) "
        f"for n in range(done, 20000)]), {endpoint!r}, journal=SqliteJournal({str(path)!r}, max_records=500)"
    )
    with GatewayProcess(arguments) as gateway:
        reader = read(endpoint, 300, id="me", keys=["k2", "k5"], records=True)
        for wanted in (300, 900):
            eventually(has(reader, wanted))
            gateway.kill()
            with GatewayProcess(arguments) as gateway:
                reader.request(600)
                eventually(has(reader, wanted + 600))
                gateway.kill()
        with GatewayProcess(arguments):
            reader.request(2**62)
            reader.wait(120)
    expected = [number for number in range(20000) if number % 7 in (2, 5)]
    assert [record.offset for record in reader.items] == expected
    assert [int(record.value) for record in reader.items] == expected


def test_ranges_can_be_read_by_key() -> None:
    with Gateway(Flux.from_iterable(keyed(1000)), ANYWHERE) as gateway:
        assert gateway.join(60)
        with LogReader(gateway.endpoint) as log:
            batches = list(log.read(100, 900, keys=["k1"]))
    assert [offset for batch in batches for offset in offsets_of(batch)] == list(range(101, 900, 10))
    assert batches[-1].end == 900


def test_a_plain_gateway_cannot_choose() -> None:
    with Gateway(Flux.just(b"1"), ANYWHERE) as gateway:
        recorder = read(gateway.endpoint, keys=["a"], dialect="plain")
        recorder.wait()
    assert isinstance(recorder.error, ProtocolViolation)
    assert "subscribe without keys" in str(recorder.error)


@pytest.mark.parametrize(
    ("keys", "error", "text"),
    [
        ("k1", TypeError, r"give a list of keys, as in keys=\['k1'\]"),
        ([], ValueError, "at least one key"),
        ([7], TypeError, "a key is bytes or str, not 7"),
    ],
)
def test_keys_that_make_no_sense_are_refused(keys: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        AquiferPublisher("tcp://127.0.0.1:1", keys=keys)


def test_more_keys_than_the_gateway_takes_fail_the_reader() -> None:
    with Gateway(Flux.just(b"1"), ANYWHERE) as gateway:
        recorder: Recorder = read(gateway.endpoint, keys=[str(number) for number in range(2000)]).wait()
    assert "1 to 1024 keys" in str(recorder.error)
