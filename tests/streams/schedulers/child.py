"""Runs a script in an interpreter of its own, to see how it ends, and parts of it in a forked child."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

from tests.streams.schedulers.rigs import PATIENCE

_TOOK_LONG = re.compile(r"^Executing <.*> took \d+\.\d+ seconds\n", re.MULTILINE)
"""What a loop says in development mode when the machine was busy with something else: nobody's fault."""


IN_CHILD = f"""
import os, signal, sys, warnings

warnings.simplefilter("ignore", DeprecationWarning)

def in_child(use, told="before a fork", refused=RuntimeError):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        signal.alarm({int(PATIENCE) - 10})  # a child that hangs must not outlive the test
        try:
            print("child", use(), flush=True)
        except refused as error:
            print("child", told in str(error), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
"""The beginning of a script with `in_child(use)`, which prints what a forked child gets from `use`.

Of an error, it prints whether the message has what the child is to be told.
"""


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
