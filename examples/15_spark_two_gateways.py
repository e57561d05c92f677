"""Two streams behind two gateways, joined by Spark: orders with their payments.

Spark keeps what has not found its partner yet, for as long as the watermarks say.
"""

import tempfile
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.aquifer import Gateway
from penstock.spark import session
from penstock.streams import Flux

START = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS = 2000


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "amount": 10 + number % 7,
        "ordered": (START + timedelta(seconds=number)).isoformat(),
    }


def payment(number: int) -> dict[str, Any]:
    """Every second order is paid, half a minute later."""
    return {"order": 2 * number, "paid": (START + timedelta(seconds=2 * number + 30)).isoformat()}


def main() -> None:
    spark = session(master="local[2]")
    anywhere = "tcp://127.0.0.1:0"
    with (
        Gateway(Flux.range(ORDERS).map(order), anywhere, codec="json") as orders,
        Gateway(Flux.range(ORDERS // 2).map(payment), anywhere, codec="json") as payments,
    ):
        orders.join()
        payments.join()
        reader = spark.readStream.format("aquifer").option("value", "json")
        ordered = (
            reader.schema("id bigint, amount int, ordered timestamp")
            .option("endpoint", orders.endpoint)
            .load()
            .withWatermark("ordered", "1 minute")
        )
        paid = (
            reader.schema("order bigint, paid timestamp")
            .option("endpoint", payments.endpoint)
            .load()
            .withWatermark("paid", "1 minute")
        )
        joined = ordered.join(paid, ordered.id == paid["order"]).where(
            "paid BETWEEN ordered AND ordered + INTERVAL 5 MINUTES"
        )
        query = (
            joined.select("id", "amount")
            .writeStream.format("memory")
            .queryName("settled")
            .option("checkpointLocation", tempfile.mkdtemp())
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    row = spark.sql("SELECT count(*) AS orders, sum(amount) AS amount FROM settled").first()
    print(f"{row['orders']} of {ORDERS} orders are paid, {row['amount']} in all")
    spark.stop()


if __name__ == "__main__":
    main()
