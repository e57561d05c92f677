"""Checkpoints of which something was deleted: nothing gets lost, and the error says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType

from penstock.aquifer import Gateway, LogReader, Producer
from penstock.spark import BadCheckpoint, DataLoss, reason_of
from penstock.spark.checkpoints import check_not_published, check_whole, note_planned
from penstock.spark.options import SinkOptions
from penstock.spark.sink import writers
from penstock.spark.stop_notices import QueryRun
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, eventually
from tests.spark.conftest import Queries, Serve, failure_of
from tests.spark.sinking import PATIENCE, Files, log_of, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN = QueryRun("a-query", "a-run")


@pytest.mark.parametrize(
    ("writer", "remedy"), [(None, "or start with a new one"), ("totals", "or use another writerId")]
)
@pytest.mark.parametrize("repeated", [True, False, None])
@pytest.mark.parametrize("published", [None, 5, 6])
def test_a_published_number_is_an_error_unless_the_batch_may_be_repeated(
    published: int | None, repeated: bool | None, writer: str | None, remedy: str
) -> None:
    # A program with a writerId may repeat a write by itself, so that the same number is no error there.
    error_from = 5 if repeated is False and writer is None else 6
    if published is None or repeated or published < error_from:
        check_not_published(5, published, repeated, "tcp://here:1", writer)
        return
    with pytest.raises(BadCheckpoint, match=f"has published batch {published} of .* batch 5 comes.*{remedy}"):
        check_not_published(5, published, repeated, "tcp://here:1", writer)


def test_the_sink_refuses_a_batch_that_the_gateway_would_take_for_published() -> None:
    with (
        Gateway(None, ANYWHERE, writable=True) as gateway,
        LogReader(gateway.endpoint) as log,
        Producer(gateway.endpoint, RUN.query) as producer,
    ):
        options = SinkOptions.of({"endpoint": gateway.endpoint})

        def commit(batch: int, repeated: bool | None, run: QueryRun | None = RUN) -> None:
            transaction = producer.transaction(batch)
            transaction.write([b"a record"])
            part = transaction.prepare()
            rows = writers.PreparedRows(RUN.query, part, run, transaction.published_before, repeated)
            writers._commit([rows], batch, options)

        for batch in range(3):
            commit(batch, repeated=False)
        commit(2, repeated=True)
        commit(0, repeated=None, run=None)  # A write that belongs to no query may repeat what it likes.
        for batch, repeated in ((2, False), (1, None)):
            with pytest.raises(BadCheckpoint, match="has published batch 2 of this query"):
                commit(batch, repeated)
        assert log.state().head == 3
        commit(3, repeated=False)
        assert log.state().head == 4


def test_a_sink_with_another_journal_is_told_or_continued(caplog: pytest.LogCaptureFixture) -> None:
    def written(gateway: Gateway, batch: int, *records: bytes, **options: str) -> list[bytes]:
        settings = SinkOptions.of({"endpoint": gateway.endpoint, **options})
        writer = writers.AquiferStreamWriter(StructType().add("n", "long"), settings)
        with Producer(gateway.endpoint, RUN.query) as producer:
            transaction = producer.transaction(batch)
            transaction.write(records)
            rows = writers.PreparedRows(RUN.query, transaction.prepare(), RUN, None, repeated=False)
        writer.commit([rows], batch)
        return log_of(gateway, codec="bytes")

    with Gateway(None, ANYWHERE, writable=True) as gateway:
        assert written(gateway, 0) == []
        assert written(gateway, 1) == [], "an empty batch is not missed"
        assert written(gateway, 2, b"2") == [b"2"]
    with Gateway(None, ANYWHERE, writable=True) as gateway:
        with pytest.raises(DataLoss) as told:
            written(gateway, 3, b"3")
        assert str(told.value) == (
            f"the gateway at {gateway.endpoint} has another journal than before, or an older copy of it: "
            "none of this query's batches is in its log, and batch 3 would follow. Put the journal back; or "
            "start the query with a new checkpoint, which writes everything again; or set "
            'option("failOnDataLoss", "false") to continue with this batch'
        )
        assert written(gateway, 3, b"3", failOnDataLoss="false") == [b"3"]
        assert "and 2 should be there: the gateway has another journal" in caplog.text
        assert written(gateway, 4) == [b"3"]
        with pytest.raises(DataLoss, match="last batch of this query in its log is 4, and batch 9 would fol"):
            written(gateway, 9, b"9")
        assert written(gateway, 5, b"5") == [b"3", b"5"]


class FakeLog:
    """A log of batches, in the form of Spark's own object in Java."""

    def __init__(self, last: int | None) -> None:
        self.last = last

    def getLatestBatchId(self) -> FakeLog:
        return self

    def isDefined(self) -> bool:
        return self.last is not None

    def get(self) -> int:
        assert self.last is not None
        return self.last


class FakeExecution:
    """A query that starts."""

    def __init__(self, planned: int | None, done: int | None) -> None:
        self.offsetLog: Callable[[], FakeLog] = lambda: FakeLog(planned)
        self.commitLog: Callable[[], FakeLog] = lambda: FakeLog(done)
        self.properties: dict[str, str] = {}

    def resolvedCheckpointRoot(self) -> str:
        return "file:/there"

    def setLocalProperty(self, name: str, value: str) -> None:
        self.properties[name] = value


