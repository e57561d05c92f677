"""Spark Connect: the driver is a server, and Penstock a client of it in another process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.spark import settings
from penstock.spark.versions import installed
from tests.spark.connect_server import RECORDS, ClientRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1300)]


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


def test_a_client_reads_writes_runs_pipelines_keeps_state_and_uses_sql(run_of_client: ClientRun) -> None:
    found = run_of_client.found

    assert found["module"].startswith("pyspark.sql.connect.")
    assert found["batch"] == "10000"
    assert found["copied"] == {"total": sum(range(RECORDS)), "failure": None}
    assert run_of_client.doubled == [2 * number for number in range(RECORDS)]
    assert found["pipeline"] == {"rows": list(range(0, RECORDS, 100)), "records": RECORDS}
    assert found["sql"] == {
        "statement": sum(range(RECORDS)),
        "table": RECORDS,
        "written": [-1, *range(990, RECORDS)],
    }
    assert found["totals"] == [[odd, RECORDS // 2] for odd in (0, 1)]
    in_sql = {"STREAM": list(range(995, RECORDS))} if installed() >= (4, 1) else {}
    assert found["views"] == {"few": 10, "now": RECORDS, "view": list(range(995, RECORDS)), **in_sql}
    assert "Install the package on the server and on its executors" in found["shipping"]
