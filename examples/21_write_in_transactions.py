"""A program copies lines into a gateway, is killed half way, and starts again: every line is there once.

It works in batches of a hundred lines, and gives each batch the number of its first line as its id. The
gateway stores the id of the last batch together with the records. So the second run may begin at the very
start: the batches that got through are not published again.
"""

import tempfile
from pathlib import Path

from penstock.aquifer import AquiferPublisher, Gateway, Producer, SqliteJournal

LINES = [f"line {number}" for number in range(1000)]
BATCH = 100


class Killed(Exception):
    """Stands for a crash at the worst moment."""


def copy(endpoint: str, *, dies_at: int | None = None) -> None:
    with Producer(endpoint, "copy of lines", codec="text") as producer:
        for first in range(0, len(LINES), BATCH):
            with producer.transaction(first) as tx:
                for number in range(first, first + BATCH):
                    if number == dies_at:
                        raise Killed  # the batch is aborted: nobody sees a part of it
                    tx.write([LINES[number]])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder, "lines.db"))
        with Gateway(None, "tcp://127.0.0.1:0", journal=journal, codec="text", writable=True) as gateway:
            try:
                copy(gateway.endpoint, dies_at=450)
            except Killed:
                print("killed in the middle of the fifth batch")
            copy(gateway.endpoint)
            gateway.complete()
            published = list(AquiferPublisher(gateway.endpoint, codec="text").flux())

    print("every line once, in order:", published == LINES)


if __name__ == "__main__":
    main()
