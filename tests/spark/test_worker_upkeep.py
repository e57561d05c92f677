"""The Python processes of Spark do little between two requests."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.spark.worker_upkeep import read_archives_once

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
    from penstock.spark.worker_upkeep import spare_upkeep

    spare_upkeep.cache_clear()
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


class Archive:
    """A zip archive in the path of Python, and how often its contents were read."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.reads = 0
        read = zipimport._read_directory  # type: ignore[attr-defined]

        def counted(archive: str) -> object:
            self.reads += archive == str(path)
            return read(archive)

        self.hold("archived_first")
        monkeypatch.setattr(zipimport, "_read_directory", counted)
        monkeypatch.syspath_prepend(path)

    def hold(self, *packages: str) -> None:
        """Have these packages, in place of those before."""
        draft = self.path.with_suffix(".draft")
        with zipfile.ZipFile(draft, "w") as archive:
            for package in packages:
                archive.writestr(f"{package}/__init__.py", "")
                archive.writestr(f"{package}/inner.py", f"name = {package!r}")
        draft.replace(self.path)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", zipimport.zipimporter.invalidate_caches)
    yield Archive(tmp_path / "packages.zip", monkeypatch)
    for name in [name for name in sys.modules if name.startswith("archived_")]:
        del sys.modules[name]
    for entry in [entry for entry in sys.path_importer_cache if entry.startswith(str(tmp_path))]:
        del sys.path_importer_cache[entry]


def test_an_archive_that_has_not_changed_is_read_once(archive: Archive) -> None:
    assert importlib.import_module("archived_first.inner").name == "archived_first"
    before = archive.reads
    importlib.invalidate_caches()
    each = archive.reads - before
    # From 3.13 on, Python reads it when it next looks for a module.
    assert each >= 2 or sys.version_info >= (3, 13), "it is read for each package in it"

    read_archives_once()
    importlib.invalidate_caches()
    before = archive.reads
    for _ in range(3):
        importlib.invalidate_caches()
    assert archive.reads == before


def test_what_is_in_an_archive_that_has_changed_can_be_imported(archive: Archive) -> None:
    read_archives_once()
    importlib.import_module("archived_first.inner")
    importlib.invalidate_caches()

    archive.hold("archived_first", "archived_second")
    importlib.invalidate_caches()
    assert importlib.import_module("archived_second.inner").name == "archived_second"


def test_an_archive_that_is_gone_and_comes_back_is_read(archive: Archive) -> None:
    read_archives_once()
    importlib.import_module("archived_first")
    importlib.invalidate_caches()
    away = archive.path.rename(archive.path.with_suffix(".away"))
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("archived_first.inner")

    away.rename(archive.path)  # The same file: its size and its time are those of before.
    importlib.invalidate_caches()
    assert importlib.import_module("archived_first.inner").name == "archived_first"
