"""A webhook to Parquet: what was answered with 200 is in the files once, although each request is sent twice.

The pipeline listens for POST requests. Its answer waits until the records are in its journal. The requests
have an ``Idempotency-Key``: a sender that is not sure whether a request arrived may send it again.
"""

import http.client
import json
import socket
import tempfile
import time
from pathlib import Path

from penstock.spark import Pipeline, session

REQUESTS = 100
RECORDS = 10


def post(port: int, number: int) -> dict[str, object]:
    """Post ten readings, under a key of their own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    readings = [{"sensor": n, "celsius": 20 + number % 10} for n in range(RECORDS)]
    headers = {"content-type": "application/json", "idempotency-key": f"request {number}"}
    connection.request("POST", "/readings", json.dumps(readings), headers)
    answer: dict[str, object] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    tables = folder / "tables"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    spark = session(master="local[2]")
    pipeline = (
        Pipeline(f"webhook+http://127.0.0.1:{port}/readings")
        .through(lambda df: df.selectExpr("from_json(value, 'sensor int, celsius double') AS reading"))
        .through(lambda df: df.selectExpr("reading.*"))
        .into("parquet", path=tables)
    )
    with pipeline.start(spark=spark, checkpoint=folder / "checkpoint"):
        answers = [post(port, number) for number in range(REQUESTS) for _ in range(2)]
        print(f"{len(answers)} requests, {sum('repeated' in answer for answer in answers)} of them repeated")
        schema = "sensor int, celsius double"
        rows = 0
        deadline = time.monotonic() + 120
        while rows < REQUESTS * RECORDS and time.monotonic() < deadline:
            time.sleep(0.5)
            rows = spark.read.schema(schema).parquet(str(tables)).count() if tables.exists() else 0
    print(f"{spark.read.schema(schema).parquet(str(tables)).count()} rows in the files")
    spark.stop()


if __name__ == "__main__":
    main()
