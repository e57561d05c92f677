"""A webhook to Parquet: what was answered with 200 is in the files once, although each request is sent twice.

A gateway listens for POST requests. Its answer waits until the records are in its journal. The requests
have an ``Idempotency-Key``: a sender that is not sure whether a request arrived may send it again.
``Pipeline("webhook+http://…")`` reads the same feed with Spark.
"""

import http.client
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway, SqliteJournal

REQUESTS = 100
RECORDS = 10


def post(port: int, number: int) -> dict[str, Any]:
    """Post ten readings, under a key of their own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    readings = [{"sensor": n, "celsius": 20.5 + number % 10} for n in range(RECORDS)]
    headers = {"content-type": "application/json", "idempotency-key": f"request {number}"}
    connection.request("POST", "/readings", json.dumps(readings), headers)
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    options = feeds.FeedOptions(codec="json")
    with feeds.open("webhook+http://127.0.0.1:0/readings", options) as feed:
        assert isinstance(feed, feeds.WebhookFeed)
        journal = SqliteJournal(folder / "readings.db")
        with Gateway(feed, "tcp://127.0.0.1:0", journal=journal, codec="json") as gateway:
            answers = [post(feed.port, number) for number in range(REQUESTS) for _ in range(2)]
            repeated = sum("repeated" in answer for answer in answers)
            print(f"{len(answers)} requests, {repeated} of them repeated")
            reader = AquiferPublisher(gateway.endpoint, id="parquet", codec="json", stop=REQUESTS * RECORDS)
            for number, rows in enumerate(reader.flux().buffer(400)):
                pq.write_table(pa.Table.from_pylist(rows), folder / f"{number:05}.parquet")

    files = sorted(folder.glob("*.parquet"))
    table = pa.concat_tables(pq.read_table(file) for file in files)
    print(f"{table.num_rows} rows in {len(files)} files")


if __name__ == "__main__":
    main()
