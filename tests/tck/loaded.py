"""The legal subjects, many times over, on a machine that is kept busy: a failure is a false alarm.

From the root of a checkout::

    python -m tests.tck.loaded                          one run beside four busy loops
    python -m tests.tck.loaded --runs 100 --at-once 4   a hundred, four at a time, which are a load as well
    make tck-loaded ARGS="--runs 100 --at-once 4"       the same

It prints how many tests said what, and every failure with its whole message. It ends with 1 if there is one,
and also if the time is over before all runs are done.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.tck import PublisherVerification, Verification, run
from tests.tck.legal.publishers import WorksOnEachElement
from tests.tck.test_kills import LEGAL

ROOT = Path(__file__).parents[2]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep as many processes in a loop that does nothing."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def about_leaving(name: str) -> bool:
    """The tests in which a Subscriber leaves while elements are on their way."""
    return any(f"_spec{number}_" in name for number in (108, 305, 306, 307, 312, 313))


def working_for(milliseconds: int) -> type[Verification]:
    """The verification of a Publisher that takes so long for each element."""

    def create_publisher(self: Any, elements: int) -> Any:
        WorksOnEachElement.work = milliseconds / 1000
        return WorksOnEachElement(elements)

    settings = {"subject": f"WorksOnEachElement-{milliseconds}ms", "create_publisher": create_publisher}
    return type("TestSubject", (PublisherVerification,), settings)


def verifications() -> Iterator[tuple[str, type[Verification], Callable[[str], bool] | None]]:
    """Everything that is legal; of what is slow, the tests that could take it for broken."""
    for name, verification in LEGAL.items():
        yield name, verification, None
    for milliseconds in (25, 30, 35):
        verification = working_for(milliseconds)
        yield verification.subject_name(), verification, about_leaving


def one_run() -> dict[str, Any]:
    """Verify every legal subject once."""
    counts: Counter[str] = Counter()
    failures = []
    for name, verification, only in verifications():
        for result in run(verification, only):
            counts[result.verdict] += 1
            if result.verdict == "fail":
                failures.append(f"{name}: {result.test}: {result.message}")
    return {"counts": counts, "failures": failures}


def many_runs(runs: int, at_once: int, time_limit: float) -> tuple[int, Counter[str], list[str]]:
    """Verify them ``runs`` times, ``at_once`` at a time; says how many runs were done, and what came out."""
    command = [sys.executable, "-m", __spec__.name, "--one"]
    deadline = time.monotonic() + time_limit
    started, done = 0, 0
    counts: Counter[str] = Counter()
    failures: list[str] = []
    running: list[subprocess.Popen[str]] = []
    try:
        while running or (started < runs and time.monotonic() < deadline):
            while len(running) < at_once and started < runs and time.monotonic() < deadline:
                running.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
                started += 1
            process = running.pop(0)
            said, _ = process.communicate(timeout=max(1.0, deadline - time.monotonic()) + 600)
            if process.returncode != 0:
                failures.append(f"a run ended with {process.returncode}: {said}")
                continue
            found = json.loads(said)
            done += 1
            counts.update(found["counts"])
            failures += found["failures"]
            print(f"{done} of {runs} runs, {dict(counts)}, load {os.getloadavg()[0]:.1f}", flush=True)
    finally:
        for process in running:
            process.kill()
            process.wait()
    return done, counts, failures


def main(arguments: list[str]) -> int:
    """Do it; 0 if all runs were done and nothing failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tck.loaded", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--runs", type=int, default=1, help="how often each subject is verified (default 1)")
    parser.add_argument("--at-once", type=int, default=1, help="how many runs at the same time (default 1)")
    parser.add_argument("--loops", type=int, default=4, help="processes that only keep busy (default 4)")
    parser.add_argument(
        "--time-limit", type=float, default=3600, help="seconds for everything (default 3600)"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(one_run()))
        return 0
    began = time.monotonic()
    with busy(given.loops):
        done, counts, failures = many_runs(given.runs, given.at_once, given.time_limit)
    for failure in failures:
        print(failure)
    took = time.monotonic() - began
    print(
        f"{done} of {given.runs} runs beside {given.loops} busy loops in {took:.0f} s: "
        f"{sum(counts.values())} tests, {counts['fail']} false alarms"
    )
    return 0 if done == given.runs and not failures else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
