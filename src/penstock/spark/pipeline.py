"""A whole pipeline in one expression: source, query, sink."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from penstock.spark.ends import SinkEnd, SourceEnd
from penstock.spark.running import QueryFailed, reason_of
from penstock.spark.sessions import session
from penstock.spec import Publisher, Subscriber

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Pipeline", "Progress", "RunningPipeline"]

_log = logging.getLogger("penstock.spark")


@dataclass(frozen=True)
class Pipeline:
    """``Pipeline(source).through(lambda df: …).into(sink)``, then :meth:`start` or :meth:`run`.

    A *source* is a Publisher; a function that makes one from the number of records that are journalled
    already; the endpoint of a gateway, ``"tcp://127.0.0.1:5556"``; or a file of lines, ``"file:app.log"``.
    With a ``schema`` records are JSON objects, and become columns; without one there are the columns
    endpoint, offset, timestamp, key and value.

    A *sink* is a Subscriber, which gets each row as a dictionary; the endpoint of a gateway that can be
    written to; a format of Spark with its options, ``into("parquet", path="…")``; or a function of a
    DataFrame and the number of its batch.

    Everything in between is Spark's own: windows, watermarks, joins, state. With a ``checkpoint`` a pipeline
    that was stopped, or killed, goes on where it was, and every record has its effect exactly once.
    """

    source: Publisher[Any] | Callable[[int], Publisher[Any]] | str
    schema: str | None = None
    codec: str = "bytes"
    options: Mapping[str, str] | None = None
    """Options of the format ``aquifer``, for reading."""
    steps: tuple[Callable[[DataFrame], DataFrame], ...] = ()
    sink: Subscriber[Any] | str | Callable[[DataFrame, int], None] | None = None
    sink_options: Mapping[str, str] | None = None
    mode: str | None = None

    def through(self, step: Callable[[DataFrame], DataFrame]) -> Pipeline:
        """Then this: a function from DataFrame to DataFrame. May be called several times."""
        if not callable(step):
            raise TypeError(f"through() needs a function of a DataFrame, not {step!r}")
        return replace(self, steps=(*self.steps, step))

    def into(
        self,
        sink: Subscriber[Any] | str | Callable[[DataFrame, int], None],
        *,
        mode: str | None = None,
        **options: object,
    ) -> Pipeline:
        """And there it goes. ``mode`` is Spark's output mode: append, update or complete."""
        texts = {name: _text(value) for name, value in options.items()}
        SinkEnd(sink, texts)  # Wrong things are refused where they are written.
        return replace(self, sink=sink, sink_options=texts, mode=mode)

    def start(
        self,
        *,
        spark: SparkSession | None = None,
        checkpoint: str | Path | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> RunningPipeline:
        """Start. ``trigger`` is Spark's: ``{"availableNow": True}``, ``{"processingTime": "5 seconds"}``."""
        if self.sink is None:
            raise ValueError("a pipeline needs a sink: .into(…)")
        if checkpoint is None:
            folder = Path(mkdtemp(prefix="penstock-pipeline-"))
            _log.warning("no checkpoint was named: %s is used, and a restart will begin anew", folder)
        else:
            folder = Path(checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        closing = ExitStack()
        try:
            spark = spark or session()
            start = SourceEnd(
                self.source, schema=self.schema, codec=self.codec, options=dict(self.options or {})
            )
            results = start.open(spark, folder, closing)
            for step in self.steps:
                results = step(results)
            end = SinkEnd(self.sink, dict(self.sink_options or {}))
            writer = end.open(results, folder, closing)
            if self.mode is not None:
                writer = writer.outputMode(self.mode)
            if trigger:
                writer = writer.trigger(**trigger)
            query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        except BaseException:
            closing.close()
            raise
        return RunningPipeline(query, closing, start, end)

    def run(self, **how: Any) -> None:
        """:meth:`start` it, and wait for its end; Ctrl-C stops it cleanly."""
        with self.start(**how) as running:
            running.wait()


@dataclass(frozen=True, slots=True)
class Progress:
    """How a pipeline is doing."""

    batch: int
    records: int
    """In all batches so far."""
    records_per_second: float
    batch_seconds: float
    lag: int
    """Records that are in the source's log and not in a batch yet."""


class RunningPipeline:
    """A pipeline that runs; a context manager that stops it."""

    def __init__(self, query: StreamingQuery, closing: ExitStack, source: SourceEnd, sink: SinkEnd) -> None:
        self.query = query
        self._closing = closing
        self._source = source
        self._sink = sink
        self._records = 0
        self._seen = -1
        self._stopped = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended, or the source has and everything is dealt with.

        Returns False if the time is over first; raises :class:`~penstock.spark.QueryFailed` if it failed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.query.isActive:
            if self._source.gateway is not None and self._source.gateway.join(0):
                self.query.processAllAvailable()
                break
            left = 0.2 if deadline is None else min(0.2, deadline - time.monotonic())
            if left <= 0:
                return False
            self._stopped.wait(left)
            if self._stopped.is_set():
                break
        failure = self.query.exception()
        if failure is not None:
            raise QueryFailed(reason_of(failure))
        return True

    def progress(self) -> Progress | None:
        """The latest figures, if a batch has run."""
        recent = [progress for progress in self.query.recentProgress if progress.batchId > self._seen]
        for progress in recent:
            self._seen = max(self._seen, progress.batchId)
            self._records += progress.numInputRows
        last = self.query.lastProgress
        if last is None:
            return None
        return Progress(
            batch=last.batchId,
            records=self._records,
            records_per_second=last.processedRowsPerSecond,
            batch_seconds=last.batchDuration / 1000,
            lag=self._lag(last),
        )

    @staticmethod
    def _lag(progress: Any) -> int:
        import json

        lag = 0
        for source in progress.sources:
            try:
                heads, ends = json.loads(source.latestOffset or "{}"), json.loads(source.endOffset or "{}")
            except ValueError:
                continue
            for endpoint, head in heads.get("offsets", {}).items():
                lag += max(head - ends.get("offsets", {}).get(endpoint, head), 0)
        return lag

    def stop(self) -> None:
        """Stop the query, then the gateways. May be called again."""
        self._stopped.set()
        if self.query.isActive:
            self.query.stop()
        self._closing.close()

    def __enter__(self) -> RunningPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
