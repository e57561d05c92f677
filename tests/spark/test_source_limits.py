"""How much a stream reader takes, how long it waits, and whose place it relies on; without a Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.aquifer import Gateway, GatewayUnreachable, Limits, LogReader, MemoryJournal
from penstock.spark import BadCheckpoint, BadOption, SharedSubscription
from penstock.spark.options import SourceOptions
from penstock.spark.source import readers as readers_module
from penstock.spark.source.columns import Columns
from penstock.spark.source.dead_letters import TaskId
from penstock.spark.source.positions import OffsetRange
from penstock.spark.source.ranges import RangePartition, read_range, renew_lease
from penstock.spark.source.readers import AquiferStreamReader
from penstock.spark.source.self_paced import SelfPacedStreamReader
from penstock.spark.spark_interface import ReadAllAvailable, ReadMaxRows
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, Numbers, eventually

SCHEMA = StructType([StructField("value", BinaryType())])
ALL = ReadAllAvailable()
MANY = ReadMaxRows(10**9)


class Readers:
    """Makes readers, each of which stands for a run of a query."""

    def __init__(self) -> None:
        self._made: list[AquiferStreamReader] = []

    def __call__(self, *gateways: Gateway, **options: object) -> AquiferStreamReader:
        texts = {name: str(value) for name, value in options.items()}
        endpoints = ",".join(gateway.endpoint for gateway in gateways)
        given = SourceOptions.of({"endpoint": endpoints, "waitSeconds": "0.2"} | texts)
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


def steps(reader: AquiferStreamReader, start: dict[str, Any] | None = None) -> Iterator[dict[str, list[int]]]:
    """What each trigger takes, as a range of offsets for each endpoint, until there is nothing more."""
    here = reader.initialOffset() if start is None else start
    while (end := reader.latestOffset(here, MANY)) is not here:
        reader.commit(here)
        yield {e: list(range(here["offsets"][e], end["offsets"][e])) for e in end["offsets"]}
        here = end


# ---------------------------------------------------------------- maxBytesPerTrigger
LIMIT = 400_000
SIZES = [*[100] * 3000, *[150_000] * 12, 900_000, *[10] * 2000, 399_000, 399_000]
HEAD = 20
"""Bytes that a record counts for beside its value, at most."""


@contextmanager
def served(sizes: list[int]) -> Iterator[Gateway]:
    with Gateway(Flux.from_iterable(bytes(size) for size in sizes), ANYWHERE) as gateway:
        assert gateway.join(120)
        yield gateway


def test_a_trigger_takes_no_more_bytes_than_it_may_unless_one_record_alone_has_more(readers: Readers) -> None:
    with served(SIZES) as gateway:
        taken = [ranges[gateway.endpoint] for ranges in steps(readers(gateway, maxBytesPerTrigger=LIMIT))]

    assert [offset for batch in taken for offset in batch] == list(range(len(SIZES)))
    for batch in taken:
        nbytes = sum(SIZES[offset] for offset in batch)
        assert nbytes <= LIMIT or len(batch) == 1
        following = SIZES[batch[-1] + 1 :][:1]
        assert not following or nbytes + following[0] + HEAD * (len(batch) + 1) > LIMIT, (
            "more would have fitted"
        )


def test_the_records_that_a_trigger_may_take_are_a_limit_as_well(readers: Readers) -> None:
    with served([100] * 50) as gateway:
        reader = readers(gateway, maxBytesPerTrigger=LIMIT)
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadMaxRows(20))["offsets"] == {gateway.endpoint: 20}
        # The trigger Once has no second batch that could take the rest.
        assert readers(gateway, maxBytesPerTrigger=10).latestOffset(start, ALL)["offsets"] == {
            gateway.endpoint: 50
        }


def test_gateways_share_the_bytes_and_one_with_large_records_is_not_left_out(readers: Readers) -> None:
    small, large = [100] * 20_000, [350_000] * 5
    with served(small) as one, served(large) as other:
        sizes = {one.endpoint: small, other.endpoint: large}
        seen = {one.endpoint: 0, other.endpoint: 0}
        for ranges in steps(readers(one, other, maxBytesPerTrigger=LIMIT)):
            nbytes = sum(sizes[e][offset] for e, offsets in ranges.items() for offset in offsets)
            assert nbytes <= LIMIT
            seen = {e: seen[e] + len(offsets) for e, offsets in ranges.items()}
            if seen[other.endpoint] < len(large) and seen[one.endpoint] > 19_000:
                pytest.fail(f"{seen} of {len(small)} small and {len(large)} large records")
    assert list(seen.values()) in ([20_000, 5], [5, 20_000])


def test_rows_of_a_megabyte_among_small_ones_in_arrow_count_for_what_they_are(readers: Readers) -> None:
    sizes = [*[100] * 500, *[1_000_000] * 3, *[100] * 500] * 2
    rows = pa.record_batch({"value": pa.array([bytes(size) for size in sizes], pa.binary())})
    limit, head = 1_500_000, 1000
    with Gateway(Flux.just(rows), ANYWHERE, codec="arrow") as gateway:
        assert gateway.join(60)
        reader = readers(gateway, maxBytesPerTrigger=limit, value="arrow")
        taken = [ranges[gateway.endpoint] for ranges in steps(reader)]

    assert [offset for batch in taken for offset in batch] == list(range(len(sizes)))
    for batch in taken:
        nbytes = sum(sizes[offset] for offset in batch)
        assert nbytes <= limit
        following = sizes[batch[-1] + 1 :][:1]
        assert not following or nbytes + following[0] + 10 * len(batch) + head > limit, "more would fit"


def test_a_reader_that_paces_itself_keeps_to_the_bytes_too() -> None:
    sizes = [*[100] * 400, 1_000_000, *[100] * 400, 1_000_000, 1_000_000]
    with served(sizes) as gateway:
        options = {"endpoint": gateway.endpoint, "waitSeconds": "0.1", "maxBytesPerTrigger": "20000"}
        reader = SelfPacedStreamReader(SCHEMA, SourceOptions.of(options))
        ends = [0]
        while ends[-1] < len(sizes):
            ends.append(reader.latestOffset()["offsets"][gateway.endpoint])
        reader.stop()
    for first, end in pairwise(ends):
        assert sum(sizes[first:end]) <= 20_000 or end - first == 1


# ---------------------------------------------------------------- other sources of the query
class Clock:
    """The time as the reader sees it: a question takes as long as it waits, also on a busy machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(readers_module, "time", made)
    return made


