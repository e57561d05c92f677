"""Conditions on offset, timestamp, key and endpoint that the source of a ``spark.read`` applies."""

from __future__ import annotations

import pickle
import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from penstock.aquifer import Batch, Gateway, Record, RecordMetadata, pack_metadata, pack_values
from penstock.spark import session, settings
from penstock.spark.data_source import AquiferDataSource
from penstock.spark.source.batch_reader import FilteringBatchReader
from penstock.spark.source.pushed_filters import conditions_in
from penstock.streams import Flux

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Serve

if not hasattr(datasource, "EqualTo"):
    pytest.skip("this version of Spark pushes no filters down", allow_module_level=True)

COMPARISONS = ("EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCHEMA = StructType(
    [
        StructField("endpoint", StringType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
    ]
)


def condition(kind: str, column: str, value: object) -> Any:
    return getattr(datasource, kind)((column,), value)


def holds(kind: str, found: Any, value: Any) -> bool:
    """What Spark makes of a condition."""
    return bool(
        {
            "EqualTo": found == value,
            "GreaterThan": found > value,
            "GreaterThanOrEqual": found >= value,
            "LessThan": found < value,
            "LessThanOrEqual": found <= value,
        }[kind]
    )


RECORDS = 30
KEYS = (b"a", b"b", None)
OFFSETS = st.tuples(st.sampled_from(COMPARISONS), st.just("offset"), st.integers(-3, RECORDS + 3))
TIMES = st.tuples(
    st.sampled_from(COMPARISONS),
    st.just("timestamp"),
    st.integers(-3, RECORDS + 3).map(lambda n: NOON + timedelta(seconds=n)),
)


@given(
    wanted=st.lists(OFFSETS | TIMES, max_size=4),
    keys=st.none() | st.sets(st.sampled_from([b"a", b"b", b"z"])),
)
def test_no_record_is_left_out_for_which_the_conditions_hold(
    wanted: list[tuple[str, str, Any]], keys: set[bytes] | None
) -> None:
    filters = [condition(*one) for one in wanted]
    if keys:
        filters.append(datasource.In(("key",), tuple(keys)))
    found = conditions_in(filters)
    # The times go up and down: nothing may rely on their order.
    seconds = [(number * 7) % RECORDS for number in range(RECORDS)]
    times = [int((NOON + timedelta(seconds=second)).timestamp() * 1e6) for second in seconds]
    record_keys = [KEYS[number % 3] for number in range(RECORDS)]
    metadata = pack_metadata(RecordMetadata(times[0], record_keys, times))
    batch = Batch(0, RECORDS, pack_values([b"x"] * RECORDS), metadata)
    first, stop = found.clipped("here", 0, RECORDS)
    kept = set(found.of(batch)) & set(range(first, stop))
    for number in range(RECORDS):
        values = {"offset": number, "timestamp": NOON + timedelta(seconds=seconds[number])}
        if all(holds(kind, values[column], value) for kind, column, value in wanted) and (
            not keys or record_keys[number] in keys
        ):
            assert number in kept


def test_what_is_not_understood_is_left_to_spark() -> None:
    filters = [
        datasource.Not(condition("EqualTo", "offset", 5)),
        datasource.IsNull(("key",)),
        condition("EqualTo", "offset", 1.5),
        condition("GreaterThan", "timestamp", NOON.replace(tzinfo=None)),
        condition("GreaterThan", "key", b"a"),
        datasource.EqualTo(("offset", "inner"), 3),
        condition("EqualTo", "value", b"x"),
        condition("GreaterThan", "timestamp", None),
        datasource.In(("timestamp",), None),  # type: ignore[arg-type]
    ]
    assert conditions_in(filters) == conditions_in([])


@pytest.fixture
def pushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the process that pushes filters down."""
    name = "pyspark.sql.worker.data_source_pushdown_filters"
    module: Any = ModuleType(name)
    module.deserializeVariant = str
    monkeypatch.setitem(sys.modules, name, module)


def read(options: dict[str, str], *filters: Any) -> list[dict[str, Any]]:
    reader = AquiferDataSource(options).reader(SCHEMA)
    assert isinstance(reader, FilteringBatchReader)
    assert list(reader.pushFilters(list(filters))) == list(filters), "Spark evaluates them as well"
    pieces = pickle.loads(pickle.dumps(list(reader.partitions())))
    copy = pickle.loads(pickle.dumps(reader))
    return [row for piece in pieces for batch in copy.read(piece) for row in batch.to_pylist()]


@pytest.mark.usefixtures("pushing")
def test_only_what_may_count_is_read() -> None:
    records = [
        Record(b"x", key=b"k%d" % (number % 5), timestamp=int((NOON.timestamp() + number) * 1e6))
        for number in range(100)
    ]
    with (
        Gateway(Flux.from_iterable(records), "tcp://127.0.0.1:0") as one,
        Gateway(Flux.from_iterable(records), "tcp://127.0.0.1:0") as other,
    ):
        assert one.join(60)
        assert other.join(60)
        options = {"endpoint": f"{one.endpoint},{other.endpoint}"}
        offsets = read(options, condition("GreaterThan", "offset", 95), condition("LessThan", "offset", 98))
        assert sorted(row["offset"] for row in offsets) == [95, 95, 96, 96, 97, 97, 98, 98]
        (row,) = read(
            options,
            condition("EqualTo", "endpoint", one.endpoint),
            condition("EqualTo", "key", b"k3"),
            condition("GreaterThanOrEqual", "timestamp", NOON + timedelta(seconds=95)),
        )
        assert (row["endpoint"], row["offset"]) == (one.endpoint, 98)
        assert read(options, condition("GreaterThan", "offset", 10**6)) == []
        everything = read(options | {"deadLetter": "tcp://127.0.0.1:1"}, condition("EqualTo", "offset", 5))
        assert len(everything) == 200, "each wrong record becomes a dead letter"
        assert (
            len(read(options | {"value": "json", "mode": "PERMISSIVE"}, condition("EqualTo", "offset", 5)))
            == 200
        )


@pytest.mark.usefixtures("pushing")
def test_a_warning_of_wrong_records_names_their_offset_if_the_gateway_sends_some_keys_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    records = [
        Record(b'{"n": 1}' if number < 7 else b"wrong", key=b"k%d" % (number % 2)) for number in range(10)
    ]
    with Gateway(Flux.from_iterable(records), "tcp://127.0.0.1:0") as gateway:
        assert gateway.join(60)
        options = {"endpoint": gateway.endpoint, "value": "json", "includeMetadata": "true"}
        reader = AquiferDataSource(options | {"mode": "DROPMALFORMED"}).reader(
            StructType().add("n", LongType()).add("key", BinaryType())
        )
        assert isinstance(reader, FilteringBatchReader)
        list(reader.pushFilters([condition("EqualTo", "key", b"k1")]))
        rows = [
            row for piece in reader.partitions() for batch in reader.read(piece) for row in batch.to_pylist()
        ]
    assert rows == [{"n": 1, "key": b"k1"}] * 3
    assert "2 of the records 0 to 9" in caplog.text
    assert "the first is record 7: " in caplog.text


def test_a_session_that_pushes_no_filters_down_gets_a_reader_that_accepts_none() -> None:
    reader = AquiferDataSource({"endpoint": "tcp://127.0.0.1:1"}).reader(SCHEMA)
    assert not isinstance(reader, FilteringBatchReader)
    assert settings()["spark.sql.python.filterPushdown.enabled"] == "true"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_query_reads_only_the_offsets_that_it_asks_for(spark: SparkSession, serve: Serve) -> None:
    assert session() is spark
    gateway = serve([b"{", *(b'{"n": %d}' % number for number in range(1, 50))])

    def frame() -> DataFrame:
        reader = spark.read.format("aquifer").schema("n bigint, offset bigint")
        reader = reader.options(value="json", includeMetadata="true", mode="FAILFAST")
        return reader.option("endpoint", gateway.endpoint).load()

    # The first record is wrong, so to read it would fail the query.
    assert [row.n for row in frame().where("offset >= 45 AND offset < 48").collect()] == [45, 46, 47]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        with pytest.raises(Exception, match=r"record 0 of .* cannot be read"):
            frame().where("offset >= 45").collect()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("zone", ["America/New_York", "UTC"])
def test_a_condition_may_have_a_time_that_python_cannot_represent(
    spark: SparkSession, serve: Serve, zone: str
) -> None:
    gateway = serve([b'{"until": "9999-12-31T23:59:59", "day": "2026-01-31"}', b'{"until": "2026-01-31"}'])
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        reader = spark.read.format("aquifer").schema("until timestamp, day date, timestamp timestamp")
        reader = reader.options(endpoint=gateway.endpoint, value="json", includeMetadata="true")
        frame = reader.load()
        found = [
            frame.where(condition).count()
            for condition in (
                "until = timestamp'9999-12-31 23:59:59'",
                "until IN (timestamp'9999-12-31 23:59:59', timestamp'+10001-01-01 00:00:00')",
                "timestamp < timestamp'+10001-01-01 00:00:00'",
                "timestamp > timestamp'0000-01-01 00:00:00'",
                "day < date'+10001-01-01'",
            )
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert found == [1, 1, 2, 2, 1]
