"""A driver with a query into Delta and one into Iceberg: ``python -m tests.spark.lakes.driver_process``.

The argument is a JSON object. When both queries have everything, it puts what Spark reads from the tables
into parquet files, and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.spark import session
from tests.spark.chaos.checkpoints import stop_after
from tests.spark.lakes.formats import CATALOG, formats

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_ICEBERG = f"{CATALOG}.tables.iceberg"


class LakeSettings(msgspec.Struct):
    """What the test tells the process."""

    folder: str
    endpoint: str
    total: int
    batch: int
    config: dict[str, str]

    def checkpoint(self, name: str) -> Path:
        """Where a query keeps how far it has come."""
        return Path(self.folder, f"{name}-checkpoint")

    def table(self, name: str) -> Path:
        """Where a table is."""
        return Path(self.folder, "tables", name)

    def read_back(self, name: str) -> Path:
        """Where to put what a table has."""
        return Path(self.folder, f"{name}-read-back")


def main() -> None:
    """Run the queries to the end of the log."""
    settings = msgspec.json.decode(sys.argv[1], type=LakeSettings)
    spark = session(name="lakes", master="local[2]", config=settings.config)
    queries: dict[Path, StreamingQuery] = {}
    for name in formats():
        reader = spark.readStream.format("aquifer").option("endpoint", settings.endpoint)
        reader = reader.options(subscription=name, maxRecordsPerTrigger=str(settings.batch))
        writer = reader.load().select("offset", "value").writeStream.format(name)
        checkpoint = settings.checkpoint(name)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if name == "iceberg":
            columns = "(offset BIGINT, value BINARY)"
            spark.sql(f"CREATE TABLE IF NOT EXISTS {_ICEBERG} {columns} USING iceberg")
            queries[checkpoint] = writer.toTable(_ICEBERG)
        else:
            queries[checkpoint] = writer.start(str(settings.table(name)))
    stop_after(settings.total, queries)
    for name in formats():
        path = str(settings.table(name))
        table = spark.table(_ICEBERG) if name == "iceberg" else spark.read.format(name).load(path)
        table.write.parquet(str(settings.read_back(name)))
    spark.stop()


if __name__ == "__main__":
    main()
