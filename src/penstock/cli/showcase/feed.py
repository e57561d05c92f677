"""Part one: a live source, a Flux, and a gateway with a journal on the disk."""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from penstock.aquifer import Gateway, SqliteJournal
from penstock.cli.showcase.telling import listen, tell
from penstock.streams import Flux

__all__ = ["SENSORS", "fingerprint", "main"]

SENSORS = 8
_LOG = 60_000
"""Records that the journal holds: when Spark is so far behind, the source has to wait."""


class Sensors:
    """Readings of some sensors at a steady rate, unless nobody asks for them."""

    def __init__(self, rate: float, duration: float, records: int | None) -> None:
        self.sent = 0
        self.fingerprint = 0
        self._rate = rate
        self._duration = duration
        self._records = records

    def readings(self) -> Iterator[bytes]:
        """Readings, as JSON."""
        start = time.monotonic()
        while self._records is None or self.sent < self._records:
            ahead = start + self.sent / self._rate - time.monotonic()
            if ahead > 0.01:
                time.sleep(ahead)
            elif ahead < -1:
                start -= ahead  # It was held back; what was not measured meanwhile is not made up for.
            if time.monotonic() - start > self._duration:
                break
            number = self.sent
            sensor = number % SENSORS
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            reading = {"n": number, "sensor": sensor, "celsius": 20 + number % 13 / 10, "at": at}
            self.sent += 1
            self.fingerprint += fingerprint(number, sensor)
            yield json.dumps(reading).encode()
        # A window is over when something later comes: this comes late enough for all of them.
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="milliseconds")
        yield json.dumps({"n": -1, "sensor": -1, "celsius": 0.0, "at": later}).encode()


def fingerprint(number: int, sensor: int) -> int:
    """What Spark computes for each reading as well."""
    return zlib.crc32(f"{number}:{sensor}".encode())


def main() -> None:
    """Serve until the director has heard enough."""
    parser = argparse.ArgumentParser()
    parser.add_argument("journal")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--duration", type=float, required=True)
    parser.add_argument("--records", type=int)
    arguments = parser.parse_args()
    sensors = Sensors(arguments.rate, arguments.duration, arguments.records)
    over = listen(lambda word: None)
    journal = SqliteJournal(arguments.journal, max_records=_LOG)
    source = Flux.from_iterable(sensors.readings())
    with Gateway(source, "tcp://127.0.0.1:0", journal=journal, prefetch=2048) as gateway:
        tell(endpoint=gateway.endpoint)
        while not over.wait(0.25):
            status = gateway.status()
            tell(
                sent=sensors.sent,
                fingerprint=sensors.fingerprint,
                asked=status["source"]["requested"] - status["source"]["received"],
                held=status["head"] - status["floor"],
                capacity=_LOG,
                ended=status["end"] is not None,
            )


if __name__ == "__main__":
    main()
