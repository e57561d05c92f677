"""A feed is the same thing for a pipeline as for a gateway: its options, its codecs, and its bad records."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import feeds
from penstock.aquifer import AquiferPublisher
from penstock.feeds import FeedOptions
from penstock.spark import Pipeline
from tests.spark.collector import PATIENCE, Collector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

N = "n bigint"


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines without a checkpoint make folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


class Rows:
    """Keeps the rows of all batches."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.rows += batch.collect()


def test_a_file_that_grows_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    lines, seen = tmp_path / "lines.jsonl", Collector()
    lines.write_text('{"n": 1}\n{"n": 2}\n')
    options = FeedOptions(follow=True, codec="json")

    with Pipeline(f"file:{lines}", schema=N, feed=options).into(seen).start(spark=spark) as running:
        seen.wait_for(2)
        with lines.open("a") as more:
            more.write('{"n": 3}\n')
        seen.wait_for(3)
        assert not running.wait(0)

    assert sorted(row["n"] for row in seen.elements) == [1, 2, 3]


def test_bytes_that_are_not_text_do_not_end_the_query(spark: SparkSession, tmp_path: Path) -> None:
    lines, text, raw = tmp_path / "lines", Rows(), Rows()
    lines.write_bytes(b"one\n\xff\xfe\nthree\n")

    with Pipeline(f"file:{lines}").into(text).start(spark=spark, checkpoint=tmp_path / "s") as running:
        assert running.wait(PATIENCE)
        assert running.dead_letters is not None
        letters = list(AquiferPublisher(running.dead_letters, codec="json").flux())
    Pipeline(f"file:{lines}", feed=FeedOptions()).into(raw).run(spark=spark)

    assert sorted(row.value for row in text.rows) == ["one", "three"]
    assert [(letter["position"], letter["base64"]) for letter in letters] == [("line 2", "//4=")]
    assert (tmp_path / "s" / "source.db.dead-letters").exists(), "they outlive the pipeline"
    assert sorted(bytes(row.value) for row in raw.rows) == [b"one", b"three", b"\xff\xfe"]


def test_a_dead_letter_that_was_mended_reaches_the_query(spark: SparkSession, tmp_path: Path) -> None:
    lines, seen = tmp_path / "lines.jsonl", Collector()
    lines.write_text('{"n": 1}\n{n: 2}\n{"n": 3}\n')
    options = FeedOptions(codec="json", on_bad_line="dead-letter", follow=True)

    with Pipeline(f"file:{lines}", schema=N, feed=options).into(seen).start(spark=spark) as running:
        seen.wait_for(2)
        assert running.dead_letters is not None
        assert sorted(row["n"] for row in seen.elements) == [1, 3]
        feeds.replay(running.dead_letters, lambda letter: letter.value.replace(b"n", b'"n"'))
        seen.wait_for(3)

    assert sorted(row["n"] for row in seen.elements) == [1, 2, 3]


def test_an_open_feed_skips_what_it_was_told_to_skip(spark: SparkSession, tmp_path: Path) -> None:
    lines, seen = tmp_path / "lines.jsonl", Rows()
    lines.write_text('{"n": 1}\n{n: 2}\n{"n": 3}\n')
    options = FeedOptions(codec="json", on_bad_line="skip")

    with feeds.open(f"file:{lines}", options) as feed:
        with Pipeline(feed, schema=N).into(seen).start(spark=spark) as running:
            assert running.wait(PATIENCE)
            assert running.dead_letters is None
        assert feed.skipped == 1

    assert sorted(row.n for row in seen.rows) == [1, 3]


def test_rows_of_csv_have_the_columns_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "price": {"type": "number"}}}
    (tmp_path / "order.json").write_text(json.dumps(schema))
    lines, seen = tmp_path / "orders.csv", Rows()
    lines.write_text("id,price\n1,2.5\nx,1\n2,4\n")
    options = FeedOptions(codec=f"jsonschema:{tmp_path / 'order.json'}", format="csv", columns=True)

    Pipeline(f"file:{lines}", feed=options).into(seen).run(spark=spark)

    assert sorted((row.id, row.price) for row in seen.rows) == [(1, 2.5), (2, 4.0)]
