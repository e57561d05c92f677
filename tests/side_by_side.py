"""All tests, as several runs of pytest side by side: `python -m tests.side_by_side`.

Many tests wait for processes most of the time: Spark, gateways that are killed, commands, slow peers. They
run beside the others, which compute. What the first run says is shown as it comes, what the others say when
they have ended, and last of all which tests have failed and what each run has cost. With arguments it is one
run of pytest with these arguments.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests import quick_java, whole_cost

FIRST = "first"
"""The run of all tests that no other run has."""

OLDEST = "oldest Spark"
"""``make test-spark40``, which has its tests in the Makefile."""

LAKES = "Delta and Iceberg"
"""``make test-spark41``: the newest Spark that has both."""

BETWEEN = "a Spark between"
"""The table of versions with one of those between the oldest and the newest, another each time."""

OTHER_SPARKS = {
    OLDEST: ("test-spark40", "ARGS="),
    LAKES: ("test-spark41", "ARGS=tests/spark/lakes $(STORM)"),
    BETWEEN: random.choice((("test-spark41", "ARGS=$(EVERY_SPARK)"), ("test-spark42", "ARGS="))),
}
"""What ``make`` is given for the runs with another Spark."""

RUNS: dict[str, tuple[str, ...]] = {
    "slow lines": (
        "tests/aquifer/faults",
        "tests/aquifer/plain",
        "tests/net/backpressure",
        "tests/net/http",
        "tests/net/framing",
        "tests/observe",
    ),
    "logs": ("tests/aquifer/log", "tests/feeds", "tests/kafka"),
    "Spark": ("tests/spark",),
    "Spark from outside": (
        "tests/spark/test_connect.py",
        "tests/spark/test_curve.py",
        "tests/spark/test_every_version.py",
        "tests/spark/test_examples.py",
        "tests/spark/test_page.py",
        "tests/spark/test_pipeline.py",
        "tests/spark/test_sessions.py",
        "tests/spark/test_source_killed.py",
        "tests/spark/test_two_machines.py",
    ),
    "commands": ("tests/cli", "tests/end_to_end"),
    "kits": ("tests/conformance", "tests/interop", "tests/tck"),
    "storms": (
        "tests/spark/chaos",
        "tests/spark/test_backpressure.py",
        "tests/spark/test_cluster.py",
        "tests/spark/upserts",
        "tests/aquifer/chaos",
        "tests/observe/planted",
    ),
    OLDEST: (),
    LAKES: (),
    BETWEEN: (),
    "pages": ("tests/examples", "tests/source"),
}
"""The tests of each run. Those that mostly wait begin first, then those that take longest.

The last ones compute, and the very last is short, so that no processor has nothing to do at the end.
"""

RARE = {
    FIRST: 15,
    "slow lines": 25,
    "logs": 15,
    "Spark": 20,
    "Spark from outside": 45,
    "commands": 20,
    "storms": 40,
    "kits": 10,
    "pages": 10,
    OLDEST: 43,
    LAKES: 20,
    BETWEEN: 15,
}
"""Seconds of processor time for the rare tests of a run (see :mod:`tests.rare_tests`)."""

STARTS_JAVA = "Spark"
"""The first run that starts a Java with Spark in it."""

AT_ONCE = 7
"""As many runs as this, two of which do little but wait.

With fewer, two processors have nothing to do for a part of the time. With all at once, tests that count
seconds would fail.
"""

_PYTEST = [sys.executable, "-m", "pytest"]


@dataclass
class Run:
    """One of them."""

    name: str
    process: subprocess.Popen[bytes]
    began: float
    code: int = 0
    elapsed: float = 0.0
    used: float = 0.0
    """Processor time in seconds, with that of all its processes."""


def main(arguments: list[str]) -> int:
    """Run them; 0 if all runs passed."""
    # Thousands of Pythons are started, and each would compile the whole package anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    archive = quick_java.use_from_now_on()
    if arguments:
        return subprocess.call([*_PYTEST, *arguments])
    began = time.monotonic()
    ended: list[Run] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        running: dict[int, Run] = {}
        for name in (FIRST, *RUNS):
            if name == STARTS_JAVA:
                quick_java.write_archive(archive)
            if len(running) == AT_ONCE:
                ended.append(_next_that_ends(running, folder))
            process = _start(name, folder)
            ending.callback(process.wait)
            ending.callback(process.terminate)
            running[process.pid] = Run(name, process, time.monotonic())
        while running:
            ended.append(_next_that_ends(running, folder))
        for test in _failed(folder):
            print(f"failed: {test}")
    print(*_costs(ended, began), sep="\n")
    return max(run.code for run in ended)


def _costs(runs: list[Run], began: float) -> list[str]:
    """A line for each run in the order of their ends, and one for all."""
    lines = [
        f"{run.name:20} from {run.began - began:5.0f} s on for {run.elapsed:5.0f} s, "
        f"{run.used:5.0f} s of processor time, exit code {run.code}"
        for run in runs
    ]
    took, used = time.monotonic() - began, sum(run.used for run in runs)
    return [*lines, f"all runs took {took:.0f} s and {used:.0f} s of processor time"]


def _start(name: str, folder: str) -> subprocess.Popen[bytes]:
    """A run; those beside the first one write to a file what they have to say."""
    environment = {"PENSTOCK_RARE": str(RARE.get(name, 0)), **os.environ}
    if name == FIRST:
        left_out = {path for paths in RUNS.values() for path in paths}
        return subprocess.Popen(whole_cost.command_for(_tests(name, folder, (), left_out)), env=environment)
    if name in OTHER_SPARKS:
        command = ["make", "--no-print-directory", *OTHER_SPARKS[name]]
    else:
        paths = RUNS[name]
        others = {path for other, theirs in RUNS.items() if other != name for path in theirs}
        command = _tests(name, folder, paths, {path for path in others if _is_in(path, paths)})
    with Path(folder, name).open("w") as file:
        whole = whole_cost.command_for(command)
        return subprocess.Popen(whole, stdout=file, stderr=subprocess.STDOUT, env=environment)


def _tests(name: str, folder: str, paths: tuple[str, ...], left_out: set[str]) -> list[str]:
    """A run of pytest that notes which tests fail, apart from the others, and shows which took longest."""
    notes = ["-o", f"cache_dir={folder}/notes of {name}", "--durations=25", "--durations-min=5"]
    return [*_PYTEST, *notes, *paths, *(f"--ignore={path}" for path in sorted(left_out))]


def _next_that_ends(running: dict[int, Run], folder: str) -> Run:
    """Wait for any of the runs, show what it has said, and return it with what it has cost."""
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert ended is not None, "it waits until one has ended"
    run = running.pop(ended.si_pid)
    _, status, used = os.wait4(ended.si_pid, 0)
    run.code = run.process.returncode = abs(os.waitstatus_to_exitcode(status))
    run.elapsed = time.monotonic() - run.began
    run.used = used.ru_utime + used.ru_stime
    if run.name != FIRST:
        print(Path(folder, run.name).read_text(), flush=True)
    return run


def _failed(folder: str) -> list[str]:
    """What the runs have noted, as names that pytest takes."""
    notes = Path(folder).glob("notes of */v/cache/lastfailed")
    return sorted(test for note in notes for test in json.loads(note.read_text()))


def _is_in(path: str, folders: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
