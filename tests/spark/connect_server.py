"""A Spark Connect server, and one run of a client of it that all tests look at."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.aquifer import Gateway
from penstock.spark import settings
from penstock.spark.programs import java_home, python_for_workers
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, eventually
from tests.quick_java import OPTIONS
from tests.spark.sinking import log_of

__all__ = ["RECORDS", "ClientRun", "run_of_client"]

RECORDS = 1000
_CLIENT = Path(__file__).with_name("connect_client.py")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class ClientRun:
    """What came of a client that has copied from one gateway to another."""

    found: dict[str, Any]
    """What it prints."""
    doubled: list[int]
    """What it has written to the second gateway, in order of size."""


def run_of_client(folder: Path) -> ClientRun:
    """Start a server, and run the client once."""
    places = os.pathsep.join((str(_ROOT), str(_ROOT / "src")))
    records = Flux.from_iterable([{"n": number} for number in range(RECORDS)])
    with (
        Gateway(records, ANYWHERE, codec="json") as source,
        Gateway(None, ANYWHERE, writable=True) as sink,
        Gateway(None, ANYWHERE, writable=True) as sql_sink,
        Gateway(None, ANYWHERE, writable=True) as totals,
        _server(folder) as server,
    ):
        assert source.join(120), "the records did not get into the log within 120 s"
        more = (sql_sink.endpoint, totals.endpoint)
        client = subprocess.run(
            [sys.executable, _CLIENT, server, source.endpoint, sink.endpoint, folder, *more],
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
            # Java is the server's business: one that cannot be started does not matter here.
            env=os.environ | {"PYTHONPATH": places, "JAVA_HOME": str(folder / "none")},
        )
        assert client.returncode == 0, client.stderr[-5000:]
        found = json.loads(client.stdout.splitlines()[-1])
        return ClientRun(found, sorted(row["doubled"] for row in log_of(sink)))


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """A server in a process of its own, and where it listens."""
    import pyspark

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
        eventually(lambda: port() or process.poll() is not None, "the server does not start", 400)
        found = port()
        assert found is not None, log.read_text("utf-8", "replace")[-3000:]
        yield f"sc://127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.wait(120)
