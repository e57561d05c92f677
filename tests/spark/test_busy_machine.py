"""A machine with much else to do: Spark's processes connect before they import, and have time to answer."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark import settings
from penstock.spark.programs import python_for_workers
from tests.aquifer.faults.rigs import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOW_MODULE = """
import os, socket, sys
sys.stdin.readline()  # It imports for as long as the test likes.
connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.settimeout(60)
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


SLOW_MODULE_OVER_TCP = """
import os, sys
sys.stdin.readline()  # It imports for as long as the test likes.
from pyspark.util import local_connect_and_auth
port, secret = os.environ["PYTHON_WORKER_FACTORY_PORT"], os.environ["PYTHON_WORKER_FACTORY_SECRET"]
for _ in range(2):
    file, connection = local_connect_and_auth(int(port), secret)
    file.write(b"ready")
    file.flush()
    print(file.read(3).decode(), flush=True)
"""


def _hear_secret(connection: socket.socket) -> str:
    with connection.makefile("rb") as told:
        return told.read(int.from_bytes(told.read(4), "big")).decode()


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_over_tcp_a_process_tells_the_secret_before_it_has_imported_a_thing(
    cache: Path, family: socket.AddressFamily, host: str
) -> None:
    """Spark waits 10 seconds for that, too. PySpark hears the answer, and connects as usual after that."""
    (cache / "planner.py").write_text(SLOW_MODULE_OVER_TCP)
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.bind((host, 0))
        listening.listen()
        listening.settimeout(60)
        environment = os.environ | {
            "PYTHON_WORKER_FACTORY_PORT": str(listening.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "open sesame",
            "SPARK_PREFER_IPV6": str(family is socket.AF_INET6),
        }
        environment.pop("PYTHON_WORKER_FACTORY_SOCK_PATH", None)
        command = [python_for_workers(), "-m", "planner"]
        process = subprocess.Popen(
            command, cwd=cache, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for is_early in (True, False):
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(60)
                assert _hear_secret(connection) == "open sesame"
                if is_early:
                    assert process.poll() is None
                    assert process.stdin is not None
                    process.stdin.write("go on\n")
                    process.stdin.flush()
                connection.sendall(b"\0\0\0\2ok")
                assert connection.recv(5, socket.MSG_WAITALL) == b"ready", "and not the secret again"
                connection.sendall(b"yes")
        said, _ = process.communicate(timeout=60)
    assert said.split() == ["yes", "yes"]


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


@pytest.fixture
def daemon(cache: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon that starts the processes of tasks, as Spark starts it: over TCP, as in every version."""
    environment = os.environ | {
        "PYTHON_WORKER_FACTORY_SECRET": "open sesame",
        "PYTHON_UNIX_DOMAIN_ENABLED": "false",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    command = [python_for_workers(), "-m", "pyspark.daemon", "pyspark.worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        yield process
        process.kill()


def _said_when_spark_closes(daemon: subprocess.Popen[bytes], told: bytes) -> str:
    """What appears on the screen if Spark starts a task, and then closes the connection."""
    assert daemon.stdout is not None
    port = int.from_bytes(daemon.stdout.read(4), "big")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(told)
        with connection.makefile("rb") as answer:
            task = int.from_bytes(answer.read(4), "big")
        if told:  # Spark does not wait until everything is sent.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    eventually(lambda: not Path(f"/proc/{task}").exists(), "the process of the task stays", 60)
    return daemon.communicate(timeout=60)[1].decode()


NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self").exists(), reason="it looks for a process there")


@NEEDS_PROC
def test_a_task_whose_connection_spark_closes_leaves_no_traceback(daemon: subprocess.Popen[bytes]) -> None:
    assert _said_when_spark_closes(daemon, b"\0\0\0\x0bopen sesame") == ""


@NEEDS_PROC
def test_other_errors_in_a_process_for_tasks_are_still_shown(daemon: subprocess.Popen[bytes]) -> None:
    assert "EOFError" in _said_when_spark_closes(daemon, b"")


def test_connections_have_time_to_be_answered() -> None:
    assert settings("spark://host:7077")["spark.python.authenticate.socketTimeout"] == "120s"
    assert settings("local[2]")["spark.network.timeout"] == "600s"
    assert "spark.network.timeout" not in settings("spark://host:7077")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_processes_of_a_session_are_started_so(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == os.environ["PYSPARK_PYTHON"] == python_for_workers()
