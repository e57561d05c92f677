"""All tests, as several runs of pytest side by side: `python -m tests.side_by_side`.

Many tests wait for processes most of the time: Spark, gateways that are killed, commands, slow peers. They
run beside the others, which compute. What the first run says is shown as it comes, what the others say when
they have ended, and last of all which tests have failed. With arguments it is one run of pytest with these
arguments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from tests import quick_java

FIRST = "first"
"""The run of all tests that no other run has."""

RUNS = {
    "kits": ("tests/conformance", "tests/interop", "tests/tck"),
    "Spark": ("tests/spark",),
    "commands": ("tests/cli", "tests/end_to_end"),
    "Spark from outside": (
        "tests/spark/test_connect.py",
        "tests/spark/test_curve.py",
        "tests/spark/test_every_version.py",
        "tests/spark/test_examples.py",
        "tests/spark/test_page.py",
        "tests/spark/test_pipeline.py",
        "tests/spark/test_sessions.py",
        "tests/spark/test_source_killed.py",
    ),
    "storms": (
        "tests/spark/chaos",
        "tests/spark/test_backpressure.py",
        "tests/spark/test_cluster.py",
        "tests/spark/upserts",
        "tests/aquifer/chaos",
        "tests/observe/planted",
    ),
    "slow lines": (
        "tests/aquifer/faults",
        "tests/aquifer/plain",
        "tests/net/backpressure",
        "tests/net/http",
        "tests/net/framing",
        "tests/observe",
    ),
    "logs": ("tests/aquifer/log", "tests/feeds", "tests/kafka"),
    "pages": ("tests/examples", "tests/source"),
}
"""The tests that mostly wait, those that take longest first."""

OLDEST = "oldest Spark"
"""``make test-spark40``, which is last."""

RARE = {
    "kits": 40,
    "Spark": 40,
    "commands": 60,
    "Spark from outside": 110,
    "storms": 160,
    "logs": 60,
    "pages": 30,
    OLDEST: 40,
}
"""Seconds of processor time for the rare tests of a run (see :mod:`tests.rare_tests`)."""

AT_ONCE = 6
"""As many runs as this: with fewer, two processors have nothing to do for a third of the time.

With all at once, tests that count seconds would fail.
"""

_PYTEST = [sys.executable, "-m", "pytest"]


def main(arguments: list[str]) -> int:
    """Run them; 0 if all runs passed."""
    archive = quick_java.use_from_now_on()
    if arguments:
        return subprocess.call([*_PYTEST, *arguments])
    began = time.monotonic()
    codes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        for name in (FIRST, *RUNS, OLDEST):
            if name == "Spark":
                quick_java.write_archive(archive)
            if len(running) == AT_ONCE:
                codes.update([_next_that_ends(running, folder)])
            process = _start(name, folder)
            ending.callback(process.wait)
            ending.callback(process.terminate)
            running[process.pid] = name, process
        while running:
            codes.update([_next_that_ends(running, folder)])
        for test in _failed(folder):
            print(f"failed: {test}")
    took = time.monotonic() - began
    used = getrusage(RUSAGE_CHILDREN)
    print(
        f"all runs took {took:.0f} s and {used.ru_utime + used.ru_stime:.0f} s of processor time; "
        f"exit codes: {', '.join(f'{name} {code}' for name, code in codes.items())}"
    )
    return max(map(abs, codes.values()))


def _start(name: str, folder: str) -> subprocess.Popen[bytes]:
    """A run; those beside the first one write to a file what they have to say."""
    environment = {"PENSTOCK_RARE": str(RARE.get(name, 0)), **os.environ}
    if name == FIRST:
        left_out = {path for paths in RUNS.values() for path in paths}
        return subprocess.Popen(_tests(name, folder, (), left_out), env=environment)
    if name == OLDEST:
        command = ["make", "--no-print-directory", "test-spark40", "ARGS="]
    else:
        paths = RUNS[name]
        others = {path for other, theirs in RUNS.items() if other != name for path in theirs}
        command = _tests(name, folder, paths, {path for path in others if _is_in(path, paths)})
    with Path(folder, name).open("w") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)


def _tests(name: str, folder: str, paths: tuple[str, ...], left_out: set[str]) -> list[str]:
    """A run of pytest that notes which tests fail, apart from the others, and shows which took longest."""
    notes = ["-o", f"cache_dir={folder}/notes of {name}", "--durations=25", "--durations-min=5"]
    return [*_PYTEST, *notes, *paths, *(f"--ignore={path}" for path in sorted(left_out))]


def _next_that_ends(running: dict[int, tuple[str, subprocess.Popen[bytes]]], folder: str) -> tuple[str, int]:
    """Wait for any of the runs, show what it has said, and return its name and exit code."""
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert ended is not None, "it waits until one has ended"
    name, process = running.pop(ended.si_pid)
    code = process.wait()
    if name != FIRST:
        print(Path(folder, name).read_text(), flush=True)
    return name, code


def _failed(folder: str) -> list[str]:
    """What the runs have noted, as names that pytest takes."""
    notes = Path(folder).glob("notes of */v/cache/lastfailed")
    return sorted(test for note in notes for test in json.loads(note.read_text()))


def _is_in(path: str, folders: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
