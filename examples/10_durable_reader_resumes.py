"""A reader leaves, the gateway restarts, the reader comes back: nothing is lost, and nothing arrives twice.

The journal is a SQLite file, so a new gateway continues with the offsets of the old one, and requests only
what is not stored yet. The reader has an id: the gateway keeps the records that it has not
acknowledged. The reader stores the offset of each record together with the record, in one transaction. That
makes it exactly once: whatever happens, the offset in its own table says where to continue.
"""

import tempfile
import threading
from pathlib import Path
from typing import Any

from penstock.aquifer import AquiferPublisher, Gateway, Record, SqliteJournal
from penstock.streams import Flux

LINES = [f"line {number}" for number in range(1000)]


class Visit:
    """Puts some records into the table, and leaves."""

    def __init__(self, table: list[tuple[int, str]], most: int) -> None:
        self.table, self.left = table, most
        self.over = threading.Event()

    def on_subscribe(self, subscription: Any) -> None:
        self.subscription = subscription
        subscription.request(self.left)

    def on_next(self, record: Record) -> None:
        self.table.append((record.offset or 0, record.value))  # a transaction of your database
        self.subscription.acknowledge(self.table[-1][0] + 1)  # the gateway no longer has to keep it
        self.left -= 1
        if not self.left:
            self.subscription.cancel()
            self.over.set()

    def on_error(self, error: BaseException) -> None:
        print("failed:", error)
        self.over.set()

    def on_complete(self) -> None:
        self.over.set()


def read(endpoint: str, table: list[tuple[int, str]], most: int) -> None:
    start = table[-1][0] + 1 if table else 0
    publisher = AquiferPublisher(
        endpoint,
        id="warehouse",
        start=start,
        lease=24 * 3600,
        codec="text",
        records=True,
        acknowledge="manual",
    )
    visit = Visit(table, most)
    publisher.subscribe(visit)
    visit.over.wait()


def main() -> None:
    table: list[tuple[int, str]] = []
    with tempfile.TemporaryDirectory() as folder:

        def gateway() -> Gateway:
            journal = SqliteJournal(Path(folder, "lines.db"), max_records=500)
            return Gateway(
                lambda stored: Flux.from_iterable(LINES[stored:]),
                "tcp://127.0.0.1:0",
                journal=journal,
                codec="text",
            )

        with gateway() as first:
            read(first.endpoint, table, 300)
            print(f"first visit: up to {table[-1]}")

        with gateway() as second:
            read(second.endpoint, table, 700)
            print(f"second visit, to a new gateway: up to {table[-1]}")

    print("every line once, in order:", table == list(enumerate(LINES)))


if __name__ == "__main__":
    main()
