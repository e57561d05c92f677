"""A standalone cluster of Spark on this machine: a master, workers, and a Python for their tasks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.spark.programs import java_home
from tests.aquifer.faults.rigs import eventually
from tests.spark.chaos.processes import Process, in_session, kill_session
from tests.spark.two_machines import LOOPBACK, Machine

PATIENCE = 400.0
"""Seconds that a part of the cluster may take to start."""

_TO_END = 120.0
"""Seconds that a part of it may take to end."""

SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For Java programs that live for a minute."""

CLUSTER_SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SMALL,
    "spark.driver.extraJavaOptions": SMALL,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    # No task before there are two executors that can take it.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "400s",
    "spark.cores.max": "2",
}
"""For drivers of a cluster with two workers."""

OURS = ("penstock", "_editable_impl_penstock", "__editable__", "pyspark_penstock")


class Program:
    """A daemon of Spark's in a session of its own, with all that it starts."""

    def __init__(
        self, log: Path, environment: dict[str, str], machine: Machine, name: str, *arguments: str
    ) -> None:
        import pyspark

        launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
        wishes = ("--host", machine.address, "--webui-port", "0", *arguments)
        self._command = machine.command(str(launcher), f"org.apache.spark.deploy.{name}", *wishes)
        self._environment = environment | {"SPARK_LOCAL_IP": machine.address}
        self._log = log
        self.start()

    def start(self) -> None:
        """Start it, for the first time or again."""
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, env=self._environment, start_new_session=True
            )

    def said(self, what: str) -> str:
        """What it has written to its log since it was started, as soon as it has."""

        def found() -> re.Match[str] | None:
            return re.search(what, self._log.read_text("utf-8", "replace"))

        eventually(
            lambda: found() is not None or self._process.poll() is not None,
            f"{self._log.name} is silent",
            PATIENCE,
        )
        match = found()
        assert match is not None, self._log.read_text("utf-8", "replace")[-3000:]
        return match[1]

    def processes(self) -> list[Process]:
        """Itself, and those that it has started."""
        return in_session(self._process.pid)

    def kill(self) -> None:
        """SIGKILL for all of them; when this returns, none is left."""
        kill_session(self._process.pid)
        self._process.wait(_TO_END)

    def close(self) -> None:
        """End it in good order."""
        self._process.terminate()  # A worker ends its executors.
        try:
            self._process.wait(_TO_END)
        finally:
            _end_group(self._process.pid)


class Worker(Program):
    """A machine of the cluster: its daemon, and the executors that this one starts."""

    def __init__(self, place: Path, environment: dict[str, str], machine: Machine, master: str) -> None:
        self.place = place
        """Where the files of its executors are."""
        wishes = ("--cores", "1", "--memory", "600m", "--work-dir", str(place))
        super().__init__(place.with_suffix(".log"), environment, machine, "worker.Worker", *wishes, master)

    def wait(self) -> None:
        """Wait until the master knows it."""
        self.said(r"(Successfully registered with master)")

    def forget_applications(self) -> None:
        """Remove what executors of earlier applications have left: each has a copy of all jars."""
        for folder in sorted(self.place.glob("app-*"))[:-1]:  # Their names begin with the time.
            shutil.rmtree(folder, ignore_errors=True)  # One that ends just now removes files, too.


@dataclass(frozen=True)
class Cluster:
    """What a driver and a test have to know."""

    master: str
    python: Path
    """A Python that has what the package needs, and not the package."""
    workers: tuple[Worker, ...]


def bare_python(folder: Path) -> Path:
    """A directory with a ``python3`` in it that finds every package of this environment except ours.

    So it is like a machine of a cluster on which somebody has installed the requirements.
    """
    packages, tools = folder / "packages", folder / "bin"
    packages.mkdir(parents=True)
    tools.mkdir()
    for key in ("purelib", "platlib"):
        for entry in Path(sysconfig.get_path(key)).iterdir():
            link = packages / entry.name
            if not entry.name.startswith(OURS) and entry.suffix != ".pth" and not link.exists():
                link.symlink_to(entry)
    script = tools / "python3"
    # Without `site` nothing else is found than what is said here, and what Spark adds.
    real = Path(sys.executable).resolve()
    script.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{packages}"\nexec "{real}" -S "$@"\n')
    script.chmod(0o755)
    return script


@contextmanager
def cluster(
    folder: Path, workers: int, *, machine: Machine = LOOPBACK, of_workers: Machine = LOOPBACK
) -> Iterator[Cluster]:
    """Start it, and end all of it; the master is on ``machine``."""
    python = bare_python(folder / "image")
    environment = os.environ | {
        "JAVA_HOME": str(java_home()),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    environment.pop("PYTHONPATH", None)
    environment.pop("PYSPARK_PYTHON", None)
    with ExitStack() as ending:
        daemon = Program(folder / "master.log", environment, machine, "master.Master", "--port", "0")
        ending.callback(daemon.close)
        master = daemon.said(r"Starting Spark master at (spark://\S+)")
        machines = []
        for number in range(workers):
            machines.append(Worker(folder / f"worker-{number}", environment, of_workers, master))
            ending.callback(machines[-1].close)
        for worker in machines:
            worker.wait()
        yield Cluster(master, python, tuple(machines))


def _end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return  # Nobody was left.
