"""Runs a script in an interpreter of its own, to see how it ends."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

from tests.streams.schedulers.rigs import PATIENCE

_TOOK_LONG = re.compile(r"^Executing <.*> took \d+\.\d+ seconds\n", re.MULTILINE)
"""What a loop says in development mode when the machine was busy with something else: nobody's fault."""


def run_script(script: str) -> str:
    """Return what `script` prints; it must end by itself, with success, and say nothing on stderr.

    In development mode the interpreter also tells of loops and sockets left open.
    """
    finished = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    complaints = _TOOK_LONG.sub("", finished.stderr)
    assert complaints == "", complaints
    assert finished.returncode == 0
    return finished.stdout
