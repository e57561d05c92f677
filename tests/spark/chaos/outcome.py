"""What came out, against what went in: every record, once, as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from penstock.aquifer import AquiferPublisher, LogReader
from tests.aquifer.chaos.records import BLOCK, digest_of, record
from tests.spark.chaos.checkpoints import sink_files

__all__ = ["difference", "records_in_files", "records_in_log", "records_in_table"]


def records_in_files(folder: Path) -> list[bytes]:
    """The records that a file sink has, in the order of their offsets."""
    return _in_order(pa.concat_tables(parquet.read_table(path) for path in sink_files(folder)))


def records_in_table(read_back: Path) -> list[bytes]:
    """The records that a table has, in the order of their offsets; a driver has put them into files."""
    return _in_order(parquet.read_table(read_back))


def _in_order(table: pa.Table) -> list[bytes]:
    table = table.sort_by("offset")
    values: list[bytes] = table.column("value").to_pylist()
    offsets = table.column("offset").to_pylist()
    strangers = [n for n, value in zip(offsets, values, strict=True) if value[:12] != b"%012d" % n]
    assert not strangers, f"the records at the offsets {strangers[:5]} are others"
    return values


def records_in_log(endpoint: str) -> list[bytes]:
    """The records that a gateway has, in the order of its log."""
    with closing(LogReader(endpoint)) as client:
        state = client.state()
    assert state.first == 0
    publisher = AquiferPublisher(endpoint, stop=state.head, batches=True)
    return [value for batch in publisher.flux() for value in batch]


def difference(values: Sequence[bytes], expected: bytes) -> str:
    """How these records differ from the source's, of which the digests are given; empty if they do not."""
    digests = b"".join(map(digest_of, _blocks(values)))
    if sha256(digests).digest() == sha256(expected).digest():
        return ""
    total = len(expected) // len(digest_of([])) * BLOCK
    numbers = Counter(int(value[:12]) for value in values)
    missing = [n for n in range(total) if n not in numbers]
    repeated = [n for n, times in numbers.items() if times > 1]
    wrong = next((n for n, value in enumerate(values) if value != record(n)), None)
    return (
        f"{len(values)} records instead of {total}, the sum of their numbers is {sum(numbers.elements())}; "
        f"{len(missing)} are missing ({missing[:5]}…), {len(repeated)} are there more than once "
        f"({repeated[:5]}…); the first that is not in its place is number {wrong}"
    )


def _blocks(values: Sequence[bytes]) -> Iterator[list[bytes]]:
    for first in range(0, len(values), BLOCK):
        yield [*values[first : first + BLOCK]]