SHORT = readers_module._SHORT_WAIT


def test_a_short_wait_does_not_hold_up_a_trigger() -> None:
    assert readers_module._SHORT_WAIT <= 0.02


def test_a_source_without_records_does_not_keep_one_that_has_some_waiting(
    readers: Readers, clock: Clock
) -> None:
    with Gateway(ByHand(), ANYWHERE) as idle:
        reader = readers(idle, waitSeconds=1.5)
        start = reader.initialOffset()
        waits = waits_of(reader, clock)
        # Spark logs a batch, though this source had nothing: another one had.
        for _ in range(3):
            assert reader.latestOffset(start, MANY) is start
            reader.commit(start)

    [first, *later] = waits
    assert first > SHORT, "alone, it waits for as long as it was told"
    assert len(later) >= 2
    assert later == pytest.approx([SHORT] * len(later))


def test_nor_does_it_if_the_triggers_are_far_apart(readers: Readers, clock: Clock) -> None:
    apart = readers_module._SHORT_WAITS_FOR + 1
    with Gateway(ByHand(), ANYWHERE) as idle:
        reader = readers(idle, waitSeconds=1.5)
        start = reader.initialOffset()
        waits = waits_of(reader, clock)
        for _ in range(3):
            assert reader.latestOffset(start, MANY) is start
            reader.commit(start)
            clock.now += apart
        hurried = waits[1:]
        assert reader.latestOffset(start, MANY) is start
        clock.now += apart
        assert reader.latestOffset(start, MANY) is start

    assert len(hurried) >= 2
    assert hurried == pytest.approx([SHORT] * len(hurried))
    assert waits[-1] > SHORT, "no other source has had records since"


def waits_of(reader: AquiferStreamReader, clock: Clock) -> list[float]:
    """How long the gateway is asked to wait for records, with each question that lets it wait.

    It is not made to wait: it has none.
    """
    waits: list[float] = []
    ask = reader._logs.state

    def state(endpoint: str, **options: Any) -> Any:
        if wait := options.pop("wait", 0.0):
            waits.append(wait)
            clock.now += wait
        return ask(endpoint, **options)

    reader._logs.state = state  # type: ignore[method-assign]
    return waits


