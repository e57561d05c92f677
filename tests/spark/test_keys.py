"""``partitionBy=key``, ``includeMetadata`` and ``startingOffsets``: keys, and what is known about records."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from penstock.aquifer import Batch, Gateway, Record, RecordMetadata, pack_metadata, pack_values
from penstock.spark import BadOption, BadSchema, UnreadableRecord
from penstock.spark.data_source import AquiferDataSource
from penstock.spark.options import SourceOptions
from penstock.spark.source.batch_reader import AquiferBatchReader
from penstock.spark.source.columns import Columns
from penstock.spark.source.keys import KeyShare
from penstock.spark.source.readers import AquiferStreamReader
from penstock.spark.spark_interface import ReadAllAvailable
from penstock.streams import Flux

if TYPE_CHECKING:
    from tests.spark.conftest import Queries, Serve

KINDS = {"bigint": LongType(), "int": IntegerType(), "string": StringType(), "binary": BinaryType()}


def schema_of(ddl: str) -> StructType:
    """A schema of simple types; Spark's own parser needs a session."""
    fields = [field.split() for field in ddl.split(", ")]
    return StructType([StructField(name, KINDS[kind], not rest) for name, kind, *rest in fields])


KEYED = schema_of("endpoint string, offset bigint, key binary")
Serving = Callable[..., Gateway]


@pytest.fixture
def gateways() -> Iterator[Serving]:
    """Gateways with records that have keys, each batch on its own."""
    with ExitStack() as closing:

        def start(*keys: str | None) -> Gateway:
            records = [
                Record(b'{"n": %d}' % number, key=None if key is None else key.encode())
                for number, key in enumerate(keys)
            ]
            gateway = closing.enter_context(Gateway(Flux.from_iterable(records), "tcp://127.0.0.1:0"))
            assert gateway.join(60)
            return gateway

        yield start


def options(*gateways: Gateway, **given: object) -> SourceOptions:
    texts = {name: str(value) for name, value in given.items()}
    endpoints = ",".join(gateway.endpoint for gateway in gateways)
    return SourceOptions.of({"endpoint": endpoints, "waitSeconds": "0.1"} | texts)


# ---------------------------------------------------------------- partitionBy
KEYS = st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=40)


@given(keys=KEYS, shares=st.integers(1, 7), first=st.integers(0, 2**40))
def test_each_record_is_in_one_partition_and_each_key_as_well(
    keys: list[bytes | None], shares: int, first: int
) -> None:
    metadata = pack_metadata(RecordMetadata(0, keys if any(key is not None for key in keys) else None))
    batch = Batch(first, len(keys), pack_values([b"x"] * len(keys)), metadata)
    parts = [KeyShare(number, shares).of(batch) for number in range(shares)]
    assert sorted(number for part in parts for number in part) == list(range(len(keys)))
    assert all(part == sorted(part) for part in parts)
    for key in {key for key in keys if key is not None}:
        assert sum(any(keys[number] == key for number in part) for part in parts) == 1


def rows_by_partition(reader: Any, pieces: Any) -> list[list[dict[str, Any]]]:
    copy = pickle.loads(pickle.dumps(reader))
    return [
        [row for batch in copy.read(piece) for row in batch.to_pylist()]
        for piece in pickle.loads(pickle.dumps(list(pieces)))
    ]


def check(partitions: list[list[dict[str, Any]]], records: int, count: int) -> None:
    assert len(partitions) == count
    assert sum(map(len, partitions)) == records
    places = [{row["key"] for row in rows if row["key"] is not None} for rows in partitions]
    assert sum(map(len, places)) == len(set().union(*places)), "a key is in two partitions"
    assert sum(bool(place) for place in places) > 1
    for rows in partitions:
        for endpoint in {row["endpoint"] for row in rows}:
            offsets = [row["offset"] for row in rows if row["endpoint"] == endpoint]
            assert offsets == sorted(offsets)


