"""Gateways on one machine, and the driver and the tasks of Spark on another, with CURVE keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.aquifer import generate_keys, save_keys
from tests.aquifer.faults.rigs import eventually
from tests.spark.two_machines import Machine, two_machines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

DRIVER = Path(__file__).with_name("two_machines_driver.py")
ROOT = Path(__file__).parents[2]
RECORDS = 1000


@contextmanager
def gateway(machine: Machine, keys: Path, port: int, *arguments: str) -> Iterator[str]:
    """A gateway on a machine that is reached with keys alone; its endpoint."""
    endpoint, log = f"tcp://{machine.address}:{port}", keys / f"gateway-{port}.log"
    places = ("--control", "none", "--curve-control", endpoint)
    curve = ("--curve", str(keys / "gateway.key"), "--allow", str(keys / "allowed"))
    command = machine.command(sys.executable, "-m", "penstock", "gateway", *places, *curve, *arguments)
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        eventually(
            lambda: "serving" in log.read_text() or process.poll() is not None, "the gateway hangs", 120
        )
        assert process.poll() is None, log.read_text()
        yield endpoint
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.rare(25)
def test_a_driver_and_its_tasks_read_and_write_over_the_network_with_keys(tmp_path: Path) -> None:
    (tmp_path / "allowed").mkdir()
    save_keys(generate_keys(), tmp_path / "gateway")
    save_keys(generate_keys(), tmp_path / "spark")
    (tmp_path / "allowed" / "spark.pub").write_text((tmp_path / "spark.pub").read_text())
    lines = tmp_path / "lines"
    lines.write_text("".join(f'{{"n": {number}}}\n' for number in range(RECORDS)))
    with (
        two_machines() as (here, there),
        gateway(here, tmp_path, 5560, "--source", f"file:{lines}", "--codec", "json", "--stay") as source,
        gateway(here, tmp_path, 5561, "--source", "writers") as sink,
    ):
        arguments = [source, sink, str(tmp_path), str(tmp_path), there.address]
        driver = subprocess.run(
            there.command(sys.executable, str(DRIVER), *arguments),
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": there.address},
        )
        assert driver.returncode == 0, driver.stderr[-5000:]
        assert json.loads(driver.stdout.splitlines()[-1]) == [2 * number for number in range(RECORDS)]
