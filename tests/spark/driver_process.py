"""A Spark query in a process of its own, which can be killed; its arguments are ENDPOINT, FOLDER and MARKER.

It reads the files of FOLDER/in, one a batch, and writes their rows to the gateway. A task that meets the
number -1 for the first time leaves the file MARKER and fails; Spark runs it again.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(endpoint: str, folder: str, marker: str) -> None:
    from pyspark.sql.functions import udf

    from penstock.spark import session

    def fail_once(number: int) -> int:
        from pyspark import TaskContext

        task = TaskContext.get()
        if number == -1 and task is not None and task.attemptNumber() == 0:
            Path(marker).touch()
            raise RuntimeError("this attempt fails")
        return number

    config = {
        "spark.driver.extraJavaOptions": (
            "-Djdk.lang.Process.launchMechanism=VFORK -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        ),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    }
    spark = session(name="driver", master="local[2,3]", config=config)
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).json(f"{folder}/in")
    checked = rows.select(udf(fail_once, "bigint", useArrow=False)("n").alias("n"))
    writer = checked.writeStream.format("aquifer").option("endpoint", endpoint)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
