"""The two ends of a pipeline: whatever can be a source of a query, and whatever can be its sink.

What Spark cannot read or write by itself is put behind a gateway in this process, which Spark reads from or
writes to. Its journal lies with the checkpoint: a pipeline that is started again goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.aquifer import AquiferPublisher, Gateway, SqliteJournal
from penstock.spec import Publisher, Subscriber
from penstock.streams import Flux

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["SinkEnd", "SourceEnd"]

_ANYWHERE = "tcp://127.0.0.1:0"


class SourceEnd:
    """Where the records come from: a Publisher, the endpoint of a gateway, or a file of lines."""

    def __init__(
        self,
        source: Publisher[Any] | Callable[[int], Publisher[Any]] | str,
        *,
        schema: str | None,
        codec: str,
        options: dict[str, str],
    ) -> None:
        self._schema = schema
        self._codec = codec
        self._options = options
        self._endpoint: str | None = None
        self._source: Publisher[Any] | Callable[[int], Publisher[Any]] | None = None
        self.gateway: Gateway | None = None
        """The gateway in this process, if there is one."""
        if isinstance(source, str) and source.startswith("tcp://"):
            self._endpoint = source
        elif isinstance(source, str) and source.startswith("file:"):
            path = Path(source.removeprefix("file:").removeprefix("//"))
            self._codec = "text" if schema is None else codec
            self._source = lambda done: Flux.from_iterable(_lines(path, done))
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

    def open(self, spark: SparkSession, folder: Path, closing: ExitStack) -> DataFrame:
        """The DataFrame of the records, and a gateway for them if need be."""
        endpoint = self._endpoint
        if endpoint is None:
            assert self._source is not None
            journal = SqliteJournal(folder / "source.db")
            codec = "json" if self._schema is not None and self._codec == "bytes" else self._codec
            self.gateway = Gateway(self._source, _ANYWHERE, journal=journal, codec=codec)
            endpoint = closing.enter_context(self.gateway).endpoint
        reader = spark.readStream.format("aquifer").option("endpoint", endpoint).options(**self._options)
        if self._schema is not None:
            return reader.schema(self._schema).option("value", "json").load()
        return reader.option("value", "string" if self._codec == "text" else "binary").load()


class SinkEnd:
    """Where the results go: a Subscriber, the endpoint of a gateway, a Spark format, or a function."""

    def __init__(
        self, sink: Subscriber[Any] | str | Callable[[DataFrame, int], None], options: dict[str, str]
    ) -> None:
        if not isinstance(sink, str | Subscriber) and not callable(sink):
            raise TypeError(f"into() needs a Subscriber, a text or a function, not {sink!r}")
        self._sink = sink
        self._options = options
        self.gateway: Gateway | None = None

    def open(self, results: DataFrame, folder: Path, closing: ExitStack) -> DataStreamWriter:
        """The writer of the results, and a gateway for them if need be."""
        writer, sink = results.writeStream, self._sink
        if isinstance(sink, str) and sink.startswith("tcp://"):
            return writer.format("aquifer").option("endpoint", sink).options(**self._options)
        if isinstance(sink, str):
            return writer.format(sink).options(**self._options)
        if not isinstance(sink, Subscriber):
            return writer.foreachBatch(sink)
        self.gateway = Gateway(None, _ANYWHERE, journal=SqliteJournal(folder / "sink.db"), writable=True)
        endpoint = closing.enter_context(self.gateway).endpoint
        # A name that lasts: after a restart the Subscriber gets what it has not had.
        AquiferPublisher(endpoint, id="pipeline", codec="json", lease=7 * 24 * 3600.0).subscribe(sink)
        return writer.format("aquifer").option("endpoint", endpoint).options(**self._options)


def _lines(path: Path, done: int) -> Iterator[str]:
    """The lines of a file, without those that the journal has."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number >= done:
                yield line.rstrip("\r\n")
