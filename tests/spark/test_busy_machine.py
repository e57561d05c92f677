"""A machine with much else to do: Spark's processes connect before they import, and have time to answer."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark import settings
from penstock.spark.programs import python_for_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOW_MODULE = """
import os, socket, sys
sys.stdin.readline()  # It imports for as long as the test likes.
connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.settimeout(20)
connection.connect(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
file = connection.makefile("rwb")
file.write(b"%s %d" % (sys.argv[0].encode()[-7:], os.getpid()))
file.flush()
print(file.read(3).decode(), __name__, sys.executable, flush=True)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def spark_listens(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "spark.sock"))
        listening.listen()
        listening.settimeout(60)
        yield listening


def test_a_process_connects_before_it_has_imported_a_thing(cache: Path, spark_listens: socket.socket) -> None:
    (cache / "planner.py").write_text(SLOW_MODULE)
    environment = os.environ | {"PYTHON_WORKER_FACTORY_SOCK_PATH": spark_listens.getsockname()}
    process = subprocess.Popen(
        [python_for_workers(), "-m", "planner"],
        cwd=cache,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    connection, _ = spark_listens.accept()  # The module has not got beyond its first line.
    connection.settimeout(60)
    with connection:
        assert process.poll() is None
        assert process.stdin is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert connection.recv(100) == b"nner.py %d" % process.pid, "it is another connection"
        connection.sendall(b"yes")
        said, _ = process.communicate(timeout=60)
    assert said.split() == ["yes", "__main__", sys.executable]


@pytest.mark.parametrize("error", ["BrokenPipeError", "ConnectionResetError"])
def test_a_process_whose_query_was_stopped_ends_without_a_traceback(
    cache: Path, spark_listens: socket.socket, error: str
) -> None:
    (cache / "planner.py").write_text(f"raise {error}")
    environment = os.environ | {"PYTHON_WORKER_FACTORY_SOCK_PATH": spark_listens.getsockname()}
    command = [python_for_workers(), "-m", "planner"]
    ended = subprocess.run(command, cwd=cache, env=environment, capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", b"")


@pytest.mark.parametrize("arguments", [["-c", "print(1)"], ["-m", "this"], ["-V"]])
def test_other_processes_start_as_ever(cache: Path, arguments: list[str]) -> None:
    clean = {name: value for name, value in os.environ.items() if "FACTORY" not in name}
    ran, plain = (
        subprocess.run([python, *arguments], env=clean, capture_output=True, check=False, timeout=60)
        for python in (python_for_workers(), sys.executable)
    )
    assert (ran.returncode, ran.stdout) == (plain.returncode, plain.stdout)


def test_connections_have_time_to_be_answered() -> None:
    assert settings("spark://host:7077")["spark.python.authenticate.socketTimeout"] == "120s"
    assert settings("local[2]")["spark.network.timeout"] == "600s"
    assert "spark.network.timeout" not in settings("spark://host:7077")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_processes_of_a_session_are_started_so(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == os.environ["PYSPARK_PYTHON"] == python_for_workers()
