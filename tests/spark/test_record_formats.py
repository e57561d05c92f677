"""What Spark reads is decided by the codec of a pipeline's source; what contradicts itself is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import DoubleType, LongType, StructType

from penstock import feeds
from penstock.feeds import FeedOptions
from penstock.spark import Pipeline
from penstock.spark.pipeline_ends import PipelineSource
from penstock.spark.record_formats import format_of
from penstock.streams import Flux

N = "n bigint"
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def avro(tmp_path: Path) -> str:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    return f"avro:{tmp_path / 'order.avsc'}"


# -------------------------------------------------------------------- what contradicts itself
@pytest.mark.parametrize(
    ("source", "given", "says"),
    [
        ("file:x", {"codec": "json", "feed": FeedOptions()}, "give the codec of a feed once"),
        (Flux.just(1), {"feed": FeedOptions()}, "is for the URL of a feed, and the source is not one"),
        (
            "tcp://127.0.0.1:5556",
            {"options": {"Endpoint": "tcp://127.0.0.1:1"}},
            "has an endpoint: give it as",
        ),
        ("file:x", {"codec": "yaml"}, "'yaml' is not a codec"),
        (
            "dir:x",
            {"feed": FeedOptions(format="parquet", columns=True)},
            "Spark has to know which; write Pipeline",
        ),
        (Flux.just(1), {"codec": "arrow"}, "Spark has to know which; write Pipeline"),
    ],
)
def test_what_contradicts_is_refused_where_it_is_written(source: Any, given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Pipeline(source, **given)


def test_an_open_feed_keeps_the_options_that_it_was_opened_with(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"1\n")
    with feeds.open(f"file:{tmp_path / 'in'}", FeedOptions(codec="json")) as feed:
        Pipeline(feed, codec="json")
        with pytest.raises(ValueError, match="was opened with the codec 'json'; leave the codec out"):
            Pipeline(feed, codec="text")
        with pytest.raises(ValueError, match=r"this feed is open; give the options to feeds\.open\(\)"):
            Pipeline(feed, feed=FeedOptions())
    with pytest.raises(TypeError, match=r"needs FeedOptions\(…\), not 'json'"):
        Pipeline("file:x", feed="json")  # type: ignore[arg-type]


def test_a_schema_that_no_column_can_hold_asks_for_columns(tmp_path: Path) -> None:
    (tmp_path / "any.json").write_text("{}")
    with pytest.raises(ValueError, match=r"give the pipeline columns: Pipeline\(…, schema=…\)"):
        Pipeline("file:x", codec=f"jsonschema:{tmp_path / 'any.json'}")


# -------------------------------------------------------------------- what Spark reads
def test_the_columns_of_a_query_are_those_of_the_codec(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "price": {"type": "number"}}}
    (tmp_path / "order.json").write_text(json.dumps(schema))
    codec = f"jsonschema:{tmp_path / 'order.json'}"
    columns = StructType().add("id", LongType()).add("price", DoubleType())

    for wanted, value in ((True, "arrow"), (False, "json")):
        found = format_of(codec, has_schema=False, columns=wanted)
        assert (found.options, found.schema()) == ({"value": value}, columns)
        assert format_of(codec, has_schema=True, columns=wanted).schema() is None


def read_options(source: Any, schema: str | None = None, **given: Any) -> dict[str, str]:
    given = {"codec": None, "options": {}, **given}
    return PipelineSource(source, schema=schema, **given)._format.options


@pytest.mark.parametrize(
    ("codec", "with_schema", "without"),
    [
        ("bytes", "json", "binary"),
        ("text", "json", "string"),
        ("json", "json", "string"),
        ("msgpack", "msgpack", "binary"),
    ],
)
def test_the_codec_decides_what_spark_reads(codec: str, with_schema: str, without: str) -> None:
    for source, given in (
        ("file:x", {"feed": FeedOptions(codec=codec)}),
        ("file:x", {"codec": codec}),
        ("tcp://127.0.0.1:5556", {"codec": codec}),
    ):
        assert read_options(source, N, **given) == {"value": with_schema}
        assert read_options(source, **given) == {"value": without}


def test_a_schema_of_the_codec_is_passed_on_without_the_header_of_a_registry(
    avro: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = tmp_path / "older file.avsc"
    older.write_text(json.dumps(AVRO))
    monkeypatch.chdir(tmp_path)

    assert read_options("file:x", codec="avro:order.avsc") == {
        "value": "avro",
        "valueSchema": str(tmp_path / "order.avsc"),
    }
    found = read_options("file:x", codec=f"{avro}?id=7&id=3=older%20file.avsc")
    assert found["valueSchema"] == f"{tmp_path / 'order.avsc'}?writer={tmp_path}/older+file.avsc"


def test_options_of_the_reader_come_before_what_the_codec_says() -> None:
    assert read_options("file:x", options={"VALUE": "binary"}) == {}


def test_a_tcp_url_is_a_gateway_unless_it_has_the_options_of_a_feed() -> None:
    given: dict[str, Any] = {"schema": None, "codec": None, "options": {}}
    assert PipelineSource("tcp://127.0.0.1:5556", **given).is_endpoint
    assert not PipelineSource("tcp://127.0.0.1:5556", feed=FeedOptions(), **given).is_endpoint
