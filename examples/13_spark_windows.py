"""Sensor readings in, averages by window out: a gateway, Spark, and a Subscriber, in one script.

The query is Spark's own: a watermark says how late a reading may be, and a window is emitted when no more
readings can arrive for it. The last reading is an hour later than the others, which closes all their windows.
"""

import tempfile
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.spark import Pipeline, session
from penstock.streams import Flux

START = datetime(2026, 1, 1, tzinfo=UTC)
READINGS = 6000
WINDOWS = 10
SENSORS = 2


def reading(number: int) -> dict[str, Any]:
    """Make ten readings a second; the sensors take turns."""
    at = START + (timedelta(seconds=number / 10) if number < READINGS else timedelta(hours=2))
    return {"sensor": number % SENSORS, "celsius": 20.0 + number % 10, "at": at.isoformat()}


class Averages:
    """Receives a dictionary for each window and sensor."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.complete = threading.Event()

    def on_subscribe(self, subscription: Any) -> None:
        subscription.request(1000)

    def on_next(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        if len(self.rows) == WINDOWS * SENSORS:
            self.complete.set()

    def on_error(self, error: BaseException) -> None:
        print(error)

    def on_complete(self) -> None: ...


def main() -> None:
    from pyspark.sql.functions import avg, count, window

    averages = Averages()
    pipeline = (
        Pipeline(
            lambda done: Flux.range(done, READINGS + 1 - done).map(reading),
            schema="sensor int, celsius double, at timestamp",
        )
        .through(
            lambda df: (
                df.withWatermark("at", "1 minute")
                .groupBy(window("at", "1 minute"), "sensor")
                .agg(count("*").alias("readings"), avg("celsius").alias("celsius"))
            )
        )
        .through(lambda df: df.selectExpr("window.start AS start", "sensor", "readings", "celsius"))
        .into(averages)
    )
    spark = session(master="local[2]")
    with pipeline.start(spark=spark, checkpoint=tempfile.mkdtemp()) as running:
        running.wait()
        averages.complete.wait(60)
    spark.stop()

    print(f"{len(averages.rows)} windows of {WINDOWS} minutes and {SENSORS} sensors")
    print(f"{sum(row['readings'] for row in averages.rows)} readings in them")
    print(f"averages: {sorted({row['celsius'] for row in averages.rows})}")


if __name__ == "__main__":
    main()
