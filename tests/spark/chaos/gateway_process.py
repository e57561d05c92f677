"""A gateway of the chaos test, as a process: ``python -m tests.spark.chaos.gateway_process SETTINGS``.

With records it has a source, and keeps few of them: what a query has not committed has to stay, the rest goes
soon. Without records it is there to be written to. It ends when its standard input does, which few of them
live to see.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import msgspec

from penstock.aquifer import Gateway, Journal, KafkaJournal, SqliteJournal
from penstock.kafka import KafkaAddress
from penstock.streams import Flux
from tests.aquifer.chaos.records import records

_TO_ANSWER = 60.0
"""Seconds for a broker on a busy machine."""


class GatewaySettings(msgspec.Struct):
    """What the test tells the process."""

    control: str
    journal: str
    """A file, or ``kafka://BROKER/TOPIC``."""
    total: int
    """How many records the source has; 0 if others write."""
    kept: int
    """How many records the journal has room for."""
    readers: int
    """How many have to have a place in the log before the source begins: none shall miss the first record."""


def open_log(settings: GatewaySettings) -> Journal:
    """The journal that the settings name."""
    if not settings.journal.startswith("kafka://"):
        return SqliteJournal(settings.journal, max_records=settings.kept)
    address = KafkaAddress.of_url(settings.journal)
    brokers = ",".join(address.brokers)
    return KafkaJournal(brokers, address.topic, max_records=settings.kept, patience=_TO_ANSWER)


def main() -> None:
    """Serve until told to stop."""
    settings = msgspec.json.decode(sys.argv[1], type=GatewaySettings)
    closing = threading.Event()

    def source(journalled: int) -> Iterator[bytes]:
        while len(gateway.status()["absent"]) < settings.readers and not closing.wait(0.01):
            pass
        yield from records(journalled, settings.total)

    gateway = Gateway(
        (lambda journalled: Flux.from_iterable(source(journalled))) if settings.total else None,
        settings.control,
        journal=open_log(settings),
        writable=not settings.total,
    )
    with gateway:
        sys.stdin.read()
        closing.set()


if __name__ == "__main__":
    main()
