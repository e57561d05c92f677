"""``penstock run`` without anybody at a terminal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aquifer.faults.rigs import eventually

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LONG = 400.0


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


def test_sigterm_while_the_file_of_the_pipeline_runs_exits_with_0(tmp_path: Path) -> None:
    marker = tmp_path / "runs"
    waiting = f"import pathlib, threading; pathlib.Path({str(marker)!r}).touch(); threading.Event().wait()"
    (tmp_path / "app.py").write_text(waiting)
    with running(tmp_path) as process:
        eventually(marker.exists, "it does not run the file", LONG)
        process.terminate()
        assert process.wait(LONG) == 0, said(tmp_path)
    assert said(tmp_path) == ""
