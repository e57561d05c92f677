"""Gateways on one machine, and Spark's tasks on another, with its driver or without it; with CURVE keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer import generate_keys, save_keys
from tests.aquifer.faults.rigs import eventually
from tests.spark.cluster import cluster
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


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with the keys of a gateway and of Spark, and what the gateway reads."""
    (tmp_path / "allowed").mkdir()
    save_keys(generate_keys(), tmp_path / "gateway")
    save_keys(generate_keys(), tmp_path / "spark")
    (tmp_path / "allowed" / "spark.pub").write_text((tmp_path / "spark.pub").read_text())
    (tmp_path / "lines").write_text("".join(f'{{"n": {number}}}\n' for number in range(RECORDS)))
    return tmp_path


@contextmanager
def both_gateways(machine: Machine, keys: Path) -> Iterator[tuple[str, str]]:
    """One to read from, and one to write to."""
    lines = ("--source", f"file:{keys / 'lines'}", "--codec", "json", "--stay")
    with (
        gateway(machine, keys, 5560, *lines) as source,
        gateway(machine, keys, 5561, "--source", "writers") as sink,
    ):
        yield source, sink


def ran(machine: Machine, master: str, ends: tuple[str, str], keys: Path, **more: str) -> dict[str, Any]:
    """What a driver on a machine says."""
    arguments = [master, *ends, str(keys), str(keys), machine.address]
    places = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    driver = subprocess.run(
        machine.command(sys.executable, str(DRIVER), *arguments),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env=os.environ | {"PYTHONPATH": places, "SPARK_LOCAL_IP": machine.address} | more,
    )
    assert driver.returncode == 0, driver.stderr[-5000:]
    found: dict[str, Any] = json.loads(driver.stdout.splitlines()[-1])
    return found


@pytest.mark.rare(25)
def test_a_driver_and_its_tasks_read_and_write_over_the_network_with_keys(keys: Path) -> None:
    with two_machines() as (here, there), both_gateways(here, keys) as ends:
        found = ran(there, "local[2]", ends, keys)
    assert found["numbers"] == [2 * number for number in range(RECORDS)]
    assert found["tasks"] == [found["driver"]]


@pytest.mark.rare(30)
def test_executors_on_another_machine_than_driver_and_gateways_read_and_write_with_keys(keys: Path) -> None:
    with (
        two_machines() as (here, there),
        both_gateways(here, keys) as ends,
        cluster(keys / "cluster", 1, machine=here, of_workers=there) as started,
    ):
        found = ran(here, started.master, ends, keys, PYSPARK_PYTHON=str(started.python))
    assert found["numbers"] == [2 * number for number in range(RECORDS)]
    assert len(found["tasks"]) == 1
    assert found["tasks"] != [found["driver"]], "the executor is on the driver's machine"
