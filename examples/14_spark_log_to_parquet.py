"""Log lines to Parquet, continued after a stop: each line is in the files exactly once.

The pipeline reads a file of lines through a gateway of its own, whose journal is stored with the checkpoint.
It stops after the first run; the file grows; the second run continues after the last line of the first.
"""

import tempfile
from pathlib import Path

from penstock.spark import Pipeline, session


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    log, tables, checkpoint = folder / "app.log", folder / "tables", folder / "checkpoint"
    spark = session(master="local[2]")
    pipeline = (
        Pipeline(f"file:{log}")
        .through(lambda df: df.selectExpr("offset", "split(value, ' ')[0] AS level", "value AS line"))
        .into("parquet", path=tables)
    )

    for run in (1, 2):
        with log.open("a") as file:
            file.writelines(f"{'WARN' if n % 10 == 0 else 'INFO'} run {run}, line {n}\n" for n in range(5000))
        with pipeline.start(spark=spark, checkpoint=checkpoint) as running:
            running.wait()
        lines = spark.read.parquet(str(tables))
        warnings = lines.where("level = 'WARN'").count()
        print(f"after run {run}: {lines.count()} lines, {warnings} warnings")

    print(f"different lines: {lines.select('line').distinct().count()}")
    spark.stop()


if __name__ == "__main__":
    main()
