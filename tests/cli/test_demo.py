"""``penstock demo``: the whole way of the data, with real gateways and a real Spark."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def _start(tmp_path: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "demo", "--headless", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )


def test_demand_goes_left_when_the_reader_is_slow_and_everything_arrives(tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    demo = _start(tmp_path, "--duration", "20", "--picture", str(picture))

    shown, complaints = demo.communicate(timeout=800)

    assert demo.returncode == 0, shown + complaints
    assert "Nothing was lost, and nothing arrived twice." in shown
    sent, received = re.findall(r"(?:sent|received) +([\d,]+) readings, fingerprint (\w+)", shown)
    assert sent == received
    # The reader is slow, its gateway is full: so Spark waits, and the sensors, whose socket takes nothing.
    slow = re.findall(r"sensors +([\d,]+)/s.*results +(\d+)/16  reader slow", shown)
    assert max(int(held) for _, held in slow) >= 8, shown
    assert " BLOCKED " in shown
    waiting = re.search(r"waiting +([\d.]+) s", shown)
    assert waiting is not None
    assert float(waiting[1]) > 0
    drawn = picture.read_text()
    assert "Nothing was lost" in drawn
    assert drawn.count("the reader is slow") == 1
    assert "sensors BLOCKED" in drawn
    assert _left_in(tmp_path) == []


def test_ctrl_c_ends_every_part_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = _start(tmp_path, "--duration", "60")
    assert demo.stdout is not None
    for line in demo.stdout:
        if "starting Spark" in line:
            break

    demo.send_signal(signal.SIGINT)
    shown, complaints = demo.communicate(timeout=400)

    assert demo.returncode == 130, shown + complaints
    assert _left_in(tmp_path) == []
    assert _running_in(tmp_path) == []


def _left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith("penstock-demo")]


def _running_in(folder: Path) -> list[str]:
    """Processes that still have the folder in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if str(folder).encode() in command:
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found
