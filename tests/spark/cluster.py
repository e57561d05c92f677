"""A standalone cluster of Spark on this machine: a master, workers, and a Python for their tasks."""

from __future__ import annotations

import os
import re
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

PATIENCE = 400.0
"""Seconds that a part of the cluster may take to start."""

SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For Java programs that live for a minute."""

OURS = ("penstock", "_editable_impl_penstock", "__editable__", "pyspark_penstock")


@dataclass(frozen=True)
class Cluster:
    """What a driver and a test have to know."""

    master: str
    python: Path
    """A Python that has what the package needs, and not the package."""
    workers: tuple[Path, ...]
    """Where each worker keeps the files of its executors."""


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
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Start it, and end all of it."""
    python = bare_python(folder / "image")
    environment = os.environ | {
        "JAVA_HOME": str(java_home()),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
    }
    environment.pop("PYTHONPATH", None)
    environment.pop("PYSPARK_PYTHON", None)
    with ExitStack() as closing:

        def start(name: str, program: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
            log = folder / f"{name}.log"
            process = closing.enter_context(_program(program, arguments, environment, log))
            return process, log

        process, log = start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        master = _said(process, log, r"Starting Spark master at (spark://\S+)")
        places = []
        for number in range(workers):
            place = folder / f"worker-{number}"
            wishes = ("--cores", "1", "--memory", "600m", "--work-dir", str(place))
            process, log = start(place.name, "worker.Worker", "--host", "127.0.0.1", *wishes, master)
            places.append((process, log, place))
        for process, log, _ in places:
            _said(process, log, r"(Successfully registered with master)")
        yield Cluster(master, python, tuple(place for _, _, place in places))


@contextmanager
def _program(
    name: str, arguments: tuple[str, ...], environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    import pyspark

    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [str(launcher), f"org.apache.spark.deploy.{name}", "--webui-port", "0", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            yield process
        finally:
            process.terminate()  # A worker ends its executors.
            try:
                process.wait(30)
            finally:
                _end_group(process.pid)


def _end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return  # Nobody was left.


def _said(process: subprocess.Popen[bytes], log: Path, what: str) -> str:
    """What a program has written to its log, as soon as it has."""

    def found() -> re.Match[str] | None:
        return re.search(what, log.read_text("utf-8", "replace"))

    eventually(lambda: found() is not None or process.poll() is not None, f"{log.name} is silent", PATIENCE)
    match = found()
    assert match is not None, log.read_text("utf-8", "replace")[-3000:]
    return match[1]
