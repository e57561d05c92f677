"""What does it cost to have records in a journal: in memory, on the disk, in Kafka?

Batches of 2500 records of 100 bytes are appended eight at a time, which is what a gateway does under load, or
one at a time. Each append is as safe as the journal makes it when it returns. The Kafka is the one of the
tests: one broker on this machine, with a small heap.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from time import perf_counter_ns

from benchmarks.measuring import Alternative, Clock, Question, Timed
from penstock.aquifer import Journal, KafkaJournal, MemoryJournal, SqliteJournal
from penstock.aquifer.records import Batch, RecordMetadata, pack_metadata, pack_values

__all__ = ["question"]

_COUNT = 2500
_PAYLOAD = pack_values([b"x" * 100] * _COUNT)
_METADATA = pack_metadata(RecordMetadata(0))
_BYTES = 512 * 2**20


@contextmanager
def question() -> Iterator[Question]:
    """Without a broker, Kafka is left out, and it is said why."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        journals: dict[str, Callable[[], Journal]] = {
            "memory": lambda: MemoryJournal(max_bytes=_BYTES),
            "SQLite": lambda: SqliteJournal(folder / f"{secrets.token_hex(4)}.db", max_bytes=_BYTES),
        }
        address = _broker(stack, folder)
        if address is not None:
            journals["Kafka"] = lambda: KafkaJournal(address, secrets.token_hex(4), max_bytes=_BYTES)
        yield Question(
            name="journals",
            title="records of 100 bytes appended to a journal, in batches of 2500",
            elements=400_000,
            base="SQLite: 8 batches at a time",
            expected=lambda n: n,
            unit="record",
            clock=Clock.BETWEEN_PROCESSES,
            fewest_rounds=3,
            most_processes=1,
            matrix=True,
            alternatives=tuple(
                Alternative(
                    f"{name}: {group} batch{'es' if group > 1 else ''} at a time", _append(make, group)
                )
                for name, make in journals.items()
                for group in (8, 1)
            ),
        )


def _append(make: Callable[[], Journal], group: int) -> Callable[[int], Timed]:
    def run(records: int) -> Timed:
        with closing(make()) as journal:
            began = perf_counter_ns()  # Opening is not what a record costs.
            while journal.head < records:
                first = journal.head
                journal.append([Batch(first + _COUNT * n, _COUNT, _PAYLOAD, _METADATA) for n in range(group)])
            return Timed(journal.head, perf_counter_ns() - began)

    return run


def _broker(stack: ExitStack, folder: Path) -> str | None:
    try:
        from tests.kafka.broker import KafkaBroker
    except ImportError as error:
        print(f"Kafka is left out: {error}; run it with .venv/bin/python", file=sys.stderr, flush=True)
        return None
    return stack.enter_context(KafkaBroker(folder / "kafka")).address
