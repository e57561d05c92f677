"""Pipeline: any source, Spark in the middle, any sink; stopped and started again it goes on where it was."""

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.aquifer import AquiferPublisher, SourceFailed, SqliteJournal
from penstock.spark import BadCheckpoint, Pipeline, QueryFailed
from penstock.streams import Flux
from tests.aquifer.faults.rigs import eventually
from tests.spark.collector import PATIENCE, Collector
from tests.spark.conftest import Serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

N = "n bigint"


def numbers(count: int) -> Flux[Any]:
    return Flux.range(count).map(lambda n: {"n": n})


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other test runs on this machine have pipelines, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def left_behind() -> list[str]:
    """Threads and folders of pipelines."""
    ours = ("penstock-pipeline", "penstock-gateway", "penstock-aquifer")
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith(ours)]
    return threads + glob.glob(os.path.join(tempfile.gettempdir(), "penstock-pipeline-*"))


def nothing_is_left_behind() -> None:
    """A pipeline waits some seconds for the thread of its Subscriber, and a busy machine may need more."""
    eventually(lambda: not left_behind(), "threads or folders of a pipeline stay", PATIENCE)


# -------------------------------------------------------------------- from where to where
def test_from_a_flux_into_a_subscriber_that_gets_rows_as_dictionaries(spark: SparkSession) -> None:
    seen = Collector()
    pipeline = (
        Pipeline(numbers(1000), schema=N, options={"partitions": "1"})
        .through(lambda df: df.where("n % 2 = 0"))
        .through(lambda df: df.selectExpr("n", "n * n AS square"))
        .into(seen)
    )

    with pipeline.start(spark=spark) as running:
        assert running.wait(PATIENCE)
        progress = running.progress()

    assert seen.elements == [{"n": n, "square": n * n} for n in range(0, 1000, 2)]
    assert seen.ended
    assert seen.error is None
    assert progress is not None
    assert (progress.records, progress.lag) == (1000, 0)
    assert not spark.streams.active
    nothing_is_left_behind()


def test_from_a_file_into_parquet(spark: SparkSession, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"n": n, "who": f"é{n}"}) + "\n" for n in range(100)))
    out = tmp_path / "out"

    Pipeline(f"file:{lines}", schema="n bigint, who string").into("parquet", path=out).run(
        spark=spark, checkpoint=tmp_path / "state"
    )

    rows = spark.read.parquet(str(out)).orderBy("n").collect()
    assert [(row.n, row.who) for row in rows] == [(n, f"é{n}") for n in range(100)]


def test_a_line_that_is_being_written_is_read_by_the_next_run(spark: SparkSession, tmp_path: Path) -> None:
    lines, seen = tmp_path / "lines.txt", []

    def keep(batch: DataFrame, number: int) -> None:
        seen.extend(row.value for row in batch.collect())

    pipeline = Pipeline(f"file:{lines}").into(keep)
    lines.write_text("one\ntw", encoding="utf-8")
    pipeline.run(spark=spark, checkpoint=tmp_path / "state")
    lines.write_text("one\ntwo\nthree\n", encoding="utf-8")
    pipeline.run(spark=spark, checkpoint=tmp_path / "state")

    assert seen == ["one", "two", "three"]


def test_from_lines_of_text_into_a_function_of_batches(spark: SparkSession, tmp_path: Path) -> None:
    lines, seen = tmp_path / "lines.txt", []
    lines.write_text("one\ntwo\n\nfour\n", encoding="utf-8")

    def keep(batch: DataFrame, number: int) -> None:
        seen.extend((row.offset, row.value) for row in batch.collect())

    Pipeline(f"file:{lines}").into(keep).run(spark=spark)

    assert sorted(seen) == [(0, "one"), (1, "two"), (2, ""), (3, "four")]


def test_from_a_gateway_into_another_until_the_first_one_ends(spark: SparkSession, serve: Serve) -> None:
    here = serve([{"n": n} for n in range(500)], codec="json")
    there = serve(None, writable=True)

    Pipeline(here.endpoint, schema=N, options={"partitions": "1"}).through(
        lambda df: df.selectExpr("-n AS n")
    ).into(there.endpoint).run(spark=spark)
    there.complete()

    assert list(AquiferPublisher(there.endpoint, codec="json").flux()) == [{"n": -n} for n in range(500)]


def test_once_deals_with_what_is_there_and_ends(spark: SparkSession, serve: Serve) -> None:
    never_ends = serve(Flux.from_iterable([{"n": 1}, {"n": 2}]).concat_with(Flux.never()), codec="json")
    taken = AquiferPublisher(never_ends.endpoint, stop=2).flux()
    assert len(list(taken)) == 2
    seen = Collector()

    with Pipeline(never_ends.endpoint, schema=N).into(seen).start(spark=spark, once=True) as running:
        assert running.wait(PATIENCE)

    assert sorted(row["n"] for row in seen.elements) == [1, 2]


