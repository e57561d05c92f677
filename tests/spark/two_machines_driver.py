"""A driver on another machine than its gateways; its arguments are SOURCE, SINK, KEYS, FOLDER and ADDRESS.

KEYS is a folder with ``spark.key`` and ``gateway.pub``. Reads the source as a stream, writes to the sink, and
prints what a batch read finds there.
"""

from __future__ import annotations

import json
import sys


def main(source: str, sink: str, keys: str, folder: str, address: str) -> None:
    from penstock.spark import session
    from tests.spark.conftest import SPARK_SETTINGS

    # Tasks and driver talk over the address that other machines would use, too.
    places = {"spark.driver.host": address, "spark.driver.bindAddress": address}
    spark = session("elsewhere", "local[2]", config=SPARK_SETTINGS | places)
    curve = {"curveKey": f"{keys}/spark.key", "curveServer": f"{keys}/gateway.pub"}
    reader = spark.readStream.format("aquifer").schema("n bigint").options(**curve)
    rows = reader.options(endpoint=source, value="json", maxRecordsPerTrigger="400").load()
    writer = rows.selectExpr("n * 2 AS n").writeStream.format("aquifer").options(**curve)
    writer = writer.options(endpoint=sink, checkpointLocation=f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    found = spark.read.format("aquifer").schema("n bigint").options(**curve, endpoint=sink, value="json")
    print(json.dumps(sorted(row["n"] for row in found.load().collect())))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
