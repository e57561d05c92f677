"""A driver with a query into Delta and one into Iceberg: ``python -m tests.spark.lakes.driver_process``.

The argument is a JSON object. When both queries have everything, it puts what Spark reads from the tables
into parquet files, and ends.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from penstock.spark import session
from tests.spark.chaos.checkpoints import committed
from tests.spark.lakes.formats import CATALOG, formats

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
    queries = []
    for name in formats():
        reader = spark.readStream.format("aquifer").option("endpoint", settings.endpoint)
        reader = reader.options(subscription=name, maxRecordsPerTrigger=str(settings.batch))
        writer = reader.load().select("offset", "value").writeStream.format(name)
        writer = writer.option("checkpointLocation", str(settings.checkpoint(name)))
        if name == "iceberg":
            columns = "(offset BIGINT, value BINARY)"
            spark.sql(f"CREATE TABLE IF NOT EXISTS {_ICEBERG} {columns} USING iceberg")
            queries.append(writer.toTable(_ICEBERG))
        else:
            queries.append(writer.start(str(settings.table(name))))
    while any(committed(settings.checkpoint(name)) < settings.total for name in formats()):
        for query in queries:
            error = query.exception()
            if error is not None:
                raise error
        time.sleep(0.05)
    for query in queries:
        query.stop()
    for name in formats():
        path = str(settings.table(name))
        table = spark.table(_ICEBERG) if name == "iceberg" else spark.read.format(name).load(path)
        table.write.parquet(str(settings.read_back(name)))
    spark.stop()


if __name__ == "__main__":
    main()
