"""The two ends of a pipeline: whatever can be a source of a query, and whatever can be its sink.

What Spark cannot read or write by itself is put behind a gateway in this process, which Spark reads from or
writes to. Its journal lies with the checkpoint: a pipeline that is started again goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.aquifer import AquiferError, AquiferPublisher, Gateway, LogReader, SourceFailed, SqliteJournal
from penstock.spark.options import SourceOptions
from penstock.spark.queries import listen_address
from penstock.spec import Publisher, Subscriber, Subscription
from penstock.streams import Flux

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["PipelineSink", "PipelineSource"]

_log = logging.getLogger("penstock.spark")

_A_WEEK: Final = 7 * 24 * 3600.0
"""How long a pipeline that was stopped may be away before what is journalled for it may be forgotten."""
_LOOK: Final = 1.0
"""Seconds between questions to a gateway elsewhere: has its stream ended?"""
_GOODBYE: Final = 10.0
"""Seconds that a Subscriber may spend on the element that it has, before it is left behind."""


class PipelineSource:
    """Where the records come from: a Publisher, the endpoint of a gateway, or a file of lines."""

    def __init__(
        self,
        source: Publisher[Any] | Callable[[int], Publisher[Any]] | str,
        *,
        schema: str | None,
        codec: str | None,
        options: dict[str, str],
        host: str | None = None,
    ) -> None:
        self._schema = schema
        self._host = host
        self._codec = codec or ("bytes" if schema is None else "json")
        self._options = options
        self._endpoint: str | None = None
        self._file: Path | None = None
        self._source: Publisher[Any] | Callable[[int], Publisher[Any]] | None = None
        self._gateway: Gateway | None = None
        self._clients: dict[str, LogReader] = {}
        """To the gateways elsewhere, by endpoint."""
        self._ended: dict[str, str | None] = {}
        """Those that have nothing more to come, and why, if their source failed."""
        self._looked = 0.0
        if isinstance(source, str) and source.startswith("tcp://"):
            self._endpoint = source
        elif isinstance(source, str) and source.startswith("file:"):
            self._file = file = Path(source.removeprefix("file:").removeprefix("//"))
            self._codec = "text"
            self._source = lambda done: Flux.from_iterable(_lines(file, done))
        elif isinstance(source, str):
            raise ValueError(
                f"a source {source!r} is not known: give a Publisher, the endpoint of a gateway "
                "(tcp://127.0.0.1:5556) or a file of lines (file:readings.txt)"
            )
        elif isinstance(source, Publisher) or callable(source):
            self._source = source
        else:
            raise TypeError(
                f"Pipeline() needs a Publisher, a function that makes one, or a text, not {source!r}"
            )

    @property
    def is_elsewhere(self) -> bool:
        """Whether the records come from a gateway that is not ours."""
        return self._endpoint is not None

    def open(self, spark: SparkSession, folder: Path, closing: ExitStack) -> DataFrame:
        """The DataFrame of the records, and a gateway for them if need be."""
        reader = spark.readStream.format("aquifer")
        if self._endpoint is None:
            if self._file is not None and not self._file.is_file():
                raise FileNotFoundError(f"the source file:{self._file} is not there: check the path")
            address = listen_address(spark, self._host)
            journal = SqliteJournal(folder / "source.db")
            self._gateway = Gateway(self._source, journal=journal, codec=self._codec, **address._asdict())
            endpoint = closing.enter_context(self._gateway).endpoint
            reader = reader.option("leaseSeconds", f"{_A_WEEK:.0f}").option("waitSeconds", "0.2")
        else:
            endpoint = self._endpoint
            self._clients = self._ask_there(endpoint, closing)
        reader = reader.option("endpoint", endpoint).options(**self._options)
        if self._schema is not None:
            return reader.schema(self._schema).option("value", "json").load()
        return reader.option("value", "string" if self._codec == "text" else "binary").load()

    def _ask_there(self, endpoint: str, closing: ExitStack) -> dict[str, LogReader]:
        options = SourceOptions.of({**self._options, "endpoint": endpoint})
        clients = {}
        for each in options.endpoints:
            clients[each] = LogReader(each, patience=_LOOK, curve=options.curve_client())
            closing.callback(clients[each].close)
        return clients

    def has_ended(self, query: StreamingQuery) -> bool:
        """Whether nothing more will come; of a gateway elsewhere it is known about a second later."""
        if self._gateway is not None:
            return self._gateway.join(0)
        if time.monotonic() < self._looked + _LOOK:
            return False
        waiting = [endpoint for endpoint in self._clients if endpoint not in self._ended]
        for endpoint in waiting:
            try:
                state = self._clients[endpoint].state()
            except AquiferError:
                # It may have left between two looks. The query has had all of it and was told, then.
                if endpoint in _told_to(query):
                    self._ended[endpoint] = None
            else:
                if state.end is not None:
                    self._ended[endpoint] = state.failure
        self._looked = time.monotonic()
        return len(self._ended) == len(self._clients)

    @property
    def failure(self) -> SourceFailed | None:
        """Why it ended, if it did not complete."""
        failures = [self._gateway.failure] if self._gateway is not None else self._ended.values()
        text = next((failure for failure in failures if failure is not None), None)
        return None if text is None else SourceFailed(f"the source failed: {text}")


class PipelineSink:
    """Where the results go: a Subscriber, the endpoint of a gateway, a Spark format, or a function."""

    def __init__(
        self,
        sink: Subscriber[Any] | str | Callable[[DataFrame, int], None],
        options: dict[str, str],
        host: str | None = None,
    ) -> None:
        if not isinstance(sink, str | Subscriber) and not callable(sink):
            raise TypeError(f"into() needs a Subscriber, a text or a function, not {sink!r}")
        if isinstance(sink, str) and "://" in sink and not sink.startswith("tcp://"):
            raise ValueError(
                f"a sink {sink!r} is not known: give the endpoint of a gateway (tcp://127.0.0.1:5556) or a "
                "format of Spark (parquet, with path=…)"
            )
        self._sink = sink
        self._options = options
        self._host = host
        self._gateway: Gateway | None = None
        self._customer: _Customer | None = None

    def open(self, results: DataFrame, folder: Path, closing: ExitStack) -> DataStreamWriter:
        """The writer of the results, and a gateway for them if need be."""
        writer, sink = results.writeStream, self._sink
        if isinstance(sink, str) and sink.startswith("tcp://"):
            return writer.format("aquifer").option("endpoint", sink).options(**self._options)
        if isinstance(sink, str):
            return writer.format(sink).options(**self._options)
        if not isinstance(sink, Subscriber):
            return writer.foreachBatch(sink)
        address = listen_address(results.sparkSession, self._host)
        self._journal = SqliteJournal(folder / "sink.db")
        self._gateway = Gateway(None, journal=self._journal, writable=True, **address._asdict())
        endpoint = closing.enter_context(self._gateway).endpoint
        self._customer = _Customer(sink)
        closing.callback(self._customer.leave)
        # A name that lasts: after a restart the Subscriber gets what it has not had.
        AquiferPublisher(endpoint, id="pipeline", codec="json", lease=_A_WEEK).subscribe(self._customer)
        # A Subscriber may take as long as it likes.
        writer = writer.format("aquifer").option("timeoutSeconds", "31536000").options(**self._options)
        return writer.option("endpoint", endpoint)

    @property
    def has_left(self) -> bool:
        """Whether the Subscriber wants no more."""
        return self._customer is not None and self._customer.left.is_set()

    @property
    def failure(self) -> BaseException | None:
        """What the Subscriber has raised, if it has."""
        return self._customer.raised if self._customer is not None else None

    def lift_bounds(self) -> None:
        """Take what the query has in hand, though there may be no room for it, so that it can be stopped.

        A batch that waits for room cannot be interrupted: Spark would wait with it for as long as the
        Subscriber asks for nothing.
        """
        if self._gateway is not None:
            self._journal.max_records = self._journal.max_bytes = 2**62

    def finish(self, failure: BaseException | None) -> None:
        """Nothing more will come: the Subscriber is told so after everything that did."""
        if self._gateway is not None and self._customer is not None:
            self._customer.failure = failure
            self._gateway.complete(failure)

    def is_finished(self, wait: float) -> bool:
        """Whether the Subscriber, if it is one, has everything; wait that many seconds for it."""
        return self._customer is None or self._customer.left.wait(wait)


class _Customer:
    """Stands between a gateway and the Subscriber at the end, to know when that has everything or leaves."""

    def __init__(self, subscriber: Subscriber[Any]) -> None:
        self.failure: BaseException | None = None
        """What to tell in the place of an error that has travelled."""
        self.raised: BaseException | None = None
        """What the Subscriber raised, which ends the pipeline."""
        self.left = threading.Event()
        """It has got the end, or wanted no more."""
        self._subscriber = subscriber
        self._subscription: Any = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = subscription
        with self._noting_what_it_raises():
            self._subscriber.on_subscribe(self)

    def on_next(self, element: Any, /) -> None:
        with self._noting_what_it_raises():
            self._subscriber.on_next(element)

    def on_error(self, error: BaseException, /) -> None:
        travelled = isinstance(error, SourceFailed) and self.failure is not None
        try:
            with self._noting_what_it_raises():
                self._subscriber.on_error(self.failure if travelled and self.failure is not None else error)
        finally:
            self.left.set()

    def on_complete(self) -> None:
        try:
            with self._noting_what_it_raises():
                self._subscriber.on_complete()
        finally:
            self.left.set()

    @contextmanager
    def _noting_what_it_raises(self) -> Iterator[None]:
        """§2.13: the subscription counts as cancelled. The element was not dealt with, and can come again."""
        try:
            yield
        except BaseException as error:
            self.raised = self.raised or error
            self.left.set()
            raise

    def request(self, n: int, /) -> None:
        self._subscription.request(n)

    def cancel(self) -> None:
        self._subscription.cancel()
        self.left.set()

    def leave(self) -> None:
        """Go before the gateway closes: what was delivered is acknowledged, and will not come again."""
        self._subscription.cancel()
        self._subscription.join(_GOODBYE)


def _told_to(query: StreamingQuery) -> list[str]:
    """The gateways of which the query has heard that their streams have ended."""
    last = query.lastProgress
    told: list[str] = []
    for source in last.sources if last is not None else []:
        with contextlib.suppress(ValueError):  # Another source than ours.
            report = json.loads(source.latestOffset or "{}")
            told += report.get("ended", []) if isinstance(report, dict) else []
    return told


def _lines(path: Path, done: int) -> Iterator[str]:
    """The lines of a file, without those that the journal has."""
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if not line.endswith(b"\n"):
                # The next run would take its rest for a line, if it is still being written.
                _log.warning("the last line of %s has no newline, so it may not be complete: left out", path)
            elif number >= done:
                yield line.rstrip(b"\r\n").decode()
