"""All tests, as several runs of pytest side by side: `python -m tests.side_by_side`.

Many tests wait for processes most of the time: Spark, gateways that are killed, commands, slow peers. They
run beside the others, which compute. What the first run says is shown as it comes, what the others say when
they have ended, and last of all which tests have failed. With arguments it is one run of pytest with these
arguments.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from tests import quick_java

BESIDE = {
    "commands": ("tests/cli", "tests/end_to_end"),
    "slow lines": (
        "tests/aquifer/faults",
        "tests/aquifer/plain",
        "tests/net/backpressure",
        "tests/net/http",
        "tests/net/framing",
        "tests/observe",
    ),
    "pages": ("tests/examples", "tests/feeds", "tests/source", "tests/spark/test_examples.py"),
    "kits": ("tests/conformance", "tests/interop", "tests/tck"),
    "Spark": ("tests/spark",),
    "storms": (
        "tests/spark/chaos",
        "tests/spark/test_backpressure.py",
        "tests/spark/test_cluster.py",
        "tests/aquifer/chaos",
        "tests/observe/planted",
    ),
}
"""The tests that mostly wait, in runs of about the same length. Those from "Spark" on start many Javas.

Each run waits most of its time: with fewer runs, two processors have nothing to do for a third of it.
"""

LAST = "storms"
"""It starts when the first run has ended, and so does ``make test-spark40`` with the oldest PySpark.

All at once would be too much for two processors: tests that count seconds would fail.
"""

_PYTEST = [sys.executable, "-m", "pytest"]


def main(arguments: list[str]) -> int:
    """Run them; 0 if all runs passed."""
    archive = quick_java.use_from_now_on()
    if arguments:
        return subprocess.call([*_PYTEST, *arguments])
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        everywhere = sorted(path for paths in BESIDE.values() for path in paths)
        left_out = [f"--ignore={path}" for path in everywhere]
        first = subprocess.Popen([*_PYTEST, *_notes_in(folder, "first"), *left_out])
        ending.callback(first.wait)
        ending.callback(first.terminate)
        beside: list[tuple[subprocess.Popen[bytes], Path]] = []
        codes: list[int] = []
        for name in BESIDE:
            if name == "Spark":
                quick_java.write_archive(archive)
            if name == LAST:
                codes = [first.wait()]
            said = Path(folder, name)
            beside.append((_start(name, said, ending), said))
        said = Path(folder, "oldest Spark")
        beside.append((_run(["make", "--no-print-directory", "test-spark40", "ARGS="], said, ending), said))
        for process, said in beside:
            codes.append(process.wait())
            print(said.read_text(), flush=True)
        for test in _failed(folder):
            print(f"failed: {test}")
    took = time.monotonic() - began
    used = getrusage(RUSAGE_CHILDREN)
    print(
        f"all runs took {took:.0f} s and {used.ru_utime + used.ru_stime:.0f} s of processor time; "
        f"exit codes {', '.join(map(str, codes))}"
    )
    return max(map(abs, codes))


def _start(name: str, said: Path, ending: ExitStack) -> subprocess.Popen[bytes]:
    """A run beside the first one, which writes to a file what it has to say."""
    paths = BESIDE[name]
    others = {path for other, theirs in BESIDE.items() if other != name for path in theirs}
    left_out = [f"--ignore={path}" for path in sorted(others) if path not in paths and _is_in(path, paths)]
    return _run([*_PYTEST, *_notes_in(str(said.parent), name), *paths, *left_out], said, ending)


def _run(command: list[str], said: Path, ending: ExitStack) -> subprocess.Popen[bytes]:
    with said.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    ending.callback(process.wait)
    ending.callback(process.terminate)
    return process


def _notes_in(folder: str, name: str) -> list[str]:
    """Have a run note which tests fail, apart from the other runs, and show which took longest."""
    return ["-o", f"cache_dir={folder}/notes of {name}", "--durations=25", "--durations-min=5"]


def _failed(folder: str) -> list[str]:
    """What the runs have noted, as names that pytest takes."""
    notes = Path(folder).glob("notes of */v/cache/lastfailed")
    return sorted(test for note in notes for test in json.loads(note.read_text()))


def _is_in(path: str, folders: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
