"""A whole pipeline in one expression: source, query, sink."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final

from penstock.aquifer import Endpoint
from penstock.arguments import a_function
from penstock.feeds import FeedOptions
from penstock.spark.checkpoints import check_whole
from penstock.spark.errors import BadCheckpoint, QueryFailed, is_from_spark, reason_of
from penstock.spark.pipeline_ends import PipelineSink, PipelineSource
from penstock.spark.pipeline_progress import Progress, ReportReader
from penstock.spark.queries import activate, process_everything
from penstock.spark.sessions import option_text, session
from penstock.spec import Publisher, Subscriber

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.aquifer import GatewayStatus

__all__ = ["Pipeline", "Progress", "RunningPipeline"]

_log = logging.getLogger("penstock.spark")

_LOOK: Final = 0.2
"""Seconds between checks of a running query."""
_CHECKPOINT: Final = "checkpoint"
"""Spark's part of the folder with the state of a pipeline."""
_STARTED: Final = "started"
"""An empty file beside it, from the first start on: without the checkpoint, that was not the first."""
_LAST_WORD: Final = 5.0
"""Seconds that a Subscriber has to receive the error of a failed query."""


@dataclass(frozen=True)
class Pipeline:
    """``Pipeline(source).through(lambda df: …).into(sink)``, then :meth:`start` or :meth:`run`.

    A *source* is one of

    * a Publisher;
    * a function that takes the number of records that the journal already has, and returns a Publisher of
      the rest;
    * the endpoint of a gateway, ``"tcp://127.0.0.1:5556"``;
    * the URL of a feed (:mod:`penstock.feeds`), such as a file of lines, ``"file:app.log"``; ``feed`` has its
      options: ``Pipeline("file:app.log", feed=FeedOptions(follow=True, codec="json"))``;
    * a feed that :func:`penstock.feeds.open` has opened, and that you close.

    With a ``schema``, records are objects, and their fields become columns: dictionaries from a Publisher,
    JSON from a feed or an endpoint. Without one, the columns are those of the codec's schema, as of
    ``"avro:orders.avsc"``, if it has one; otherwise they are endpoint, offset, timestamp, key and value.
    ``codec`` says what the records are: ``"bytes"``, ``"text"``, ``"json"``, ``"msgpack"``, ``"arrow"``, or
    with the file of a schema ``"jsonschema:FILE"``, ``"avro:FILE"`` or ``"protobuf:FILE"``. A feed has
    ``"text"`` by default.

    A *sink* is one of

    * a Subscriber, which receives each row as a dictionary; values of types that JSON lacks are strings;
    * the endpoint of a writable gateway;
    * a format of Spark with its options, ``into("parquet", path="…")``;
    * a function that takes a DataFrame and the number of its batch.

    Everything in between is Spark's own: windows, watermarks, joins, state. With a ``checkpoint``, a pipeline
    that was stopped or killed resumes where it was, and every record has its effect exactly once. For that
    the source has to resume, too: a file, an endpoint or a function can. The exception is a Subscriber: after
    a crash it receives again the elements that it had not acknowledged.
    """

    source: Publisher[Any] | Callable[[int], Publisher[Any]] | str
    schema: str | None = None
    codec: str | None = None
    options: Mapping[str, object] | None = None
    """Options of the format ``aquifer`` for reading."""
    steps: tuple[Callable[[DataFrame], DataFrame], ...] = ()
    sink: Subscriber[Any] | str | Callable[[DataFrame, int], None] | None = None
    sink_options: Mapping[str, str] | None = None
    mode: str | None = None
    host: str | None = None
    """An address of this machine that the executors of a cluster can reach. A source or a sink in this
    process listens there, without keys. Not needed with a ``local`` master."""
    feed: FeedOptions | None = None
    """How the feed is read whose URL is the source. ``tcp://`` is then the feed of this name."""

    def __post_init__(self) -> None:
        self._source_end()  # Raises here, where the mistake is.
        if self.host is not None and not Endpoint(self.host, 1).is_one_place:
            raise ValueError(
                f"host={self.host!r} stands for all addresses: give one that the executors can reach"
            )

    def _source_end(self) -> PipelineSource:
        options = {name: option_text(value) for name, value in (self.options or {}).items()}
        return PipelineSource(
            self.source,
            schema=self.schema,
            codec=self.codec,
            options=options,
            feed=self.feed,
            host=self.host,
        )

    def through(self, step: Callable[[DataFrame], DataFrame]) -> Pipeline:
        """Add a step, a function from DataFrame to DataFrame. Steps are applied in order."""
        return replace(self, steps=(*self.steps, a_function(step, "through()")))

    def into(
        self,
        sink: Subscriber[Any] | str | Callable[[DataFrame, int], None],
        *,
        mode: str | None = None,
        **options: object,
    ) -> Pipeline:
        """Set the sink. ``mode`` is Spark's output mode: append, update or complete."""
        texts = {name: option_text(value) for name, value in options.items()}
        PipelineSink(sink, texts)
        return replace(self, sink=sink, sink_options=texts, mode=mode)

    def start(
        self,
        *,
        spark: SparkSession | None = None,
        checkpoint: str | Path | None = None,
        trigger: Mapping[str, Any] | None = None,
        once: bool = False,
    ) -> RunningPipeline:
        """Start the query. ``trigger`` is Spark's: ``{"processingTime": "5 seconds"}``.

        With ``once``, a pipeline that reads from an endpoint ends when it has processed the records that the
        gateway has now. A source in this process is always read to its end.

        Raises :class:`~penstock.spark.QueryFailed` if Spark does not accept the query, and
        :class:`~penstock.spark.BadCheckpoint` if files of the checkpoint were deleted.
        """
        if self.sink is None:
            raise ValueError("a pipeline needs a sink: .into(…)")
        with ExitStack() as opened:
            folder = _folder(checkpoint, opened)
            spark = spark or session()
            activate(spark)
            start, end = self._source_end(), PipelineSink(self.sink, dict(self.sink_options or {}), self.host)
            if once and start.is_endpoint:
                trigger = {"availableNow": True}
            try:
                query = self._start_query(spark, folder, start, end, trigger, opened)
            except Exception as error:
                if not is_from_spark(error):
                    raise  # Not the query's fault: a missing file, or a journal in use.
                raise QueryFailed(reason_of(error)) from error
            return RunningPipeline(query, opened.pop_all(), start, end)

    def _start_query(
        self,
        spark: SparkSession,
        folder: Path,
        start: PipelineSource,
        end: PipelineSink,
        trigger: Mapping[str, Any] | None,
        opened: ExitStack,
    ) -> StreamingQuery:
        results = start.open(spark, folder, opened)
        for step in self.steps:
            results = _applied(step, results)
        writer = end.open(results, folder, opened)
        if self.mode is not None:
            writer = writer.outputMode(self.mode)
        if trigger:
            writer = writer.trigger(**trigger)
        query = writer.option("checkpointLocation", str(folder / _CHECKPOINT)).start()
        if _metadata(folder).exists():  # Not if the driver has another file system.
            (folder / _STARTED).touch()
        return query

    def run(self, **how: Any) -> None:
        """:meth:`start` the pipeline and wait for its end; Ctrl-C stops it cleanly."""
        with self.start(**how) as running:
            running.wait()


