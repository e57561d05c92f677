"""Spark Connect: the driver is a server, and Penstock a client of it in another process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark import settings
from penstock.spark.programs import java_home, python_for_workers
from tests.aquifer.faults.rigs import eventually
from tests.quick_java import OPTIONS
from tests.spark.sinking import log_of

if TYPE_CHECKING:
    from tests.spark.conftest import Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CLIENT = Path(__file__).with_name("connect_client.py")
ROOT = Path(__file__).parents[2]
RECORDS = 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server in a process of its own, and where it listens."""
    pytest.importorskip("grpc")
    import pyspark

    folder = tmp_path_factory.mktemp("server")
    confs = settings("local[2]") | {
        "spark.driver.extraJavaOptions": OPTIONS,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.log.level": "INFO",
    }
    command = [
        Path(pyspark.__file__).parent / "bin" / "spark-submit",
        *("--master", "local[2]"),
        *(word for name, value in confs.items() for word in ("--conf", f"{name}={value}")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ]
    environment = os.environ | {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": python_for_workers()}
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, cwd=folder, start_new_session=True
        )

    def port() -> re.Match[str] | None:
        return re.search(r"Spark Connect server started at:\s*\S*:(\d+)", log.read_text("utf-8", "replace"))

    try:
        eventually(lambda: port() or process.poll() is not None, "the server does not start", 120)
        found = port()
        assert found is not None, log.read_text("utf-8", "replace")[-3000:]
        yield f"sc://127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.wait(60)


def test_a_client_without_its_packages_is_told_where_they_are() -> None:
    code = (
        "import sys; sys.modules['grpc'] = None\n"  # As if it was not installed.
        "from penstock.spark import session\n"
        "session(master='sc://127.0.0.1:15002')"
    )
    client = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=800, check=False
    )
    assert "pip install 'penstock-streams[connect]'" in client.stderr.splitlines()[-1], client.stderr


def test_a_session_of_a_server_is_told_what_a_session_can_have() -> None:
    assert settings("sc://host:15002").keys() < settings("spark://host:7077").keys()
    assert all(name.startswith("spark.sql.") for name in settings("sc://host:15002"))


@pytest.mark.rare(55)
def test_a_client_reads_writes_and_runs_pipelines(server: str, serve: Serve, tmp_path: Path) -> None:
    source = serve([{"n": number} for number in range(RECORDS)], codec="json")
    sink = serve(None, writable=True)
    # Java is the server's business: one that cannot be started does not matter here.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAVA_HOME": str(tmp_path / "none")}
    client = subprocess.run(
        [sys.executable, CLIENT, server, source.endpoint, sink.endpoint, tmp_path],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env=environment,
    )
    assert client.returncode == 0, client.stderr[-5000:]
    found = json.loads(client.stdout.splitlines()[-1])

    assert found["module"].startswith("pyspark.sql.connect.")
    assert found["batch"] == "10000"
    assert found["copied"] == {"total": sum(range(RECORDS)), "failure": None}
    assert sorted(row["doubled"] for row in log_of(sink)) == [2 * number for number in range(RECORDS)]
    assert found["pipeline"] == {"rows": list(range(0, RECORDS, 100)), "records": RECORDS}
    assert "Install the package on the server and on its executors" in found["shipping"]
