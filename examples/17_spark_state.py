"""State of your own: a live stream of readings, and an alarm when a sensor falls silent.

For each sensor Spark keeps the time of its last reading, and a timer. The timers use the time in the readings
and not the wall clock: one fires when the other sensors are half a minute ahead. State and timers are in the
checkpoint, so a pipeline that restarts forgets neither.
"""

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from penstock.spark import Pipeline, session
from penstock.streams import Flux

START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = 600
PATIENCE_MS = 30_000


def readings(second: int) -> list[dict[str, Any]]:
    """Make a reading of each sensor; the yard's pauses for a minute, and the roof's breaks off."""
    at = (START + timedelta(seconds=second)).isoformat()
    silent = {"yard": 200 <= second < 260, "roof": second >= 450}
    return [{"sensor": name, "at": at} for name in ("cellar", "roof", "yard") if not silent.get(name)]


class Watch(StatefulProcessor):
    """Reports a sensor that is silent for too long, and its return."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._last = handle.getValueState("last", "heard bigint, missed boolean")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        # Rows come in any order, and a pause may begin and end between two batches.
        times = sorted(row["ms"] for row in rows)
        if self._last.exists():
            heard, missed = self._last.get()
            self._handle.deleteTimer(heard + PATIENCE_MS)
        else:
            heard, missed = times[0], False
        for now in times:
            if now > heard + PATIENCE_MS:
                if not missed:
                    yield Row(sensor=key[0], event="silent", since=heard)
                yield Row(sensor=key[0], event="back", since=now)
                missed = False
            heard = now
        self._last.update((heard, missed))
        self._handle.registerTimer(heard + PATIENCE_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        heard, _ = self._last.get()
        self._last.update((heard, True))
        yield Row(sensor=key[0], event="silent", since=heard)

    def close(self) -> None: ...


class Alarms:
    """Receives a dictionary for each event, as soon as it is known."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_subscribe(self, subscription: Any) -> None:
        subscription.request(1000)

    def on_next(self, row: dict[str, Any]) -> None:
        second = row["since"] // 1000 - int(START.timestamp())
        self.lines.append(f"second {second}: {row['sensor']} {row['event']}")

    def on_error(self, error: BaseException) -> None:
        print(error)

    def on_complete(self) -> None: ...


def main() -> None:
    alarms = Alarms()
    pipeline = (
        Pipeline(
            Flux.range(SECONDS).concat_map(lambda second: Flux.from_iterable(readings(second))),
            schema="sensor string, at timestamp",
            options={"maxRecordsPerTrigger": "600"},
        )
        .through(lambda df: df.withWatermark("at", "5 seconds").selectExpr("*", "unix_millis(at) AS ms"))
        .through(
            lambda df: df.groupBy("sensor").transformWithState(
                Watch(), "sensor string, event string, since bigint", "Append", "EventTime"
            )
        )
        .into(alarms)
    )
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark = session(master="local[2]", config={"spark.sql.streaming.stateStore.providerClass": store})
    with pipeline.start(spark=spark, checkpoint=tempfile.mkdtemp()) as running:
        running.wait()  # until the Subscriber has all of it
    spark.stop()

    print("\n".join(sorted(alarms.lines)))


if __name__ == "__main__":
    main()
