"""What the tests of the sink have in common: streams out of files, and the log of a gateway as a list."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.aquifer import AquiferPublisher, Gateway, LogReader
from tests.aquifer.faults.processes import GatewayProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Somewhere: TypeAlias = Gateway | GatewayProcess
"""Who has an ``endpoint``."""

PATIENCE = 400
"""Seconds that a query may take on a machine with much else to do."""


class Files:
    """A folder that a query reads as a stream: one file, one batch."""

    def __init__(self, folder: Path, columns: str) -> None:
        self._folder = folder
        self._columns = columns
        self._count = 0
        folder.mkdir()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """One more file."""
        self._count += 1
        hidden = self._folder / f".{self._count:04}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        # Spark takes the oldest first, and those of one moment in any order.
        os.utime(hidden, (1_700_000_000 + self._count,) * 2)
        hidden.rename(self._folder / f"{self._count:04}.json")

    def stream(self, spark: SparkSession) -> DataFrame:
        """All rows, a file at a time."""
        reader = spark.readStream.schema(self._columns).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder))


def start(
    frame: DataFrame, gateway: Somewhere, checkpoint: Path, mode: str = "append", **options: str
) -> StreamingQuery:
    """Begin to write all that is there to the gateway; the query ends by itself."""
    writer = frame.writeStream.format("aquifer").options(endpoint=gateway.endpoint, **options)
    writer = writer.option("checkpointLocation", str(checkpoint)).outputMode(mode)
    return writer.trigger(availableNow=True).start()


def run(frame: DataFrame, gateway: Somewhere, checkpoint: Path, mode: str = "append", **options: str) -> None:
    """Write all that is there, and wait for it."""
    query = start(frame, gateway, checkpoint, mode, **options)
    assert query.awaitTermination(PATIENCE), "the query did not end in time"


def log_of(gateway: Somewhere, codec: str = "json", **settings: Any) -> list[Any]:
    """All that is in the log at this moment."""
    with closing(LogReader(gateway.endpoint)) as client:
        head = client.state().head
    if not head:
        return []
    return list(AquiferPublisher(gateway.endpoint, stop=head, codec=codec, **settings).flux())
