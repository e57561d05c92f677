"""Part one of the demo: sensors, which send their readings over TCP as fast as they are read."""

from __future__ import annotations

import argparse
import json
import threading
import time
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from penstock.cli.demo.ipc import SensorsReport, listen, tell
from penstock.net import TcpClient
from penstock.streams import Flux, schedulers

__all__ = ["SENSORS", "fingerprint", "main"]

SENSORS = 8
BUFFER = 64 * 1024
"""Bytes that the kernel may hold on each side; by default these are megabytes, and hide the waiting."""
_NOTICEABLE = 0.25
"""Seconds without demand after which the sensors count as blocked."""


class Sensors:
    """Makes readings at a steady rate, as long as there is demand."""

    def __init__(self, rate: float, duration: float, records: int | None) -> None:
        self.sent = 0
        self.fingerprint = 0
        self.blocked_for = 0.0
        """Seconds in which a reading was ready and there was no demand for it."""
        self._ready_since: float | None = None
        self._rate = rate
        self._duration = duration
        self._records = records

    def readings(self) -> Iterator[bytes]:
        """Yield the readings, each as a line of JSON."""
        start = time.monotonic()
        while self._records is None or self.sent < self._records:
            now = time.monotonic()
            ahead = start + self.sent / self._rate - now
            if ahead > 0.01:
                time.sleep(ahead)
            elif ahead < -1:
                start -= ahead  # It was held back. The readings of that time are not made up for.
            if now - start > self._duration:
                break
            number = self.sent
            sensor = number % SENSORS
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            reading = {"n": number, "sensor": sensor, "celsius": 20 + number % 13 / 10, "at": at}
            self.sent += 1
            self.fingerprint += fingerprint(number, sensor)
            yield from self._given(reading)
        # A window closes when a later reading arrives: this one closes them all.
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat(timespec="milliseconds")
        yield from self._given({"n": -1, "sensor": -1, "celsius": 0.0, "at": later})

    def _given(self, reading: dict[str, object]) -> Iterator[bytes]:
        self._ready_since = time.monotonic()
        yield json.dumps(reading).encode() + b"\n"
        waited = time.monotonic() - self._ready_since
        self._ready_since = None
        if waited > _NOTICEABLE:
            self.blocked_for += waited

    @property
    def blocked(self) -> bool:
        """Whether the next reading has waited for a while."""
        since = self._ready_since
        return since is not None and time.monotonic() - since > _NOTICEABLE


def fingerprint(number: int, sensor: int) -> int:
    """Return what Spark computes for each reading as well."""
    return zlib.crc32(f"{number}:{sensor}".encode())


def main() -> None:
    """Send until the director closes the pipe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--duration", type=float, required=True)
    parser.add_argument("--records", type=int)
    arguments = parser.parse_args()
    sensors = Sensors(arguments.rate, arguments.duration, arguments.records)
    over = listen(lambda word: None)
    ended = threading.Event()
    failed: list[BaseException] = []
    client = TcpClient.create().port(arguments.port).option("SO_SNDBUF", BUFFER)
    connection = client.connect_now()
    # On a thread of its own, because it sleeps between readings, and an event loop must not.
    source = Flux.from_iterable(sensors.readings()).subscribe_on(schedulers.single("sensors"))
    connection.outbound.send(source).mono().subscribe(on_error=failed.append, on_complete=ended.set)
    while not over.wait(0.25):
        tell(
            SensorsReport(
                sent=sensors.sent,
                fingerprint=sensors.fingerprint,
                blocked=sensors.blocked,
                blocked_for=sensors.blocked_for,
                ended=ended.is_set(),
                error=repr(failed[0]) if failed else None,
            )
        )
    connection.abort()


if __name__ == "__main__":
    main()
