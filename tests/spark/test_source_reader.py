"""The stream reader as Spark's driver calls it, without a Spark: what a replay, a race or a loss comes to."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from penstock.aquifer import Gateway, GatewayUnreachable, Limits, LogReader, LogState, MemoryJournal
from penstock.spark import DataLoss
from penstock.spark.options import SourceOptions
from penstock.spark.source.batch_reader import AquiferBatchReader
from penstock.spark.source.gateway_logs import GatewayLogs
from penstock.spark.source.positions import QueryPosition
from penstock.spark.source.readers import AquiferStreamReader
from penstock.spark.spark_interface import ReadAllAvailable, ReadMaxRows
from tests.aquifer.faults.rigs import ByHand, Numbers, eventually, stays

SCHEMA = StructType([StructField("offset", LongType())])
VALUES = StructType([StructField("value", BinaryType())])
ALL = ReadAllAvailable()


class Readers:
    """Makes readers of one gateway, each of which stands for a run of a query."""

    def __init__(self) -> None:
        self._made: list[AquiferStreamReader] = []

    def __call__(self, gateway: Gateway, **options: object) -> AquiferStreamReader:
        texts = {name: str(value) for name, value in options.items()}
        given = SourceOptions.of({"endpoint": gateway.endpoint, "waitSeconds": "0.2"} | texts)
        self._made.append(AquiferStreamReader(SCHEMA, given))
        return self._made[-1]

    def stop(self) -> None:
        for reader in self._made:
            reader.stop()


@pytest.fixture
def readers() -> Iterator[Readers]:
    made = Readers()
    yield made
    made.stop()


def offsets_of(reader: AquiferStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """What a batch reads, with a copy of the reader in each task."""
    copy = pickle.loads(pickle.dumps(AquiferStreamReader(*_made_of(reader))))
    batches = [batch for piece in reader.partitions(start, end) for batch in copy.read(piece)]
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def _made_of(reader: AquiferStreamReader) -> tuple[StructType, SourceOptions]:
    return reader._schema, reader._options


def places(gateway: Gateway) -> dict[str, Any]:
    absent: dict[str, Any] = gateway.status()["absent"]
    return absent


def test_the_first_batch_once_more_is_the_same_though_the_start_is_another(readers: Readers) -> None:
    source = ByHand()
    with Gateway(source, "tcp://127.0.0.1:0") as gateway:
        source.give(b"a")
        before = readers(gateway, startingOffsets="latest", leaseSeconds=900)
        eventually(lambda: gateway.status()["head"] == 1)
        start = before.initialOffset()
        assert start == before.initialOffset()
        source.give(b"d", b"e")
        eventually(lambda: gateway.status()["head"] == 3)
        end = before.latestOffset(start, ALL)
        assert offsets_of(before, start, end) == [1, 2]
        source.give(b"f")
        eventually(lambda: gateway.status()["head"] == 4)

        after = readers(gateway, startingOffsets="latest", leaseSeconds=900)
        assert offsets_of(after, after.initialOffset(), end) == [1, 2]
        # Of the two beginnings one is of use, and is kept for as long as the user wants.
        eventually(lambda: list(places(gateway)) == [start["name"]])
        assert places(gateway)[start["name"]]["acknowledged"] == 1
        assert places(gateway)[start["name"]]["lease_ms"] == 900_000
        assert offsets_of(after, end, after.latestOffset(end, ALL)) == [3]


@pytest.mark.parametrize(
    ("count", "width", "most_rows"), [(25_000, 20, 10_000), (60, 200_000, 10)], ids=["rows", "bytes"]
)
def test_small_batches_of_a_gateway_are_joined_up_to_a_bound(
    readers: Readers, count: int, width: int, most_rows: int
) -> None:
    numbers = Numbers(count, width=width)
    with Gateway(numbers, "tcp://127.0.0.1:0", limits=Limits(max_frame=8192)) as gateway:
        gateway.join(60)
        reader = readers(gateway, partitions=1)
        start = reader.initialOffset()
        (piece,) = reader.partitions(start, reader.latestOffset(start, ALL))

        batches = list(AquiferStreamReader(VALUES, reader._options).read(piece))

    rows = [batch.num_rows for batch in batches]
    assert max(rows) <= most_rows
    assert all(one + next_one > 0.9 * most_rows for one, next_one in itertools.pairwise(rows)), rows
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == numbers.values()


def test_nothing_new_is_the_very_same_position(readers: Readers) -> None:
    with Gateway(Numbers(5), "tcp://127.0.0.1:0") as gateway:
        gateway.join(120)
        reader = readers(gateway)
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert reader.latestOffset(end, ReadMaxRows(10)) is end
        reported = reader.reportLatestOffset()
        assert reported is not None
        assert reported["offsets"] == {gateway.endpoint: 5}
        assert reported["ended"] == [gateway.endpoint]


def test_a_gateway_that_has_left_after_its_end_does_not_hold_up_the_batches_of_others(
    monkeypatch: pytest.MonkeyPatch, readers: Readers
) -> None:
    source = ByHand()
    questions: list[str] = []
    ask = LogReader.state

    def noted(log: LogReader, **options: Any) -> LogState:
        questions.append(str(log._endpoint))
        return ask(log, **options)

    monkeypatch.setattr(LogReader, "state", noted)
    with Gateway(source, "tcp://127.0.0.1:0") as live:
        with Gateway(Numbers(5), "tcp://127.0.0.1:0") as ended:
            ended.join(120)
            both = f"{ended.endpoint},{live.endpoint}"
            reader = readers(live, endpoint=both)
            at = reader.latestOffset(reader.initialOffset(), ALL)
        questions.clear()
        for number in range(5):
            source.give(b"x")
            eventually(lambda number=number: live.status()["head"] == number + 1)
            at = reader.latestOffset(at, ALL)
            assert at["offsets"] == {ended.endpoint: 5, live.endpoint: number + 1}
    assert questions.count(ended.endpoint) == 1, "each batch waits for an answer that does not come"
    assert questions.count(live.endpoint) >= 5


def test_a_gateway_may_leave_after_it_has_announced_the_end(readers: Readers) -> None:
    with Gateway(Numbers(5), "tcp://127.0.0.1:0") as gateway:
        gateway.join(120)
        reader = readers(gateway, patienceSeconds=60)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert offsets_of(reader, start, end) == [0, 1, 2, 3, 4]

    # A minute of patience, and nobody is looked for that long: there is nothing that could be missed.
    assert reader.latestOffset(end, ALL) is end
    reader.commit(end)


def test_a_gateway_that_leaves_without_an_end_is_an_error(readers: Readers) -> None:
    source = ByHand()
    with Gateway(source, "tcp://127.0.0.1:0") as gateway:
        source.give(b"a")
        eventually(lambda: gateway.status()["head"] == 1)
        reader = readers(gateway, patienceSeconds=5)
        end = reader.latestOffset(reader.initialOffset(), ALL)

    with pytest.raises(GatewayUnreachable):
        reader.latestOffset(end, ALL)


def test_the_oldest_record_may_go_while_a_query_begins(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Gateway(
        Numbers(), "tcp://127.0.0.1:0", journal=MemoryJournal(max_records=500), prefetch=50
    ) as gateway:
        holder = readers(gateway)
        eventually(lambda: gateway.status()["head"] >= 450)
        start = holder.initialOffset()
        holder.commit(holder.latestOffset(start, ReadMaxRows(300)))
        eventually(lambda: gateway.status()["first"] > 200)
        look = GatewayLogs.state

        def a_moment_ago(self: GatewayLogs, endpoint: str, **wishes: Any) -> LogState:
            state = look(self, endpoint, **wishes)
            return state if wishes.get("acknowledge") is not None else state._replace(first=0)

        monkeypatch.setattr(GatewayLogs, "state", a_moment_ago)
        first = gateway.status()["first"]
        begun_at = readers(gateway).initialOffset()["offsets"][gateway.endpoint]
        batch = AquiferBatchReader(SCHEMA, SourceOptions.of({"endpoint": gateway.endpoint}))
        read_from = batch.partitions()[0].span.start
        assert first <= begun_at <= read_from <= gateway.status()["first"] <= begun_at


def test_a_batch_that_is_all_that_the_log_has_room_for_is_not_the_last(readers: Readers) -> None:
    source = Numbers()
    with Gateway(source, "tcp://127.0.0.1:0", journal=MemoryJournal(max_records=500)) as gateway:
        reader = readers(gateway, waitSeconds=20)
        eventually(lambda: gateway.status()["head"] == 500)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert offsets_of(reader, start, end) == list(range(500))
        # Until Spark asks again the batch may be repeated, so nothing of it is forgotten.
        stays(lambda: (gateway.status()["first"], source.given) == (0, 500))

        next_end = reader.latestOffset(end, ALL)
        assert next_end["offsets"][gateway.endpoint] > 500
        reader.commit(end)
        following = offsets_of(reader, end, next_end)
        assert following == list(range(500, next_end["offsets"][gateway.endpoint]))


def test_a_place_that_was_lost_is_kept_again(readers: Readers) -> None:
    with Gateway(Numbers(10), "tcp://127.0.0.1:0") as gateway:
        gateway.join(120)
        reader = readers(gateway)
        end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(4))
        gateway._server.streams.default.cursors.saved.clear()
        reader.latestOffset(end, ReadMaxRows(4))
        assert [place["acknowledged"] for place in places(gateway).values()] == [4]


def test_a_log_that_has_lost_its_end_is_told(readers: Readers) -> None:
    with Gateway(Numbers(10), "tcp://127.0.0.1:0") as gateway:
        gateway.join(120)
        reader = readers(gateway, failOnDataLoss="false")
        beyond = replace(QueryPosition.from_json(reader.initialOffset()), offsets={gateway.endpoint: 11})
        with pytest.raises(DataLoss, match="its log ends before 10, and the query has read up to 11"):
            reader.latestOffset(beyond.to_json(), ALL)


def test_waiting_for_news_takes_as_long_as_it_may_and_no_longer(readers: Readers) -> None:
    source = ByHand()
    with Gateway(source, "tcp://127.0.0.1:0") as gateway:
        reader = readers(gateway, waitSeconds=0.3)
        start = reader.initialOffset()
        begun = time.monotonic()
        assert reader.latestOffset(start, ALL) is start
        assert 0.25 < time.monotonic() - begun < 20
        source.complete()
        assert gateway.join(120)
        begun = time.monotonic()
        assert reader.latestOffset(start, ALL) is start
        assert 0.25 < time.monotonic() - begun < 20
