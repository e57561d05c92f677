"""A driver with the upserts of the examples, as a process: ``python -m tests.spark.upserts.driver_process``.

The argument is a JSON object. Two queries read the same gateway; one adds to totals in SQLite, the other to
totals in PostgreSQL. Where a trap is set, a query that has written that batch leaves a file and waits for its
end: the database has the batch, and the checkpoint does not.
"""

from __future__ import annotations

import runpy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.spark import session
from tests.spark.chaos.checkpoints import stop_after

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

Write: TypeAlias = "Callable[[DataFrame, int], None]"
"""For foreachBatch."""
EXAMPLES = Path(__file__).parents[3] / "examples"


class UpsertSettings(msgspec.Struct):
    """What the test tells the process."""

    folder: str
    endpoint: str
    databases: dict[str, str]
    """Where each of ``sqlite`` and ``postgresql`` is."""
    total: int
    batch: int
    trap: int
    """The batch after which both queries stop; -1 for none."""
    config: dict[str, str]

    def checkpoint(self, name: str) -> Path:
        """Where a query keeps how far it has come."""
        return Path(self.folder, f"{name}-checkpoint")

    def caught(self, name: str) -> Path:
        """The file that a query leaves in the trap."""
        return Path(self.folder, f"{name}-caught")


def upsert(name: str, place: str) -> Write:
    """The function of an example."""
    (example,) = EXAMPLES.glob(f"*_spark_upsert_{name}.py")
    made: Any = runpy.run_path(str(example))["upsert"](place)
    add: Write = made
    return add


def trapped(settings: UpsertSettings, name: str, add: Write) -> Write:
    """The same function with the trap behind it."""

    def write(rows: DataFrame, batch: int) -> None:
        add(rows, batch)
        if batch == settings.trap:
            settings.caught(name).touch()
            threading.Event().wait()

    return write


def main() -> None:
    """Add up everything."""
    settings = msgspec.json.decode(sys.argv[1], type=UpsertSettings)
    spark = session(name="upserts", master="local[2]", config=settings.config)
    queries: dict[Path, StreamingQuery] = {}
    for name, place in settings.databases.items():
        stream = spark.readStream.format("aquifer").schema("customer string, cents bigint")
        stream = stream.options(endpoint=settings.endpoint, value="json", subscription=name)
        rows = stream.option("maxRecordsPerTrigger", str(settings.batch)).load()
        writer = rows.writeStream.foreachBatch(trapped(settings, name, upsert(name, place)))
        checkpoint = settings.checkpoint(name)
        queries[checkpoint] = writer.option("checkpointLocation", str(checkpoint)).start()
    stop_after(settings.total, queries)
    spark.stop()


if __name__ == "__main__":
    main()
