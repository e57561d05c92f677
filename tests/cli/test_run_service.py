"""``penstock run`` without anybody at a terminal: from cron, and under a service manager."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.aquifer import Gateway, LogReader, MemoryJournal
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, eventually, has, reading

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LONG = 400.0
AN_HOUR = 3600.0
RECORDS = 1000

APP = """
from penstock.spark import Pipeline

pipeline = Pipeline({source!r}, schema="n bigint", options={{"maxRecordsPerTrigger": "200"}}).into({sink!r})
"""


@contextlib.contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """``penstock run`` as cron starts it: in ``/``, with two variables and without a terminal or a HOME."""
    command = [sys.executable, "-m", "penstock", "run", str(folder / "app.py"), "--master", "local[2]"]
    command += ["--checkpoint", str(folder / "state"), *arguments]
    with (folder / "said").open("a") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            text=True,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LONG)


def said(folder: Path) -> str:
    return (folder / "said").read_text()


@pytest.fixture
def source() -> Iterator[Gateway]:
    records = Flux.range(RECORDS).map(lambda n: {"n": n})
    with Gateway(records, ANYWHERE, codec="json") as gateway:
        assert gateway.join(LONG)
        yield gateway


@pytest.fixture
def sink() -> Iterator[Gateway]:
    with Gateway(None, ANYWHERE, writable=True, journal=MemoryJournal(max_records=300)) as gateway:
        yield gateway


@pytest.mark.rare(60)
def test_a_service_that_is_stopped_in_a_batch_exits_with_0_and_loses_and_repeats_nothing(
    tmp_path: Path, source: Gateway, sink: Gateway
) -> None:
    (tmp_path / "app.py").write_text(APP.format(source=source.endpoint, sink=sink.endpoint))
    with LogReader(sink.endpoint) as log:
        log.state(name="slow", lease=AN_HOUR, acknowledge=0)
        # systemd sends SIGTERM to all processes of a service, or with KillMode=mixed to the first of them.
        for send in (os.kill, os.killpg):
            with running(tmp_path) as process:
                # Its batch waits for space: it is in the middle of one for as long as nobody reads.
                eventually(lambda: waits(tmp_path), "no batch waits", LONG)
                send(process.pid, signal.SIGTERM)
                assert process.wait(LONG) == 0, said(tmp_path)
            # The second is said where stopping takes longer than 20 seconds.
            assert re.search(r"stopped after|nothing is lost", said(tmp_path).splitlines()[-1])
            assert "Traceback" not in said(tmp_path)
            assert log.state().head == 200
            (tmp_path / "said").unlink()
            for left in waits(tmp_path):
                left.unlink()  # Its process was killed.
    with reading(sink.endpoint, id="slow", codec="json") as slow:
        with running(tmp_path, "--once", "--quiet") as process:
            assert process.wait(LONG) == 0, said(tmp_path)
        assert said(tmp_path) == "", "cron would send a mail"
        eventually(has(slow, RECORDS), "not everything is published", LONG)
        assert sorted(row["n"] for row in slow.items) == list(range(RECORDS))


@pytest.mark.rare(15)
@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to the command", "to all its processes"])
def test_sigterm_while_spark_starts_exits_with_0_and_leaves_no_process(
    tmp_path: Path, source: Gateway, sink: Gateway, send: Callable[[int, int], None]
) -> None:
    (tmp_path / "app.py").write_text(APP.format(source=source.endpoint, sink=sink.endpoint))
    with running(tmp_path) as process:
        eventually(lambda: "starting Spark" in said(tmp_path), "it hangs", LONG)
        eventually(lambda: len(group_of(process.pid)) > 1, "Java does not start", LONG)
        send(process.pid, signal.SIGTERM)
        assert process.wait(LONG) == 0, said(tmp_path)
        eventually(lambda: not group_of(process.pid), "processes stay behind", LONG)
    assert "Traceback" not in said(tmp_path)
    assert sink.status()["head"] == 0


def test_sigterm_while_the_file_of_the_pipeline_runs_exits_with_0(tmp_path: Path) -> None:
    marker = tmp_path / "runs"
    waiting = f"import pathlib, threading; pathlib.Path({str(marker)!r}).touch(); threading.Event().wait()"
    (tmp_path / "app.py").write_text(waiting)
    with running(tmp_path) as process:
        eventually(marker.exists, "it does not run the file", LONG)
        process.terminate()
        assert process.wait(LONG) == 0, said(tmp_path)
    assert said(tmp_path) == ""


def waits(folder: Path) -> list[Path]:
    """The notices of sinks that wait; see decision 0060."""
    return list(folder.glob("penstock-*/waits-*"))


def group_of(pid: int) -> list[int]:
    """The processes of a process group that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, group = (entry / "stat").read_text().rpartition(") ")[2].split()[:3]
                if int(group) == pid and state != "Z":
                    found.append(int(entry.name))
    return found