class RunningPipeline:
    """A running pipeline; as a context manager, it stops the pipeline at the end of the block.

    A thread watches the query. When the source has ended, the thread waits until the query has processed the
    rest, and then ends the sink.
    """

    def __init__(
        self, query: StreamingQuery, closing: ExitStack, source: PipelineSource, sink: PipelineSink
    ) -> None:
        """Made by :meth:`Pipeline.start`."""
        self.query = query
        self._closing = closing
        self._source = source
        self._sink = sink
        self._reports = ReportReader(query)
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._watcher = threading.Thread(target=self._watch, name="penstock-pipeline", daemon=True)
        self._watcher.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the source has ended and every record is processed, or the query was stopped.

        Returns False on a timeout. Raises :class:`~penstock.spark.QueryFailed` if the query failed,
        :class:`~penstock.aquifer.SourceFailed` if the source failed, and the error that a Subscriber raised.
        """
        if not self._ended.wait(timeout):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    # ---------------------------------------------------------------- the thread
    def _watch(self) -> None:
        try:
            self._watch_query()
            if not self._stopped.is_set() and self._sink.failure is not None:
                self._failure = self._sink.failure  # It came first, and stopped the query.
            if not self._stopped.is_set() and not self._sink.has_ended:
                self._end_sink()
                self._failure = self._failure or self._sink.failure
        finally:
            self._ended.set()

    def _watch_query(self) -> None:
        try:
            self._follow()
            if not self._stopped.is_set():
                self._failure = self._source.failure
        except BaseException as error:  # Whatever it is, wait() has to raise it.
            if not self._stopped.is_set():
                self._failure = error if isinstance(error, QueryFailed) else QueryFailed(reason_of(error))
                self._failure.__cause__ = None if error is self._failure else error

    def _follow(self) -> None:
        """Return when the query has ended, or has processed a source that has ended."""
        query, looks = self.query, 0
        while query.isActive and not self._stopped.wait(_LOOK) and not self._sink.has_ended:
            if self._source.has_ended(query):
                process_everything(query)
                break
            looks += 1
            if looks % 10 == 0:
                self.progress()  # Count in time: Spark remembers a hundred batches.
        failure = query.exception()
        if failure is not None:
            raise QueryFailed(reason_of(failure)) from failure
        self.progress()
        if self._sink.has_ended:
            self._sink.lift_bounds()
            query.stop()

    def _end_sink(self) -> None:
        self._sink.finish(self._failure)
        if self._failure is not None:
            self._sink.wait(_LAST_WORD)
            return
        while not self._stopped.is_set() and not self._sink.wait(_LOOK):
            pass

    # ---------------------------------------------------------------- figures
    def progress(self) -> Progress | None:
        """The latest figures; None before the first batch."""
        return self._reports.read()

    def looks(self) -> dict[str, Callable[[], GatewayStatus]]:
        """How to ask the gateways of this pipeline for their status, by endpoint; the source comes first.

        An observer sees the pipeline with them, whatever keys the gateways need::

            looks = running.looks()
            observer = Observer(*looks, looks=looks)
        """
        return {**self._source.looks(), **self._sink.looks()}

    @property
    def dead_letters(self) -> str | None:
        """Where the records are that the codec of a feed could not read: the endpoint of a stream.

        None if they are not kept. After the end of the pipeline they are in a file beside its checkpoint.
        """
        return self._source.dead_letters

    # ---------------------------------------------------------------- the end
    def stop(self) -> None:
        """Stop the query, then the gateways; idempotent.

        The gateways close their journals even if Spark is gone and the query cannot be stopped.
        """
        self._stopped.set()
        self._sink.lift_bounds()
        try:
            self.query.stop()
        finally:
            self._watcher.join()
            self._closing.close()

    def __enter__(self) -> RunningPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _StepFailed(QueryFailed):
    """A step of the pipeline raised, or did not return a DataFrame."""


def _applied(step: Callable[[DataFrame], DataFrame], results: DataFrame) -> DataFrame:
    try:
        applied = step(results)
    except Exception as error:
        raise _StepFailed(reason_of(error)) from error
    if not hasattr(applied, "writeStream"):
        name = getattr(step, "__name__", repr(step))
        raise _StepFailed(f"through({name}) must return a DataFrame, not {applied!r}")
    return applied


def _folder(checkpoint: str | Path | None, opened: ExitStack) -> Path:
    """The folder with the pipeline's state; without a checkpoint, one that is removed at the end."""
    if checkpoint is not None:
        folder = Path(checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / _STARTED).exists() and not _metadata(folder).exists():
            raise BadCheckpoint(
                f"a pipeline has run with {folder}, and the folder {_CHECKPOINT} in it is gone or not whole: "
                f"put it back, or remove all of {folder} to begin anew; then records that were processed "
                "before may take effect again"
            )
        check_whole(folder / _CHECKPOINT)
        return folder
    folder = Path(mkdtemp(prefix="penstock-pipeline-"))
    opened.callback(shutil.rmtree, folder, ignore_errors=True)
    _log.warning(
        "there is no checkpoint: %s is used and removed at the end, and a restart begins anew", folder
    )
    return folder


def _metadata(folder: Path) -> Path:
    """The first file of a checkpoint: Spark writes it when a query starts for the first time."""
    return folder / _CHECKPOINT / "metadata"
