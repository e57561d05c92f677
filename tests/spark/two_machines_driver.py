"""A driver on another machine than its gateways or its executors.

Its arguments are MASTER, SOURCE, SINK, KEYS, FOLDER and ADDRESS. KEYS is a folder with ``spark.key`` and
``gateway.pub``. Reads the source as a stream, writes to the sink, and prints what a batch read finds there,
on which machine the tasks of the stream ran, and on which this process does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

MACHINE = "/proc/self/ns/net"
"""Names the network namespace of a process."""


def placed(batches: Iterator[Any]) -> Iterator[Any]:
    """Add the machine on which this runs."""
    import pyarrow as pa

    for batch in batches:
        place = os.readlink(MACHINE)
        columns = {"n": [2 * n for n in batch.column("n").to_pylist()], "place": [place] * batch.num_rows}
        yield pa.RecordBatch.from_pydict(columns)


def main(master: str, source: str, sink: str, keys: str, folder: str, address: str) -> None:
    from penstock.spark import session
    from tests.spark.cluster import CLUSTER_SETTINGS
    from tests.spark.cluster_driver import again_if_too_busy
    from tests.spark.conftest import SPARK_SETTINGS

    # Tasks and driver talk over the address that other machines would use, too.
    places = {"spark.driver.host": address, "spark.driver.bindAddress": address, "spark.log.level": "ERROR"}
    is_local = master.startswith("local")
    config = SPARK_SETTINGS if is_local else CLUSTER_SETTINGS | {"spark.cores.max": "1"}
    spark = session("elsewhere", master, config=config | places, ship=not is_local)
    curve = {"curveKey": f"{keys}/spark.key", "curveServer": f"{keys}/gateway.pub"}
    reader = spark.readStream.format("aquifer").schema("n bigint").options(**curve)
    rows = reader.options(endpoint=source, value="json", maxRecordsPerTrigger="400").load()
    writer = rows.mapInArrow(placed, "n bigint, place string").writeStream.format("aquifer").options(**curve)
    writer = writer.options(endpoint=sink, checkpointLocation=f"{folder}/checkpoint")
    again_if_too_busy(lambda: writer.trigger(availableNow=True).start().awaitTermination())
    found = spark.read.format("aquifer").schema("n bigint, place string")
    written = found.options(**curve, endpoint=sink, value="json").load().collect()
    numbers = sorted(row["n"] for row in written)
    spark.stop()
    there = sorted({row["place"] for row in written})
    print(json.dumps({"numbers": numbers, "tasks": there, "driver": os.readlink(MACHINE)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
