"""The Python processes of Spark collect garbage after each request, and have little to look at."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import gc
import sys

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.aquifer import Gateway
from penstock.spark.data_source import AquiferDataSource
from penstock.streams import Flux

VALUES = StructType([StructField("value", BinaryType())])


def writer(gateway):
    source(gateway).writer(VALUES, False)


def stream_writer(gateway):
    source(gateway).streamWriter(VALUES, False)


def written(gateway):
    task = TaskContext._getOrCreate()
    task._partitionId = 0
    task._localProperties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}
    made = source(gateway).streamWriter(VALUES, False)
    gc.unfreeze()  # A task is another process than the one that makes the writer.
    from penstock.spark.worker_garbage import exclude_imports_from_collection

    exclude_imports_from_collection.cache_clear()
    message = made.write(iter([pa.record_batch({"value": [b"a", b"b"]})]))
    assert message.part.pieces == 1


def read(gateway):
    reader = source(gateway).reader(VALUES)
    (partition,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(partition)) == 3


def source(gateway):
    return AquiferDataSource({"endpoint": gateway.endpoint, "value": "binary"})


with Gateway(Flux.just(b"1", b"2", b"3"), "tcp://127.0.0.1:0", writable=True) as gateway:
    gateway.join()
    before = len(gc.get_objects())
    {"writer": writer, "stream writer": stream_writer, "written": written, "read": read}[sys.argv[1]](gateway)
    gc.collect()
    print(before, len(gc.get_objects()))
"""


@pytest.mark.parametrize("done", ["writer", "stream writer", "written", "read"])
def test_what_was_imported_is_not_looked_at_again(done: str) -> None:
    ran = subprocess.run([sys.executable, "-c", _SCRIPT, done], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    before, after = map(int, ran.stdout.split())
    assert after < before / 10
