"""The streams that a feed with columns, or with dead letters, has made: Spark reads them as they are."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import httpx2
import pytest
from google.protobuf import descriptor_pb2

from penstock import feeds
from penstock.aquifer import Gateway, open_schema
from penstock.feeds import FeedOptions
from tests.spark.conftest import ANYWHERE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ORDERS = [{"id": number, "who": f"é{number}"} for number in range(5)]
JSON_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "who": {"type": "string"}},
    "required": ["id"],
}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}],
}


def descriptors() -> bytes:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=1)
    order.field.add(name="who", number=2, type=kinds.TYPE_STRING, label=1)
    written: bytes = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return written


def datum(order: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), order)
    return out.getvalue()


def posted(kind: str, folder: Path) -> tuple[str, str, list[bytes]]:
    """The codec of a feed, and what is posted to it: the type of the bodies, and the bodies."""
    if kind in ("JSON", "CSV"):
        (folder / "order.json").write_text(json.dumps(JSON_SCHEMA))
        codec = f"jsonschema:{folder / 'order.json'}"
        if kind == "JSON":
            return codec, "application/json", [json.dumps(ORDERS).encode()]
        rows = "".join(f"{order['id']},{order['who']}\n" for order in ORDERS)
        return codec, "text/csv", [f"id,who\n{rows}".encode()]
    if kind == "Avro":
        (folder / "order.avsc").write_text(json.dumps(AVRO))
        codec = f"avro:{folder / 'order.avsc'}"
        return codec, "application/octet-stream", [datum(order) for order in ORDERS]
    (folder / "shop.desc").write_bytes(descriptors())
    codec = f"protobuf:{folder / 'shop.desc'}"
    return codec, "application/octet-stream", [open_schema(codec).encode(order) for order in ORDERS]


@pytest.mark.parametrize("kind", ["JSON", "CSV", "Avro", "Protocol Buffers"])
def test_spark_gets_the_columns_that_the_gateway_has_built(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    codec, content_type, bodies = posted(kind, tmp_path)
    options = FeedOptions(codec=codec, columns=True)
    with (
        feeds.open("webhook+http://127.0.0.1:0/in", options) as feed,
        Gateway(feed, ANYWHERE, codec=options.stored_codec) as gateway,
        httpx2.Client(base_url=f"http://127.0.0.1:{feed.port}") as client,  # type: ignore[attr-defined]
    ):
        for body in bodies:
            client.post("/in", content=body, headers={"content-type": content_type}).raise_for_status()
        rows = (
            spark.read.format("aquifer")
            .option("endpoint", gateway.endpoint)
            .option("value", "arrow")
            .option("inferSchema", "true")
            .load()
        )
        assert rows.dtypes == [("id", "bigint"), ("who", "string")]
        assert [row.asDict() for row in rows.orderBy("id").collect()] == ORDERS


def test_spark_reads_the_dead_letters_of_a_gateway(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b'{"n": 1}\n{n: 2}\n{"n": 3}\n\xff\n')
    options = FeedOptions(codec="json", on_bad_line="dead-letter")
    with (
        feeds.open(f"file:{tmp_path / 'in'}", options) as feed,
        Gateway(feed, ANYWHERE, codec="json", on_bad_record=feed.on_bad_record) as gateway,
    ):
        assert gateway.join(120)
        letters = (
            spark.read.format("aquifer")
            .schema(
                "offset bigint, time timestamp, reason string, position string, text string, base64 string"
            )
            .option("endpoint", f"{gateway.endpoint}/dead-letters")
            .option("value", "json")
            .option("mode", "FAILFAST")
            .load()
            .orderBy("position")
            .collect()
        )
    shown = [(letter.offset, letter.position, letter.text, letter.base64) for letter in letters]
    assert shown == [(1, "line 2", "{n: 2}", None), (2, "line 4", None, "/w==")]
    assert all("JSON is malformed" in letter.reason and letter.time is not None for letter in letters)
