"""Runs a script in an interpreter of its own, as a reader of the documentation would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PATIENCE = 170.0


def run(script: Path) -> str:
    """Return what a script prints; it must end by itself, with success, and say nothing on stderr.

    With all warnings on, the interpreter also tells of files and loops left open.
    """
    finished = subprocess.run(
        [sys.executable, "-W", "default", script.name],
        cwd=script.parent,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert finished.stderr == ""
    assert finished.returncode == 0
    return finished.stdout
