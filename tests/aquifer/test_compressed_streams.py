"""Gateways that compress, over real sockets: every reader gets every record, whatever it knows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.aquifer import (
    AquiferPublisher,
    AquiferSubscription,
    Gateway,
    Journal,
    LogReader,
    MemoryJournal,
    Producer,
    ProtocolViolation,
    Record,
    Redelivery,
    SqliteJournal,
    StreamOptions,
    unpack_values,
    verify_journal,
)
from penstock.aquifer.client.elements import Unpacker
from penstock.aquifer.protocol.frames import Flag, Frame
from penstock.aquifer.records.codecs import codec_named
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, UNBOUNDED, eventually, has, read, reading
from tests.aquifer.faults.test_slow_lines import KBIT, over_a_slow_line
from tests.streams.recording import Recorder


def lines(count: int) -> list[bytes]:
    return [json.dumps({"sensor": n % 50, "reading": n, "state": "in order"}).encode() for n in range(count)]


@pytest.fixture(params=["memory", "sqlite", "segments"])
def journal(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    if request.param == "memory":
        return MemoryJournal()
    if request.param == "segments":
        monkeypatch.setattr("penstock.aquifer.log.segments.INLINE_BYTES", 0)
    return SqliteJournal(tmp_path / "log.db", cache_bytes=1)


def test_every_kind_of_reader_gets_every_record(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    records = lines(20_000)
    with Gateway(Flux.from_iterable(records), ANYWHERE, journal=journal, compress="zstd") as gateway:
        assert gateway.join(60)
        assert journal.held.nbytes < sum(map(len, records)) / 4
        for wishes in (
            {"dialect": "extended"},
            {"dialect": "plain"},
            {"window": 7, "max_window": 7, "stop": 50},
            {"window_bytes": 1, "stop": 50},
            {"start": 1234},
        ):
            got = read(gateway.endpoint, **wishes).wait().items
            assert got == records[wishes.get("start", 0) : wishes.get("stop")], wishes
        with LogReader(gateway.endpoint) as log:
            found = list(log.read(100, 15_000))
            assert [value for batch in found for value in unpack_values(batch.payload)] == records[100:15_000]
            assert {batch.format for batch in found} == {"msgpack"}
            fits = log.state(start=0, within=100_000).fits
            assert fits is not None
            assert sum(map(len, records[: fits[0]])) <= fits[1] <= 100_000
        monkeypatch.setattr("penstock.aquifer.protocol.subscribe_options.knows_zstd", lambda: False)
        assert read(gateway.endpoint).wait().items == records


def test_arrow_rows_are_compressed_as_well() -> None:
    pa = pytest.importorskip("pyarrow")
    tables = [
        pa.record_batch({"n": list(range(first, first + 500)), "text": ["in order"] * 500})
        for first in range(0, 5000, 500)
    ]
    with Gateway(Flux.from_iterable(tables), ANYWHERE, codec="arrow", compress="zstd") as gateway:
        assert gateway.join(60)
        assert gateway.status().bytes < sum(table.nbytes for table in tables) / 2
        got = read(gateway.endpoint, codec="arrow").wait().items
        assert got == tables
        rows = read(gateway.endpoint, codec="json", start=10, stop=700).wait().items
        assert rows == [{"n": n, "text": "in order"} for n in range(10, 700)]


def test_records_without_a_pattern_are_stored_and_sent_as_they_are(tmp_path: Path) -> None:
    records = [os.urandom(200) for _ in range(5000)]
    journal = SqliteJournal(tmp_path / "log.db")
    with Gateway(Flux.from_iterable(records), ANYWHERE, journal=journal, compress="zstd") as gateway:
        assert gateway.join(60)
        stored = [journal.find(offset) for offset in range(0, 5000, 100)]
        assert not any(batch.compressed for batch in stored if batch is not None)
        assert read(gateway.endpoint).wait().items == records


def test_a_reader_of_a_few_keys_and_a_start_by_time_work_as_without() -> None:
    records = [
        Record(value, key=b"k%d" % (n % 7), timestamp=1_000_000 * n) for n, value in enumerate(lines(5000))
    ]
    with Gateway(Flux.from_iterable(records), ANYWHERE, compress="zstd") as gateway:
        assert gateway.join(60)
        got = read(gateway.endpoint, keys=["k3"], records=True).wait().items
        assert [(each.offset, each.value) for each in got] == [
            (n, record.value) for n, record in enumerate(records) if n % 7 == 3
        ]
        with LogReader(gateway.endpoint) as log:
            assert log.offset_at(1_000_000 * 2345 - 1) == 2345


def test_an_id_goes_on_and_moves_inside_of_compressed_batches(tmp_path: Path) -> None:
    records = lines(5000)

    def opened() -> Gateway:
        journal = SqliteJournal(tmp_path / "log.db")
        rest = Flux.from_iterable(records[journal.head :])
        return Gateway(rest.concat_with(Flux.never()), ANYWHERE, journal=journal, compress="zstd")

    with opened() as gateway:
        with reading(gateway.endpoint, 777, id="nightly") as recorder:
            eventually(has(recorder, 777))
        eventually(lambda: "nightly" in gateway.status().saved)
    with opened() as gateway:
        with reading(gateway.endpoint, 500, id="nightly") as recorder:
            eventually(has(recorder, 500))
            assert recorder.items == records[777:1277]
        eventually(lambda: [one.acknowledged for one in gateway.status().saved.values()] == [1277])
        gateway.move("nightly", 1001)
        with reading(gateway.endpoint, 10, id="nightly") as recorder:
            eventually(has(recorder, 10))
            assert recorder.items == records[1001:1011]


def test_refused_records_come_again_and_count_as_they_are_held() -> None:
    records, seen = lines(3000), []

    class Worker:
        def on_subscribe(self, subscription: Any) -> None:
            self.subscription: AquiferSubscription = subscription
            subscription.request(UNBOUNDED)

        def on_next(self, record: Record) -> None:
            assert record.offset is not None
            assert self.subscription._pending is not None
            first = record.offset not in seen
            seen.append(record.offset)
            weights.add(self.subscription._pending._records[record.offset].nbytes)
            if first and record.offset % 100 == 7:
                self.subscription.nack(record.offset, "not yet")
            else:
                self.subscription.ack(record.offset)

        def on_error(self, error: BaseException) -> None:
            raise AssertionError(error)

        def on_complete(self) -> None: ...

    weights: set[int] = set()
    with Gateway(Flux.from_iterable(records), ANYWHERE, compress="zstd") as gateway:
        assert gateway.join(60)
        publisher = AquiferPublisher(
            gateway.endpoint, id="worker", records=True, acknowledge="each", redelivery=Redelivery(delay=0.01)
        )
        publisher.subscribe(Worker())
        eventually(lambda: len(seen) == 3030)
        assert sorted(set(seen)) == list(range(3000))
        assert min(weights) >= min(map(len, records)), "a record counts with all of its bytes"


def test_what_producers_write_is_compressed_and_exactly_once(tmp_path: Path) -> None:
    path, records = tmp_path / "log.db", lines(3000)
    with Gateway(
        None, ANYWHERE, journal=SqliteJournal(path), writable=True, codec="bytes", compress="zstd:3"
    ) as gateway:
        with Producer(gateway.endpoint, "totals") as producer:
            for batch in range(3):
                with producer.transaction(batch) as transaction:
                    transaction.write(records[1000 * batch : 1000 * (batch + 1)])
            with producer.transaction(2) as transaction:
                transaction.write(records[:10])
        assert gateway.status().head == 3000
        assert gateway.status().bytes < sum(map(len, records)) / 4
        gateway.complete()
        assert read(gateway.endpoint).wait().items == records
    assert verify_journal(path).is_sound


def test_the_option_can_be_given_and_left_out_between_two_starts(tmp_path: Path) -> None:
    records = lines(9000)
    for number, compress in enumerate(["zstd", None, "zstd:9"]):
        journal = SqliteJournal(tmp_path / "log.db", cache_bytes=1)
        source = Flux.from_iterable(records[3000 * number : 3000 * (number + 1)])
        with Gateway(source, ANYWHERE, journal=journal, compress=compress) as gateway:
            assert gateway.join(60)
            assert read(gateway.endpoint).wait().items == records[: 3000 * (number + 1)]
            assert read(gateway.endpoint, dialect="plain").wait().items == records[: 3000 * (number + 1)]


def test_each_stream_has_its_own_compression() -> None:
    records = lines(5000)
    streams = {
        "one": StreamOptions(Flux.from_iterable(records), compress="zstd"),
        "two": StreamOptions(Flux.from_iterable(records)),
    }
    with Gateway(control=ANYWHERE, streams=streams) as gateway:
        assert gateway.join(60)
        for name in streams:
            assert read(f"{gateway.endpoint}/{name}").wait().items == records
        assert gateway.status("one").bytes < gateway.status("two").bytes / 4


def test_a_small_log_has_space_for_what_it_stores() -> None:
    """Its bound counts compressed bytes, and a slow reader holds the source back all the same."""
    records = lines(20_000)
    made: list[bytes] = []
    journal = MemoryJournal(max_bytes=20_000)
    source = Flux.from_iterable(records).do_on_next(made.append)
    with Gateway(source, ANYWHERE, journal=journal, compress="zstd") as gateway:
        eventually(lambda: journal.held.nbytes > 10_000)
        with reading(gateway.endpoint, 10) as recorder:
            eventually(has(recorder, 10))
            assert len(made) < 20_000
            assert journal.held.nbytes <= 20_000
            recorder.request(UNBOUNDED)
            recorder.wait()
            assert recorder.items == records


def test_a_gateway_that_sends_what_cannot_be_expanded_ends_the_stream() -> None:
    unpacker = Unpacker(codec_named("bytes"), records=False, batches=False)
    with pytest.raises(ProtocolViolation, match="the frame at offset 5 is compressed, and it is not"):
        unpacker.of_frame(Frame(Flag.ZSTD, 5, 1, b"torn"))


# ---------------------------------------------------------------- lines
@pytest.mark.slow
def test_over_a_slow_line_a_fifth_of_the_bytes_carry_all_records() -> None:
    records = lines(10_000)
    with over_a_slow_line(records, rate=360 * KBIT, compress="zstd") as (_, line, endpoint):
        recorder = read(endpoint, patience=60)
        recorder.wait(100)
        assert recorder.error is None
        assert recorder.items == records
        assert line.passed < sum(map(len, records)) / 5


@pytest.mark.slow
def test_a_compressed_record_arrives_though_the_line_never_holds_for_as_long_as_it_takes() -> None:
    letters = Random(1)
    record = b"".join(b"%x" % letters.randrange(16) for _ in range(800_000))
    journal = MemoryJournal(max_bytes=64 << 20)
    with over_a_slow_line([record], rate=360 * KBIT, journal=journal, compress="zstd") as (_, line, endpoint):
        publisher = AquiferPublisher(endpoint, patience=60)
        recorder = Recorder.of(publisher, UNBOUNDED)
        while not recorder.finished.wait(3):
            line.cut()
        assert recorder.error is None
        assert recorder.items == [record]
        assert publisher.metrics()[0].subscriptions > 2
        assert line.passed < 0.75 * len(record)
