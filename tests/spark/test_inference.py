"""The schema of a log from a sample: the one that Spark's own reader of JSON finds, or a reason why not."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructType

from penstock.aquifer import Gateway
from penstock.spark import BadOption, BadSchema, UnreadableRecord
from penstock.spark.options import SourceOptions
from penstock.spark.source.columns import Columns
from penstock.spark.source.inference import SAMPLE, inferred_schema
from tests.spark.conftest import Queries, Serve, failure_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def inferred(gateway: Gateway, **options: str) -> StructType:
    return inferred_schema(SourceOptions.of({"endpoint": gateway.endpoint, "value": "json"} | options))


def test_messages_of_msgpack_have_bytes_and_times(serve: Serve) -> None:
    now = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)
    gateway = serve(
        [msgspec.msgpack.encode({"b": b"x", "t": now, "n": 1}), msgspec.msgpack.encode({"n": 1.5})]
    )

    assert inferred(gateway, value="msgpack").simpleString() == "struct<b:binary,n:double,t:timestamp>"


def test_a_log_of_arrow_has_a_schema_of_its_own(serve: Serve) -> None:
    batch = pa.record_batch({"y": pa.array([1], pa.int16()), "x": [["a"]]})
    gateway = serve([batch], codec="arrow")

    assert inferred(gateway, value="arrow").simpleString() == "struct<y:smallint,x:array<string>>"


def test_a_sample_is_the_beginning_of_what_would_be_read(serve: Serve) -> None:
    gateway = serve([b'{"a": 1}'] * SAMPLE + [b'{"b": 1}'] * 5)

    assert inferred(gateway).names == ["a"]
    assert inferred(gateway, startingOffsets="10").names == ["a", "b"]
    assert inferred(gateway, startingOffsets=str(SAMPLE)).names == ["b"]


def test_wrong_records_in_a_sample_come_to_what_the_mode_says(serve: Serve) -> None:
    gateway = serve([b'{"a": 1}', b"nonsense", b"[" * 100_000])

    assert (
        inferred(gateway, columnNameOfCorruptRecord="wrong").simpleString() == "struct<a:bigint,wrong:string>"
    )
    assert inferred(gateway, mode="DROPMALFORMED").simpleString() == "struct<a:bigint>"
    with pytest.raises(UnreadableRecord, match="no schema can be inferred"):
        inferred(gateway, mode="FAILFAST")


def test_nothing_to_infer_from_is_told(serve: Serve) -> None:
    for records in ([], [b"{}"]):
        with pytest.raises(
            BadSchema, match=r"there are no records at tcp.* from which to infer a schema: give one"
        ):
            inferred(serve(records))
    with pytest.raises(BadOption, match="has no names of columns"):
        inferred(serve([b"1,2"]), value="csv")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.floats() | st.text("abc", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(records=RECORDS)
def test_every_record_of_a_sample_fits_the_schema_that_is_inferred(records: list[dict[str, Any]]) -> None:
    from penstock.aquifer import Batch, RecordMetadata, pack_metadata, pack_values
    from penstock.spark.source.inference import _complete, _kind_of, _merged

    values = [json.dumps(record).encode() for record in records]
    kind = _kind_of({})
    for record in records:
        kind = _merged(kind, _kind_of(record))
    schema = _complete(kind)
    assert isinstance(schema, StructType)
    if not schema.fields:
        schema.add("a", StringType())

    Columns(schema, "json").batch(
        "e", Batch(0, len(values), pack_values(values), pack_metadata(RecordMetadata(0)))
    )


LINES = [
    b'{"b": 1, "a": null, "o": {"y": 1, "x": [1, 2.5]}, "l": [{"p": 1}, {"q": "x"}], "e": {}, "n": []}',
    b'{"b": 1.5, "m": 1, "o": {"x": []}, "l": [], "big": 12345678901234567890123, "mixed": 1}',
    b'{"m": "text", "l": [{"p": true}], "flag": true, "big": 1, "mixed": {"a": 1}}',
    b"nonsense",
]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_schema_and_the_rows_are_those_of_sparks_own_reader(
    spark: SparkSession, serve: Serve, queries: Queries
) -> None:
    gateway = serve(LINES)
    reader = spark.read.format("aquifer").option("endpoint", gateway.endpoint).option("partitions", "1")
    ours = reader.option("value", "json").option("inferSchema", "true").load()
    theirs = spark.read.json(spark.sparkContext.parallelize([line.decode() for line in LINES], 1))

    assert ours.schema == theirs.schema
    assert ours.collect() == theirs.collect()
    stream = queries.start(gateway, "a bigint", value="json", inferSchema="true")
    assert "a stream needs columns that stay the same" in failure_of(stream)