def test_the_records_of_a_key_are_in_one_partition_also_from_several_gateways(gateways: Serving) -> None:
    one = gateways(*(f"k{number % 13}" for number in range(500)))
    other = gateways(*(f"k{number % 11}" for number in range(400)), None, None)
    given = options(one, other, partitionBy="key", partitions=2)
    batch = AquiferBatchReader(KEYED, given)
    check(rows_by_partition(batch, batch.partitions()), 902, 4)

    stream = AquiferStreamReader(KEYED, given)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    pieces = stream.partitions(start, end)
    fresh = AquiferStreamReader(KEYED, given)
    check(rows_by_partition(fresh, pieces), 902, 4)
    assert rows_by_partition(fresh, pieces) == rows_by_partition(fresh, stream.partitions(start, end))
    stream.stop()


def test_there_are_no_more_partitions_than_records(gateways: Serving) -> None:
    for name in ("partitions", "minPartitions"):
        wanted = {"partitionBy": "key", name: 10**6}
        reader = AquiferBatchReader(KEYED, options(gateways("a", "b", None), **wanted))
        pieces = reader.partitions()
        assert len(pieces) == 3
        assert sum(map(len, rows_by_partition(reader, pieces))) == 3


def test_wrong_records_count_for_the_partition_of_their_key() -> None:
    keys: list[bytes | None] = [b"a", b"b", b"a", b"b"]
    values = pack_values([b'{"n": 1}', b"{", b"[]", b'{"n": 4}'])
    batch = Batch(0, 4, values, pack_metadata(RecordMetadata(0, keys)))
    columns = Columns(schema_of("n bigint"), "json", mode="DROPMALFORMED")
    wrong: list[Any] = []
    assert columns.batch("here", batch, wrong, [0, 2]).to_pylist() == [{"n": 1}]
    assert [each.number for each in wrong] == [2]


def test_there_is_nothing_else_to_partition_by() -> None:
    with pytest.raises(BadOption, match="give one of key"):
        SourceOptions.of({"endpoint": "tcp://127.0.0.1:1", "partitionBy": "value"})


# ---------------------------------------------------------------- includeMetadata
def test_what_is_known_about_a_record_is_beside_its_fields(gateways: Serving) -> None:
    gateway = gateways("a", None, "c")
    schema = schema_of("offset bigint, n bigint, key binary, _corrupt_record string")
    given = options(gateway, value="json", includeMetadata="true")
    reader = AquiferBatchReader(schema, given)
    (rows,) = rows_by_partition(reader, reader.partitions())
    assert rows == [
        {"offset": 0, "n": 0, "key": b"a", "_corrupt_record": None},
        {"offset": 1, "n": 1, "key": None, "_corrupt_record": None},
        {"offset": 2, "n": 2, "key": b"c", "_corrupt_record": None},
    ]


def test_metadata_alone_are_there_for_wrong_records_as_well_unless_they_fail_the_query() -> None:
    batch = Batch(7, 2, pack_values([b"{", b"not JSON"]), pack_metadata(RecordMetadata(5, [b"a", None])))
    schema = schema_of("key binary, offset bigint NOT NULL")
    columns = Columns(schema, "json", mode="PERMISSIVE", include_metadata=True)
    assert columns.batch("here", batch).to_pylist() == [
        {"key": b"a", "offset": 7},
        {"key": None, "offset": 8},
    ]
    with pytest.raises(
        UnreadableRecord, match=r"record 8 of here .* with the schema key, offset: b'not JSON'"
    ):
        Columns(schema, "json", mode="FAILFAST", include_metadata=True).batch("here", batch)