def test_windows_and_watermarks_are_sparks_own(spark: SparkSession) -> None:
    seen = Collector()

    def readings() -> Iterator[dict[str, Any]]:
        for second in range(50):
            yield {"at": f"2026-01-01T00:00:{second:02}Z", "celsius": float(second)}
        yield {"at": "2026-01-01T00:10:00Z", "celsius": 0.0}
        seen.wait_for(5)
        # Later than the watermark allows: its window is closed, and stays as it was told.
        yield {"at": "2026-01-01T00:00:01Z", "celsius": 99.0}

    def averages(df: DataFrame) -> DataFrame:
        from pyspark.sql.functions import avg, window

        windows = df.withWatermark("at", "10 seconds").groupBy(window("at", "10 seconds"))
        return windows.agg(avg("celsius").alias("mean")).select("window.start", "mean")

    pipeline = Pipeline(Flux.from_iterable(readings()), schema="at timestamp, celsius double")
    pipeline.through(averages).into(seen, mode="append").run(spark=spark)

    assert sorted(row["mean"] for row in seen.elements) == [4.5, 14.5, 24.5, 34.5, 44.5]


# -------------------------------------------------------------------- again
def test_stopped_in_the_middle_and_started_again_every_record_comes_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    began_at: list[int] = []

    def source(done: int) -> Flux[Any]:
        began_at.append(done)
        return Flux.range(done, 3000 - done).map(lambda n: {"n": n})

    def pipeline(sink: Collector) -> Pipeline:
        options = {"maxRecordsPerTrigger": "200", "partitions": "1"}
        return Pipeline(source, schema=N, options=options).into(sink)

    first, second = Collector(demand=700), Collector()
    with pipeline(first).start(spark=spark, checkpoint=tmp_path / "state") as running:
        first.wait_for(700)
        assert not running.wait(0)
    nothing_is_left_behind()
    assert not first.ended
    with pipeline(second).start(spark=spark, checkpoint=tmp_path / "state") as running:
        assert running.wait(PATIENCE)

    assert [row["n"] for row in first.elements + second.elements] == list(range(3000))
    assert began_at[0] == 0
    assert began_at[1] > 0
    shutil.rmtree(tmp_path / "state" / "checkpoint")
    with pytest.raises(BadCheckpoint, match="put it back, or remove all of"):
        pipeline(Collector()).start(spark=spark, checkpoint=tmp_path / "state")


def test_a_subscriber_that_wants_no_more_ends_the_pipeline(spark: SparkSession) -> None:
    seen = Collector(demand=5)
    with Pipeline(numbers(10**9), schema=N).into(seen).start(spark=spark) as running:
        seen.wait_for(5)
        assert seen.subscription is not None
        seen.subscription.cancel()
        assert running.wait(PATIENCE)

    assert len(seen.elements) == 5
    assert not spark.streams.active


