"""Part three of the demo: Spark reads one gateway, counts by window and sensor, and writes to the other."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.demo.ipc import EngineReport, listen, tell
from penstock.spark import Pipeline, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["main"]

_READING = "n bigint, sensor int, celsius double, at timestamp"


def by_window(readings: DataFrame) -> DataFrame:
    """Count and average the readings of each sensor in each second, as soon as the second is over."""
    from pyspark.sql.functions import expr, window

    return (
        readings.withWatermark("at", "1 second")
        .groupBy(window("at", "1 second"), "sensor")
        .agg(
            expr("count(*) AS count"),
            expr("sum(crc32(concat(n, ':', sensor))) AS fingerprint"),
            expr("round(avg(celsius), 3) AS celsius"),
        )
        .selectExpr("window.start AS start", "sensor", "count", "fingerprint", "celsius")
    )


def _peak_memory(process: int) -> int:
    """Return the peak memory of a process in bytes; 0 where the system does not tell."""
    status = Path(f"/proc/{process}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def main() -> None:
    """Run the query until the director closes the pipe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("sink")
    parser.add_argument("checkpoint")
    arguments = parser.parse_args()
    logging.getLogger("py4j").setLevel(logging.ERROR)
    over = listen(lambda word: None)
    spark = session("penstock-demo", "local[2]", {"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("ERROR")
    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    options = {"targetBatchSeconds": "1", "partitions": "2", "maxRecordsPerTrigger": "100000"}
    pipeline = (
        Pipeline(arguments.source, schema=_READING, options=options)
        .through(by_window)
        .into(arguments.sink, mode="append", value="json")
    )
    with pipeline.start(spark=spark, checkpoint=arguments.checkpoint) as running:
        while not over.wait(0.25):
            progress = running.progress()
            if not running.query.isActive:
                running.wait()  # Raises what went wrong.
                break
            if progress is not None:
                tell(
                    EngineReport(
                        batch=progress.batch,
                        taken=progress.records,
                        seconds=progress.batch_seconds,
                        lag=progress.lag,
                        jvm=_peak_memory(java),
                    )
                )
    spark.stop()


if __name__ == "__main__":
    main()
