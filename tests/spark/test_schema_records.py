"""Records in Avro and Protocol Buffers: their columns, wrong ones by mode, and dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.aquifer import Batch, RecordMetadata, open_schema, pack_metadata, pack_values
from penstock.spark import BadOption, UnreadableRecord
from penstock.spark.source.columns import Columns, WrongRecord
from penstock.spark.source.metadata_columns import METADATA
from penstock.spark.source.schema_records import schema_of
from tests.spark.conftest import Queries, Serve
from tests.spark.sinking import log_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"]}],
    }
)
COLUMNS = StructType().add("id", LongType()).add("who", StringType())
HERE = "tcp://127.0.0.1:5556"


def batch_of(values: list[bytes]) -> Batch:
    return Batch(40, len(values), pack_values(values), pack_metadata(RecordMetadata(0)))


def read(
    values: list[bytes],
    mode: str = "FAILFAST",
    *,
    value: str = "avro",
    schema: str | None = AVRO,
    columns: StructType = COLUMNS,
    wrong: list[WrongRecord] | None = None,
) -> list[dict[str, Any]]:
    reader = Columns(columns, value, mode=mode, value_schema=schema)
    rows: list[dict[str, Any]] = reader.batch(HERE, batch_of(values), wrong).to_pylist()
    return rows


@pytest.fixture
def descriptors(tmp_path: Path) -> str:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=1)
    order.field.add(name="who", number=2, type=kinds.TYPE_STRING, label=1)
    (tmp_path / "shop.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return str(tmp_path / "shop.desc")


ORDERS = st.lists(
    st.fixed_dictionaries({"id": st.integers(-(2**63), 2**63 - 1), "who": st.none() | st.text(max_size=5)}),
    max_size=5,
)


@settings(max_examples=50, deadline=None)
@given(ORDERS)
def test_rows_are_what_was_encoded(orders: list[dict[str, Any]]) -> None:
    encode = open_schema(f"avro:{AVRO}").encode
    assert read([encode(order) for order in orders]) == orders


def test_messages_are_rows(descriptors: str) -> None:
    orders = [{"id": 1, "who": "me"}, {"id": 2, "who": ""}]
    encode = open_schema(f"protobuf:{descriptors}").encode
    assert read([encode(order) for order in orders], value="protobuf", schema=descriptors) == orders


def test_a_schema_without_one_of_the_query_gives_the_columns(descriptors: str) -> None:
    assert schema_of("avro", AVRO) == COLUMNS
    assert schema_of("protobuf", descriptors) == COLUMNS


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
def test_a_wrong_record_is_what_the_mode_says(mode: str) -> None:
    encode = open_schema(f"avro:{AVRO}").encode
    narrow = StructType().add("id", IntegerType())
    values = [encode({"id": 1, "who": "a"}), b"\xff", encode({"id": 2**40, "who": "b"})]
    if mode == "FAILFAST":
        with pytest.raises(UnreadableRecord, match=r"record 41 of tcp.* cannot be read as avro"):
            read(values, mode)
        return
    wrong: list[WrongRecord] = []
    rows = read(values, mode, columns=narrow, wrong=wrong)
    assert rows == ([{"id": 1}, {"id": None}, {"id": None}] if mode == "PERMISSIVE" else [{"id": 1}])
    assert [(each.number, each.value) for each in wrong] == [(1, values[1]), (2, values[2])]
    assert "not a datum of the schema" in wrong[0].reason


@pytest.mark.parametrize(
    ("value", "schema", "text"),
    [
        ("avro", None, 'say which schema, as in option."valueSchema", "orders.avsc"'),
        ("avro", "/nowhere.avsc", "cannot read /nowhere.avsc"),
        ("avro", '{"type": "no"}', "not an Avro schema"),
        ("protobuf", "/nowhere.desc", "cannot read"),
    ],
)
def test_a_wrong_schema_names_the_option(value: str, schema: str | None, text: str) -> None:
    with pytest.raises(BadOption, match=text):
        read([], value=value, schema=schema)


def test_a_field_that_is_not_in_a_column_asks_for_a_schema() -> None:
    union = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string"]}]}
    with pytest.raises(BadOption, match=r"union of several types.*give the query a schema"):
        schema_of("avro", json.dumps(union))


def test_metadata_are_columns_beside_those_of_the_schema(descriptors: str) -> None:
    columns = StructType().add("offset", LongType()).add("who", StringType()).add("key", BinaryType())
    for value, schema in (("avro", AVRO), ("protobuf", descriptors)):
        encoded = open_schema(f"{value}:{schema}").encode({"id": 1, "who": "me"})
        data = Batch(40, 2, pack_values([encoded, b"\xff"]), pack_metadata(RecordMetadata(0, [b"k", None])))
        reader = Columns(columns, value, mode="PERMISSIVE", include_metadata=True, value_schema=schema)

        assert reader.batch(HERE, data).to_pylist() == [
            {"offset": 40, "who": "me", "key": b"k"},
            {"offset": 41, "who": None, "key": None},
        ]
        assert schema_of(value, schema, include_metadata=True).names == [*METADATA, "id", "who"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_stream_of_both_has_columns_metadata_and_dead_letters(
    queries: Queries, serve: Serve, descriptors: str, tmp_path: Path
) -> None:
    letters = serve(None, writable=True, codec="json")
    options = {"includeMetadata": "true", "deadLetter": letters.endpoint, "maxRecordsPerTrigger": 20}
    frames = []
    for value, schema in (("avro", AVRO), ("protobuf", descriptors)):
        encode = open_schema(f"{value}:{schema}").encode
        values = [encode({"id": number, "who": value}) for number in range(50)]
        values[7] = b"\xff"
        frames.append(queries.frame(serve(values), value=value, valueSchema=schema, **options))
    both = frames[0].union(frames[1])
    assert both.columns == [*METADATA, "id", "who"]
    found: list[tuple[str, int, int]] = []

    def take(rows: DataFrame, _: int) -> None:
        found.extend((row.who, row.offset, row.id) for row in rows.collect())

    query = both.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    started = query.start()
    try:
        started.processAllAvailable()
    finally:
        started.stop()

    right = [number for number in range(50) if number != 7]
    assert sorted(found) == [(value, number, number) for value in ("avro", "protobuf") for number in right]
    assert [(letter["offset"], letter["base64"]) for letter in log_of(letters)] == [(7, "/w==")] * 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_gets_columns_and_wrong_records_are_dead_letters(spark: SparkSession, serve: Serve) -> None:
    from penstock.aquifer import AquiferPublisher

    encode = open_schema(f"avro:{AVRO}").encode
    values = [encode({"id": number, "who": "me"}) for number in range(50)]
    values[7] = b"\xff"
    gateway, letters = serve(values), serve(None, writable=True)
    rows = (
        spark.read.format("aquifer")
        .option("endpoint", gateway.endpoint)
        .option("value", "avro")
        .option("valueSchema", AVRO)
        .option("deadLetter", letters.endpoint)
        .load()
    )
    assert rows.schema == COLUMNS
    assert sorted(row.id for row in rows.collect()) == [number for number in range(50) if number != 7]
    (letter,) = AquiferPublisher(letters.endpoint, codec="json").flux().take(1)
    assert (letter["offset"], letter["base64"]) == (7, "/w==")


@pytest.mark.parametrize("kind", [TimestampType(), TimestampNTZType()])
def test_a_number_is_not_a_time_because_nobody_knows_its_unit(kind: DataType) -> None:
    order = open_schema(f"avro:{AVRO}").encode({"id": 1_700_000_000_000, "who": "me"})
    wrong: list[WrongRecord] = []
    rows = read([order], "PERMISSIVE", columns=StructType().add("id", kind), wrong=wrong)

    assert rows == [{"id": None}]
    assert "does not fit into" in wrong[0].reason