def test_an_inferred_schema_has_the_columns_too(gateways: Serving) -> None:
    given = {"endpoint": gateways("a").endpoint, "value": "json", "inferSchema": "true"}
    schema = AquiferDataSource(given | {"includeMetadata": "true"}).schema()
    assert isinstance(schema, StructType)
    assert schema.names == ["endpoint", "offset", "timestamp", "key", "n"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("n bigint", "the schema has none of the columns: add some of endpoint string, offset bigint"),
        ("n bigint, offset int", "offset int does not fit"),
        ("n bigint, key binary NOT NULL", "a record may have no key; key binary NOT NULL does not fit"),
    ],
)
def test_metadata_columns_that_do_not_fit_are_refused(schema: str, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        Columns(schema_of(schema), "json", include_metadata=True)


def test_headers_are_refused_with_what_there_is_instead() -> None:
    with pytest.raises(BadOption, match="records have no headers; with includeMetadata"):
        SourceOptions.of({"endpoint": "tcp://127.0.0.1:1", "includeHeaders": "true"})


# ---------------------------------------------------------------- startingOffsets
HERE, THERE = "tcp://127.0.0.1:5556", "tcp://127.0.0.1:5557"


@pytest.mark.parametrize(
    ("endpoints", "given", "meant"),
    [
        (f"{HERE}/orders", 17, {f"{HERE}/orders": 17}),
        (f"{HERE},{THERE}", {HERE: 3, THERE: "latest"}, {HERE: 3, THERE: "latest"}),
        (f"{HERE},{THERE}", {HERE: -2, THERE: -1}, {HERE: "earliest", THERE: "latest"}),
        (f"{HERE}/a,{HERE}/b", {HERE: {"a": 3, "b": "Earliest"}}, {f"{HERE}/a": 3, f"{HERE}/b": "earliest"}),
        (f"{HERE},{HERE}/b", {HERE: {"": 1, "b": 2}}, {HERE: 1, f"{HERE}/b": 2}),
        (f"{HERE}/a,{THERE}", {f"{HERE}/a": 3, THERE: 4}, {f"{HERE}/a": 3, THERE: 4}),
    ],
)
def test_offsets_are_given_by_endpoint_and_stream(endpoints: str, given: object, meant: object) -> None:
    found = SourceOptions.of({"endpoint": endpoints, "startingOffsets": json.dumps(given)})
    assert found.starting == meant


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({HERE: 1}, f"give a JSON object with an offset for each endpoint: {HERE}/a, {HERE}/b"),
        ({HERE: {"a": 1, "c": 2}}, f"{HERE}/c is not read"),
        ({HERE: {"a": 1, "b": -3}}, "give earliest, latest, a number"),
        ({HERE: {"a": 1, "b": True}}, "give earliest, latest, a number"),
        ({"127.0.0.1": {"a": 1}}, "it has to start with tcp://"),
        ({f"{HERE}/a": {"b": 1}}, "the name of a stream"),
        ([1], "give earliest, latest, a number"),
        (-1, "give earliest, latest, a number"),
    ],
)
def test_offsets_for_something_else_are_refused(given: object, message: str) -> None:
    with pytest.raises(BadOption) as refused:
        SourceOptions.of({"endpoint": f"{HERE}/a,{HERE}/b", "startingOffsets": json.dumps(given)})
    assert message in str(refused.value)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_query_has_each_key_in_one_partition(queries: Queries, serve: Serve) -> None:
    from pyspark.sql.functions import spark_partition_id

    keys = [f"k{number % 17}" for number in range(3000)]
    gateway = serve([Record(b'{"n": %d}' % n, key=key.encode()) for n, key in enumerate(keys)])
    named = {"value": "json", "partitionBy": "key", "includeMetadata": "true", "partitions": 3}
    frame = queries.frame(gateway, "n bigint, key binary, offset bigint", **named)
    seen: list[Any] = []
    query = (
        frame.withColumn("partition", spark_partition_id())
        .writeStream.foreachBatch(lambda rows, batch: seen.extend(rows.collect()))
        .option("checkpointLocation", str(queries.folder / "keys"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(400)
    assert sorted(row.n for row in seen) == list(range(3000))
    assert len({(bytes(row.key), row.partition) for row in seen}) == 17
    assert len({row.partition for row in seen}) == 3
    for partition in range(3):
        offsets = [row.offset for row in seen if row.partition == partition]
        assert offsets == sorted(offsets)
