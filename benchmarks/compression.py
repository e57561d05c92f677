"""What does `--compress zstd` save on the disk and on the wire, and what does it cost?

The records are JSON lines of about 100 and 1000 bytes, and random bytes. They go through a gateway with a
SqliteJournal to a subscriber in another process; the gateway tells how many bytes a record takes in the
journal and on the wire, and how much processor time. At the end the same lines cross a line of 360 kbit/s.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from itertools import cycle, islice
from pathlib import Path
from random import Random
from time import perf_counter_ns

from benchmarks import gateway
from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.processes import Facts, Line, exchange
from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal, SqliteJournal
from penstock.streams import Flux

__all__ = ["question"]

KINDS = {"JSON, 100 bytes": 1.0, "JSON, 1 kB": 0.2, "random, 100 bytes": 1.0}
"""What the records are, and the share of the elements that they get."""
WAYS: dict[str, str | None] = {"plain": None, "zstd": "zstd", "zstd:3": "zstd:3", "zstd:9": "zstd:9"}
_SLOW = 360_000 / 8
"""Bytes a second."""
_DIFFERENT = 20_000
"""Records that are made; then they come again, which no batch is large enough to see."""
_WORDS = (
    "order",
    "shipped",
    "customer",
    "failed",
    "timeout",
    "request",
    "accepted",
    "payment",
    "refused",
    "retry",
)


@contextmanager
def question() -> Iterator[Question]:
    """Each kind of record is compared with itself, uncompressed."""
    yield Question(
        name="compression",
        title="records through a gateway with a SqliteJournal, plain and compressed",
        elements=500_000,
        base="JSON, 100 bytes: plain",
        expected=lambda n: n,
        unit="record",
        clock=Clock.BETWEEN_PROCESSES,
        fewest_rounds=2,
        most_processes=1,
        alternatives=(
            *(
                Alternative(f"{kind}: {way}", partial(_through, kind, compress), share, base=f"{kind}: plain")
                for kind, share in KINDS.items()
                for way, compress in WAYS.items()
                if kind != "random, 100 bytes" or way in ("plain", "zstd")
            ),
            *(
                Alternative(
                    f"JSON, 100 bytes, 360 kbit/s: {way}",
                    partial(_over_a_slow_line, compress),
                    0.008,
                    base="JSON, 100 bytes, 360 kbit/s: plain",
                )
                for way, compress in (("plain", None), ("zstd", "zstd"))
            ),
        ),
    )


@cache
def records_of(kind: str) -> list[bytes]:
    """Readings of sensors; the longer ones with a message."""
    if kind.startswith("random"):
        return [os.urandom(100) for _ in range(_DIFFERENT)]
    random, made = Random(7), []
    for number in range(_DIFFERENT):
        minute, second = divmod(number // 10, 60)
        reading = {
            "sensor": f"s-{random.randrange(500)}",
            "time": f"2026-01-31T12:{minute:02}:{second:02}.{random.randrange(1000):03}Z",
            "site": random.choice(["north", "south"]),
            "celsius": round(random.gauss(20, 5), 2),
            "state": random.choice(["ok", "ok", "ok", "warn"]),
        }
        if kind == "JSON, 1 kB":
            reading["message"] = " ".join(random.choices(_WORDS, k=125))
        made.append(json.dumps(reading).encode())
    return made


def _through(kind: str, compress: str | None, records: int) -> Timed:
    return exchange(
        records, send=partial(_serve, kind, compress), receive=partial(gateway.subscribe, dialect="extended")
    )


def _serve(kind: str, compress: str | None, line: Line, receivers: int, warm_up: int, records: int) -> Facts:
    lines = records_of(kind)

    def elements(count: int) -> Iterator[bytes]:
        return islice(cycle(lines), count)

    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.db", max_bytes=8 << 30)
        look = partial(_figures, warm_up + records, journal)
        return gateway.serve_elements(line, journal, warm_up, records, elements, look, compress=compress)


def _figures(records: int, journal: SqliteJournal, served: Gateway) -> Facts:
    status = served.status()
    sent = status.departed.bytes + sum(session.bytes for session in status.subscribers)
    return {
        "stored bytes": journal.held.nbytes / records,
        "sent bytes": sent / records,
        "gateway ns": time.process_time_ns() / records,
    }


def _over_a_slow_line(compress: str | None, records: int) -> Timed:
    from tests.aquifer.faults.rigs import free_endpoint
    from tests.aquifer.faults.slow_line import SlowLine

    control, data = free_endpoint(), free_endpoint()
    ports = [int(endpoint.rpartition(":")[2]) for endpoint in (control, data)]
    source = Flux.from_iterable(records_of("JSON, 100 bytes")[:records])
    with (
        closing(Gateway(source, control, data=data, journal=MemoryJournal(), compress=compress)) as served,
        SlowLine(*ports, rate=_SLOW) as line,
    ):
        served.start()
        served.join()
        began = perf_counter_ns()
        reader = AquiferPublisher(f"tcp://{line.host}:{ports[0]}", patience=120)
        count = sum(1 for _ in reader.flux().to_iterable())
        return Timed(count, perf_counter_ns() - began, {"sent bytes": line.passed / records})