# ---------------------------------------------------------------- leases
def test_a_longer_lease_than_the_gateway_gives_is_refused_with_its_limit(readers: Readers) -> None:
    with Gateway(Numbers(5), ANYWHERE, limits=Limits(max_lease=60)) as gateway:
        patient = readers(gateway, leaseSeconds=90, subscription="monthly")
        with pytest.raises(
            BadOption, match=r"\"leaseSeconds\" is '90': .* for 60 seconds at most.*max_lease=90"
        ):
            patient.initialOffset()
        readers(gateway, leaseSeconds=60, subscription="hourly").initialOffset()


def test_a_month_is_not_too_long(readers: Readers) -> None:
    with Gateway(Numbers(5), ANYWHERE) as gateway:
        readers(gateway, leaseSeconds=30 * 86400, subscription="monthly").initialOffset()
        assert gateway.status()["absent"]["monthly"]["lease_ms"] == 30 * 86_400_000


@pytest.mark.slow
def test_the_place_is_kept_while_a_task_waits_for_whoever_takes_its_rows() -> None:
    with Gateway(Numbers(5000), ANYWHERE, limits=Limits(max_frame_records=100)) as gateway:
        gateway.join(120)
        with closing(LogReader(gateway.endpoint)) as client:
            epoch = client.state(name="reader", lease=60.0, acknowledge=0).epoch
        options = SourceOptions.of({"endpoint": gateway.endpoint})
        part = OffsetRange(gateway.endpoint, epoch, 0, 5000, "reader")
        partition = RangePartition(part, TaskId("reader", "query", 0))
        batches = read_range(partition, Columns(SCHEMA, "binary"), options, lease=2.0)
        next(batches)
        eventually(lambda: gateway.status()["absent"]["reader"]["lease_ms"] == 2000, timeout=60)
        begun = gateway.status()["uptime"]
        eventually(lambda: gateway.status()["uptime"] > begun + 6, timeout=60)
        assert "reader" in gateway.status()["absent"], "it is three times as long as its lease"
        batches.close()
        # And not for longer: nobody renews it any more.
        eventually(lambda: "reader" not in gateway.status()["absent"], timeout=60)


def test_a_gateway_that_has_ended_and_left_is_not_blamed_for_its_lease(readers: Readers) -> None:
    with Gateway(Numbers(5), ANYWHERE) as gateway:
        gateway.join(120)
        reader = readers(gateway, leaseSeconds=900)
        start = reader.initialOffset()  # With a short lease: Spark has not logged anything yet.
        end = reader.latestOffset(start, MANY)
    assert reader.latestOffset(end, MANY) is end
    reader.commit(end)
    with pytest.raises(GatewayUnreachable, match="no gateway answers at"):
        reader._logs.count_within(gateway.endpoint, 0, 5, 100)


# ---------------------------------------------------------------- whose place it is
def test_two_queries_with_one_subscription_are_told_so(readers: Readers) -> None:
    with Gateway(Numbers(1000), ANYWHERE) as gateway:
        gateway.join(120)
        one = readers(gateway, subscription="totals")
        here = one.latestOffset(one.initialOffset(), ReadMaxRows(100))
        other = readers(gateway, subscription="totals")
        there = other.latestOffset(other.initialOffset(), ReadMaxRows(500))
        other.commit(there)

        with pytest.raises(SharedSubscription, match=r'with option\("subscription", "totals"\).* of its own'):
            one.latestOffset(here, ReadMaxRows(100))


def test_two_queries_with_one_checkpoint_are_told_so(readers: Readers) -> None:
    with Gateway(Numbers(1000), ANYWHERE) as gateway:
        gateway.join(120)
        one, copy = readers(gateway), readers(gateway)
        start = one.initialOffset()
        end = one.latestOffset(start, ReadMaxRows(100))
        one.commit(start)
        copy.commit(copy.latestOffset(end, ReadMaxRows(500)))

        with pytest.raises(SharedSubscription, match="a query with a copy of its checkpoint is reading"):
            one.latestOffset(end, ReadMaxRows(100))


def test_a_query_alone_with_its_subscription_goes_on_for_as_long_as_it_likes(readers: Readers) -> None:
    with Gateway(Numbers(5000), ANYWHERE, journal=MemoryJournal(max_records=700)) as gateway:
        reader, here, seen = readers(gateway, subscription="totals", waitSeconds=30), None, 0
        here = reader.initialOffset()
        while seen < 5000:
            end = reader.latestOffset(here, ReadMaxRows(300))
            reader.commit(here)
            here, seen = end, end["offsets"][gateway.endpoint]


