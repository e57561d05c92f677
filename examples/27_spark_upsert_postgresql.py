"""Totals in PostgreSQL, each order counted once: an upsert in foreachBatch that notes the batch as well.

Spark runs a batch again if the driver died before the batch was noted in the checkpoint, even if the database
had it already. So the transaction that adds up the totals also notes the query and the batch. A batch that is
noted already is left alone. A query keeps its id as long as it keeps its checkpoint.

Needs ``pip install 'psycopg[binary]'`` and a database, which ``SHOP`` names: ``SHOP=postgresql://host/shop``.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame

from penstock import Flux
from penstock.aquifer import Gateway
from penstock.spark import session

TABLES = """
CREATE TABLE IF NOT EXISTS totals (customer TEXT PRIMARY KEY, orders BIGINT, cents BIGINT);
CREATE TABLE IF NOT EXISTS batches (query TEXT NOT NULL, batch BIGINT, PRIMARY KEY (query, batch));
"""
NOTE = "INSERT INTO batches VALUES (%s, %s) ON CONFLICT DO NOTHING"
UPSERT = """
INSERT INTO totals VALUES (%s, %s, %s) ON CONFLICT (customer)
DO UPDATE SET orders = totals.orders + excluded.orders, cents = totals.cents + excluded.cents
"""


def upsert(address: str) -> Callable[[DataFrame, int], None]:
    """A function for foreachBatch that adds the orders of a batch to the totals."""

    def add(orders: DataFrame, batch: int) -> None:
        query = orders.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        # Spark adds up what it can; what is left is one row for each customer of the batch.
        sums = orders.groupBy("customer").agg({"*": "count", "cents": "sum"})
        rows = [tuple(row) for row in sums.select("customer", "count(1)", "sum(cents)").collect()]
        with psycopg.connect(address) as database, database.cursor() as cursor:
            cursor.execute(TABLES)
            cursor.execute(NOTE, (query, batch))
            if cursor.rowcount:
                cursor.executemany(UPSERT, rows)

    return add


def main() -> None:
    folder, address = Path(tempfile.mkdtemp()), os.environ["SHOP"]
    orders = Flux.range(5000).map(lambda n: {"customer": f"c{n % 3}", "cents": n})
    with Gateway(orders, "tcp://127.0.0.1:0", codec="json") as gateway:
        gateway.join()
        spark = session(master="local[2]")
        stream = (
            spark.readStream.format("aquifer")
            .schema("customer string, cents bigint")
            .options(endpoint=gateway.endpoint, value="json", maxRecordsPerTrigger="2000")
            .load()
        )
        add = upsert(address)

        def twice(rows: DataFrame, batch: int) -> None:
            """As after a crash: each batch comes again."""
            add(rows, batch)
            add(rows, batch)

        writer = stream.writeStream.foreachBatch(twice).option("checkpointLocation", str(folder / "state"))
        writer.trigger(availableNow=True).start().awaitTermination()
        spark.stop()
    with psycopg.connect(address) as database:
        for row in database.execute("SELECT * FROM totals ORDER BY customer"):
            print(*row)


if __name__ == "__main__":
    main()
