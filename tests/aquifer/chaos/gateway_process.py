"""The gateway of the chaos tests, as a process: ``python -m tests.aquifer.chaos.gateway_process SETTINGS``.

It says ``ready`` when subscribers can come. The source begins when the standard input says ``go``, and the
gateway closes in good order when the standard input ends. Usually it does not get that far.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from penstock.aquifer import Gateway, KafkaJournal, SqliteJournal
from penstock.aquifer.log import segments
from penstock.kafka import KafkaAddress
from penstock.streams import Flux
from tests.aquifer.chaos.records import records


class GatewaySettings(msgspec.Struct):
    """What the test tells the process."""

    control: str
    journal: str
    """A file, or ``kafka://BROKER/TOPIC``."""
    total: int
    """How many records the source has."""
    rate: float
    """How many of them it gives in a second."""
    hold_at: int
    """Where the source stops to give any, until the process is killed; ``total`` if it shall not."""


def paced(settings: GatewaySettings, start: int, go: threading.Event) -> Iterator[bytes]:
    """The records of the source from ``start`` on: some at once, then a pause that keeps the rate."""
    closed = threading.Event()
    go.wait()
    portion = max(1, int(settings.rate / 100))
    begun = time.monotonic()
    try:
        for first in range(start, settings.hold_at, portion):
            ahead = begun + (first - start) / settings.rate - time.monotonic()
            if ahead > 0:
                closed.wait(ahead)
            yield from records(first, min(first + portion, settings.hold_at))
        if settings.hold_at < settings.total:
            closed.wait()
    finally:
        closed.set()


def open_log(where: str) -> SqliteJournal | KafkaJournal:
    """The journal that the settings name."""
    if not where.startswith("kafka://"):
        return SqliteJournal(where)
    address = KafkaAddress.of_url(where)
    return KafkaJournal(",".join(address.brokers), address.topic)


def main() -> None:
    """Serve until told to stop."""
    settings = msgspec.json.decode(sys.argv[1], type=GatewaySettings)
    # Some groups are in the SQLite file, and others in several segment files.
    segments.INLINE_BYTES, segments.SEGMENT_BYTES = 4096, 500_000  # type: ignore[misc]
    go = threading.Event()
    gateway = Gateway(
        lambda journalled: Flux.from_iterable(paced(settings, journalled, go)),
        control=settings.control,
        journal=open_log(settings.journal),
    )
    with gateway:
        print("ready", flush=True)
        sys.stdin.readline()
        go.set()
        sys.stdin.read()
        print(json.dumps(gateway.status().to_dict()), flush=True)


if __name__ == "__main__":
    main()