def test_it_can_be_stopped_while_a_batch_waits_for_a_subscriber_that_does_not_ask(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def source(done: int) -> Flux[Any]:
        return Flux.range(done, 2000 - done).map(lambda n: {"n": n})

    def pipeline(sink: Collector) -> Pipeline:
        options = {"maxRecordsPerTrigger": "150", "partitions": "1"}
        return Pipeline(source, schema=N, options=options).into(sink)

    first, second = Collector(demand=10), Collector()
    with monkeypatch.context() as patch:
        patch.setattr("penstock.spark.pipeline_ends.SqliteJournal", partial(SqliteJournal, max_records=400))
        with pipeline(first).start(spark=spark, checkpoint=tmp_path) as running:
            first.wait_for(10)
            sink = running._sink._gateway
            assert sink is not None
            deadline = time.monotonic() + PATIENCE
            # Two batches have found room, and the third one waits for it.
            while not (
                sink.status()["records"] >= 300 and sink._server.streams.default.transactions._pending
            ):
                assert time.monotonic() < deadline
                threading.Event().wait(0.05)
            began = time.monotonic()
        took = time.monotonic() - began
    pipeline(second).run(spark=spark, checkpoint=tmp_path)

    assert took < 300, "the query was not stopped: its batch may wait for room for a year"
    assert [row["n"] for row in first.elements + second.elements] == list(range(2000))


# -------------------------------------------------------------------- what can be wrong
def test_an_error_of_the_source_is_told_after_what_came_before_it(spark: SparkSession) -> None:
    seen = Collector()
    source = numbers(3).concat_with(Flux.error(OSError("the disk is gone")))

    with pytest.raises(SourceFailed, match="the source failed: OSError: the disk is gone"):
        Pipeline(source, schema=N, options={"partitions": "1"}).into(seen).run(spark=spark)

    assert [row["n"] for row in seen.elements] == [0, 1, 2]
    assert isinstance(seen.error, SourceFailed)


class Breaking(Collector):
    """Raises at one of its signals."""

    def __init__(self, error: BaseException, at: int | str) -> None:
        super().__init__()
        self._raised = error
        self._at = at

    def on_next(self, element: Any, /) -> None:
        if len(self.elements) == self._at:
            raise self._raised
        super().on_next(element)

    def on_complete(self) -> None:
        super().on_complete()
        if self._at == "end":
            raise self._raised


@pytest.mark.parametrize("error", [RuntimeError("the database is gone"), SystemExit(3)], ids=repr)
def test_a_sink_that_raises_ends_the_pipeline_with_that_error_and_gets_the_element_again(
    spark: SparkSession, tmp_path: Path, error: BaseException
) -> None:
    def pipeline(sink: Collector) -> Pipeline:
        source = lambda done: Flux.range(done, 3000 - done).map(lambda n: {"n": n})  # noqa: E731
        options = {"maxRecordsPerTrigger": "400", "partitions": "1"}
        return Pipeline(source, schema=N, options=options).into(sink)

    broken, mended = Breaking(error, at=500), Collector()
    with pipeline(broken).start(spark=spark, checkpoint=tmp_path) as running:
        with pytest.raises(type(error)) as raised:
            running.wait(PATIENCE)
        assert not running.query.isActive
    assert raised.value is error
    assert broken.error is None, "a Subscriber that raises gets no more signals"
    nothing_is_left_behind()

    pipeline(mended).run(spark=spark, checkpoint=tmp_path)
    assert [row["n"] for row in broken.elements + mended.elements] == list(range(3000))


def test_a_sink_that_raises_at_the_end_fails_the_pipeline(spark: SparkSession) -> None:
    sink = Breaking(OSError("cannot flush"), at="end")
    with pytest.raises(OSError, match="cannot flush"):
        Pipeline(numbers(3), schema=N).into(sink).run(spark=spark)
    assert len(sink.elements) == 3


def broken_udf(df: DataFrame) -> DataFrame:
    from pyspark.sql.functions import udf

    @udf("bigint")
    def broken(n: int) -> int:
        raise ZeroDivisionError("not today")

    return df.select(broken("n").alias("n"))


def raising(df: DataFrame) -> DataFrame:
    raise KeyError("sensor")


def test_a_failing_batch_is_told_in_one_line_to_whoever_waits_and_to_the_sink(spark: SparkSession) -> None:
    seen = Collector()

    with pytest.raises(QueryFailed) as raised:
        Pipeline(numbers(3), schema=N).through(broken_udf).into(seen).run(spark=spark)

    assert str(raised.value) == "ZeroDivisionError: not today"
    assert seen.error is raised.value
    nothing_is_left_behind()


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        (Pipeline(numbers(3), schema=N).through(raising).into(print), "KeyError: 'sensor'"),
        (
            Pipeline(numbers(3), schema=N).through(lambda df: None).into(print),
            "must return a DataFrame, not",
        ),
        (Pipeline(numbers(3), schema=N).into("perquet"), "[DATA_SOURCE_NOT_FOUND]"),
        (Pipeline(numbers(3), schema="n nonsense").into(print), "[UNSUPPORTED_DATATYPE]"),
        (Pipeline(numbers(3), schema=N).into("parquet", path="/tmp/x", mode="complete"), "complete"),
    ],
    ids=["step", "no frame", "format", "schema", "mode"],
)
def test_a_query_that_cannot_start_says_why_in_one_line(
    spark: SparkSession, pipeline: Pipeline, reason: str
) -> None:
    with pytest.raises(QueryFailed) as raised:
        pipeline.start(spark=spark)

    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
    nothing_is_left_behind()


def test_wrong_ends_are_refused_where_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the source 'pulsar' is not known: give a Publisher"):
        Pipeline("pulsar")
    with pytest.raises(TypeError, match=r"Pipeline\(\) needs a Publisher"):
        Pipeline(42)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"into\(\) needs a Subscriber"):
        Pipeline(numbers(1)).into(42)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the sink 'ipc://x' is not known"):
        Pipeline(numbers(1)).into("ipc://x")
    with pytest.raises(TypeError, match=r"through\(\) needs a function"):
        Pipeline(numbers(1)).through("df")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"a pipeline needs a sink: \.into"):
        Pipeline(numbers(1)).start(checkpoint=tmp_path)


def test_a_checkpoint_that_was_deleted_is_told_before_anything_runs(tmp_path: Path) -> None:
    pipeline = Pipeline(numbers(1), schema=N).into("noop")
    (tmp_path / "started").touch()
    with pytest.raises(BadCheckpoint, match=r"the folder checkpoint in it is gone .*: put it back, or"):
        pipeline.start(checkpoint=tmp_path)


def test_a_file_that_is_not_there_is_told_at_once(spark: SparkSession) -> None:
    with pytest.raises(FileNotFoundError, match="the source file:/no/such is not there"):
        Pipeline("file:/no/such").into("noop").start(spark=spark)
    nothing_is_left_behind()


def test_stopping_again_does_no_harm(spark: SparkSession) -> None:
    # Spark's first report comes when a trigger has waited for records in vain.
    waits = {"waitSeconds": str(10 * PATIENCE)}
    running = Pipeline(Flux.never(), schema=N, options=waits).into("noop").start(spark=spark)
    assert running.progress() is None

    running.stop()
    running.stop()

    assert running.wait(0)
    nothing_is_left_behind()
