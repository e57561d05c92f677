"""Connections of Spark's Python processes over TCP: what they receive is acknowledged at once."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.spark import worker_connections
from penstock.spark.versions import installed
from penstock.spark.worker_upkeep import spare_upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no TCP_QUICKACK")

BUFFER = 65536


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdopen", os.fdopen)  # What it is afterwards, too.
    worker_connections.acknowledge_at_once()


@pytest.fixture
def java_and_python() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        java = socket.create_connection(listening.getsockname(), timeout=60)
        python, _ = listening.accept()
    with java, python:
        yield java, python


def delays_acknowledgements(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0


def exchange(java: socket.socket, python: socket.socket) -> None:
    """Data in both directions, so that the kernel delays acknowledgements.

    It does if the answers come soon, which they do not at once on a busy machine.
    """
    for turn in range(2000):
        java.sendall(b"a task")
        python.recv(100)
        python.sendall(b"its rows")
        java.recv(100)
        if turn >= 7 and delays_acknowledgements(python):
            return
    pytest.fail("the kernel does not do what this is for")


def is_open(descriptor: int, connection: socket.socket) -> bool:
    """Whether a descriptor is that of a connection; if not, another thread may have been given its number."""
    try:
        return os.path.sameopenfile(descriptor, connection.fileno())
    except OSError:
        return False


def test_what_is_read_is_acknowledged_at_once(
    prompt: None, java_and_python: tuple[socket.socket, socket.socket]
) -> None:
    java, python = java_and_python
    with os.fdopen(os.dup(python.fileno()), "rb", BUFFER) as reading:
        for turn in range(3):
            exchange(java, python)
            java.sendall(b"task %d" % turn)
            assert reading.read(6) == b"task %d" % turn
            assert not delays_acknowledgements(python)
    assert python.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_it_reads_as_the_plain_file_does(
    prompt: None, java_and_python: tuple[socket.socket, socket.socket]
) -> None:
    java, python = java_and_python
    rows = pa.record_batch({"n": list(range(100_000))})
    descriptor = os.dup(python.fileno())
    reading = os.fdopen(descriptor, "rb", BUFFER)
    assert reading.fileno() == descriptor
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"],
        stdin=subprocess.PIPE,
        stdout=java.fileno(),
    ) as sender:
        java.close()
        assert sender.stdin is not None
        with sender.stdin, pa.ipc.new_stream(sender.stdin, rows.schema) as writer:
            writer.write_batch(rows)
        assert pa.ipc.open_stream(reading).read_all().to_batches() == [rows]
        assert reading.read() == b"", "there is more than was sent"
    assert is_open(descriptor, python)
    reading.close()
    assert not is_open(descriptor, python)


def test_a_file_that_nobody_closes_gives_its_descriptor_back(
    prompt: None, java_and_python: tuple[socket.socket, socket.socket]
) -> None:
    """Spark's worker makes such a file for each task, and leaves it."""
    python = java_and_python[1]
    descriptor = os.dup(python.fileno())
    assert is_open(descriptor, python)
    os.fdopen(descriptor, "rb", BUFFER)
    assert not is_open(descriptor, python)


@pytest.mark.parametrize("kind", ["a pipe", "a file", "a unix socket", "a socket without a buffer"])
def test_everything_else_is_opened_as_ever(prompt: None, kind: str, tmp_path: Path) -> None:
    buffering = BUFFER
    if kind == "a pipe":
        descriptor, other = os.pipe()
        os.write(other, b"here")
        os.close(other)
    elif kind == "a file":
        (tmp_path / "file").write_bytes(b"here")
        descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    else:
        family = socket.AF_UNIX if kind == "a unix socket" else socket.AF_INET
        buffering = 0 if kind == "a socket without a buffer" else BUFFER
        with socket.socket(family) as listening:
            listening.bind(str(tmp_path / "socket") if family == socket.AF_UNIX else ("127.0.0.1", 0))
            listening.listen()
            with socket.socket(family) as sending:
                sending.connect(listening.getsockname())
                sending.sendall(b"here")
            descriptor = listening.accept()[0].detach()
    with os.fdopen(descriptor, "rb", buffering) as reading:
        assert not isinstance(getattr(reading, "raw", reading), worker_connections.PromptReader)
        assert reading.read() == b"here"
    with io.TextIOWrapper(os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb", BUFFER)) as writing:
        writing.write("there")


SETTLED = """
import os, socket
from penstock.spark.worker_upkeep import spare_upkeep

spare_upkeep()
with socket.create_server(("127.0.0.1", 0)) as listening:
    java = socket.create_connection(listening.getsockname())
    python, _ = listening.accept()
print(type(os.fdopen(os.dup(python.fileno()), "rb", 65536).raw).__name__)
"""


@pytest.mark.parametrize(("unix", "reads"), [("", "PromptReader"), ("True", "FileIO")])
def test_a_process_that_has_worked_is_prompt_where_spark_uses_tcp(unix: str, reads: str) -> None:
    environment = {**os.environ, "PYTHON_UNIX_DOMAIN_ENABLED": unix}
    ran = subprocess.run(
        [sys.executable, "-c", SETTLED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout.split()) == (0, [reads]), ran.stderr


def connections_of_a_task() -> set[tuple[str, bool]]:
    """The kinds of the connections of this process, and whether each waits for more to send."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptor = os.dup(int(name))
        except OSError:
            continue  # It was the one that lists them.
        try:
            connection = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            continue
        with connection:
            is_tcp = connection.family == socket.AF_INET
            if connection.type == socket.SOCK_STREAM and (is_tcp or connection.family == socket.AF_UNIX):
                waits = is_tcp and not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                found.add(("tcp" if is_tcp else "unix", waits))
    return found


class LookingReader(DataSourceReader):
    """Reads what connections its process has, if that has read something before."""

    def read(self, partition: InputPartition) -> Iterator[tuple[str, bool]]:
        if spare_upkeep.cache_info().currsize:
            yield from sorted(connections_of_a_task())
        spare_upkeep()  # As each task of ours does at its end.


class LookingSource(DataSource):
    """The format ``looking``, whose tasks run in processes of their own, as those of each format do."""

    @classmethod
    def name(cls) -> str:
        return "looking"

    def schema(self) -> str:
        return "kind string, waits boolean"

    def reader(self, schema: StructType) -> DataSourceReader:
        return LookingReader()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_task_that_follows_one_of_ours_does_not_wait_for_more_to_send(spark: SparkSession) -> None:
    spark.dataSource.register(LookingSource)
    assert spark.read.format("looking").load().collect() == []
    looked = spark.read.format("looking").load().collect()
    assert {(row.kind, row.waits) for row in looked} == {("tcp" if installed() < (4, 1) else "unix", False)}