@pytest.mark.parametrize(
    ("planned", "done", "noted", "warning"),
    [
        (None, None, "-1", None),
        (0, None, "0", None),
        (7, 6, "7", None),
        (7, 7, "7", None),
        (None, 7, "-1", "batch 7 is in its folder commits, and in offsets there is none. Put them back; or"),
        (3, 7, "3", "batch 7 is in its folder commits, and in offsets batch 3 is the last one. Put them"),
    ],
)
def test_the_driver_notes_what_is_planned_and_warns_if_more_is_done(
    caplog: pytest.LogCaptureFixture, planned: int | None, done: int | None, noted: str, warning: str | None
) -> None:
    query = FakeExecution(planned, done)
    note_planned(query, query)
    assert list(query.properties.values()) == [noted]
    assert (warning or "") in caplog.text
    assert ("files of the checkpoint file:/there were deleted" in caplog.text) == (warning is not None)


def test_a_folder_is_looked_at_in_the_same_way(tmp_path: Path) -> None:
    check_whole(tmp_path)
    for name in ("offsets/9", "offsets/10", "offsets/.10.crc", "commits/9"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    check_whole(tmp_path)
    shutil.rmtree(tmp_path / "offsets")
    with pytest.raises(BadCheckpoint, match="batch 9 is in its folder commits, and in offsets there is none"):
        check_whole(tmp_path)


# -------------------------------------------------------------------------------------------- with Spark
def tens(files: Files, *numbers: int) -> None:
    for ten in numbers:
        files.add({"n": 10 * ten + one} for one in range(10))


def numbers(gateway: Gateway) -> list[Any]:
    return [row["n"] for row in log_of(gateway)]


def acknowledged(gateway: Gateway) -> list[int]:
    return [cursor.acknowledged for cursor in gateway.status().saved.values()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_batch_is_refused_if_its_number_was_used_before_and_published_if_it_was_not(
    spark: SparkSession, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway, files = serve(None, writable=True, codec="json"), Files(tmp_path / "in", "n bigint")
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    tens(files, 0, 1)
    run(files.stream(spark), gateway, checkpoint)
    shutil.copytree(checkpoint, copy)
    shutil.rmtree(checkpoint / "commits")  # Spark repeats its last batch.
    tens(files, 2)
    run(files.stream(spark), gateway, checkpoint)
    assert numbers(gateway) == list(range(30))
    assert "were deleted" not in caplog.text

    tens(files, 3)
    # In the copy, batch 2 is the next one, and the gateway has it.
    with pytest.raises(StreamingQueryException) as old:
        run(files.stream(spark), gateway, copy)
    assert "BadCheckpoint: the gateway at" in reason_of(old.value)
    assert "has published batch 2 of this query, and batch 2 comes with new records" in reason_of(old.value)

    shutil.rmtree(checkpoint / "offsets")
    with pytest.raises(StreamingQueryException):  # Spark 4.3 has no words for it: "assertion failed".
        run(files.stream(spark), gateway, checkpoint)
    assert "batch 2 is in its folder commits, and in offsets there is none" in caplog.text

    shutil.rmtree(checkpoint / "commits")
    shutil.rmtree(checkpoint / "offsets", ignore_errors=True)
    with pytest.raises(StreamingQueryException) as lost:
        run(files.stream(spark), gateway, checkpoint)
    assert "has published batch 2 of this query, and batch 0 comes with new records" in reason_of(lost.value)
    assert numbers(gateway) == list(range(30))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_writer_id_is_not_used_again_with_a_new_checkpoint(
    spark: SparkSession, serve: Serve, tmp_path: Path
) -> None:
    gateway, files = serve(None, writable=True, codec="json"), Files(tmp_path / "in", "n bigint")
    tens(files, 0, 1)

    def write(frame: DataFrame, batch: int) -> None:
        writer = frame.write.format("aquifer").mode("append").option("endpoint", gateway.endpoint)
        writer.option("writerId", "totals").option("batchId", str(batch)).save()

    def copied(checkpoint: str) -> None:
        writer = files.stream(spark).writeStream.foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
        assert query.awaitTermination(PATIENCE)

    copied("one")
    with pytest.raises(StreamingQueryException, match="of the writerId 'totals', and batch 0 comes with new"):
        copied("another")
    assert numbers(gateway) == list(range(20))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_source_repeats_a_batch_that_is_not_noted_as_done_and_tells_that_its_checkpoint_is_an_older_copy(
    queries: Queries, serve: Serve, tmp_path: Path
) -> None:
    source, checkpoint = ByHand(), queries.folder / "checkpoint"
    gateway = serve(source)

    def read(*records: int) -> None:
        source.give(*(b"%d" % record for record in records))
        end = records[-1] + 1
        eventually(lambda: gateway.status()["head"] == end, "the records are not in the log", PATIENCE)
        query = queries.start(gateway)
        eventually(lambda: acknowledged(gateway) == [end], "nothing is acknowledged", PATIENCE)
        query.stop()

    read(*range(10))
    shutil.copytree(checkpoint, tmp_path / "copy")
    shutil.rmtree(checkpoint / "commits")
    read(*range(10, 20))
    assert queries.offsets == [*range(10), *range(10), *range(10, 20)]
    assert queries.ids == [0, 0, 1]

    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "copy", checkpoint)
    told = failure_of(queries.start(gateway))
    assert told.startswith("BadCheckpoint: this query has acknowledged the records of tcp://")
    assert "before 20, and its checkpoint ends at 10: files of the checkpoint were deleted" in told