@pytest.mark.parametrize(
    ("starting", "first"), [(None, 600), ("earliest", 0), ("100", 100), ("900", 900), ("latest", 1000)]
)
def test_a_new_query_goes_on_with_a_subscription_unless_it_says_where_to_start(
    readers: Readers, caplog: pytest.LogCaptureFixture, starting: str | None, first: int
) -> None:
    with Gateway(Numbers(1000), ANYWHERE) as gateway:
        gateway.join(120)
        before = readers(gateway, subscription="totals")
        before.initialOffset()
        before.commit(before.latestOffset(before.initialOffset(), ReadMaxRows(600)))

        options = {} if starting is None else {"startingOffsets": starting}
        again = readers(gateway, subscription="totals", **options)
        assert again.initialOffset()["offsets"] == {gateway.endpoint: first}
        assert gateway.status()["absent"]["totals"]["acknowledged"] == first
        told = "knows the subscription 'totals': the query continues there, at offset 600"
        assert (told in caplog.text) == (starting is None), "the checkpoint may have been deleted by mistake"


def test_a_checkpoint_that_is_older_than_what_the_query_has_acknowledged_is_told(
    readers: Readers, caplog: pytest.LogCaptureFixture
) -> None:
    with Gateway(Numbers(1000), ANYWHERE) as gateway:
        gateway.join(120)
        before = readers(gateway)
        start = before.initialOffset()
        old = before.latestOffset(start, ReadMaxRows(100))
        new = before.latestOffset(old, ReadMaxRows(100))
        before.commit(new)
        told = r"before 200, and its checkpoint ends at 100: .*Put the .*\"subscription\", \"%s\"\) to .* 200"
        with pytest.raises(BadCheckpoint, match=told % start["name"]):
            readers(gateway).latestOffset(old, ReadMaxRows(100))
        assert readers(gateway).latestOffset(new, ReadMaxRows(100))["offsets"] == {gateway.endpoint: 300}

        willing = readers(gateway, failOnDataLoss="false")
        assert willing.latestOffset(old, ReadMaxRows(100))["offsets"] == {gateway.endpoint: 200}
        assert "its checkpoint ends at 100: files of the checkpoint were deleted" in caplog.text

        repeated = readers(gateway)  # A batch that is logged and not noted as done is read again.
        assert len(repeated.partitions(old, new)) > 0
        assert repeated.latestOffset(new, ReadMaxRows(100))["offsets"] == {gateway.endpoint: 300}


@pytest.mark.parametrize(
    ("starting", "seconds", "warned"),
    [
        ("earliest", -1.0, True),
        ("latest", -1.0, True),
        ("600", -1.0, False),  # Both begin with the same record.
        ("earliest", 3600.0, False),  # The other query may run.
    ],
)
def test_a_new_query_is_told_of_one_that_has_stopped_and_how_to_continue_it(
    readers: Readers,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    starting: str,
    seconds: float,
    warned: bool,
) -> None:
    monkeypatch.setattr("penstock.spark.source.gateway_logs._SILENT", seconds)
    with Gateway(Numbers(1000), ANYWHERE) as gateway, closing(LogReader(gateway.endpoint)) as log:
        gateway.join(120)
        before = readers(gateway)
        start = before.initialOffset()
        before.commit(before.latestOffset(start, ReadMaxRows(600)))
        log.state(name="spark-read-0", lease=60.0, acknowledge=100)  # A batch read,
        log.state(name="somebody", lease=60.0, acknowledge=100)  # and somebody else.

        readers(gateway, startingOffsets=starting).initialOffset()

        told = "keeps records from offset 600 on for a query that has been silent for"
        said = "\n".join(caplog.messages)
        assert (told in said) == warned
        remedy = f'another new checkpoint and option("subscription", "{start["name"]}") to continue where'
        assert (remedy in said) == warned
        continued = readers(gateway, subscription=start["name"]).initialOffset()
        assert continued["offsets"] == {gateway.endpoint: 600}


def test_a_lease_of_its_own_is_what_a_task_renews() -> None:
    with Gateway(Numbers(5), ANYWHERE) as gateway:
        gateway.join(120)
        options = SourceOptions.of({"endpoint": gateway.endpoint})
        reader = AquiferStreamReader(SCHEMA, options)
        name = reader.initialOffset()["name"]
        part = OffsetRange(gateway.endpoint, gateway.status()["epoch"], 0, 5, name)
        renew_lease(part, options, 7.0)
        assert gateway.status()["absent"][name]["lease_ms"] == 7000
        reader.stop()
