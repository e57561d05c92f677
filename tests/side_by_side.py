"""All tests, as several runs of pytest side by side: `python -m tests.side_by_side`.

Many tests wait for processes most of the time: Spark, gateways that are killed, commands, slow peers. They
run beside the others, which compute. What the first run says is shown as it comes, what the others say when
they have ended. With arguments it is one run of pytest with these arguments.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

BESIDE = {
    "Spark": ("tests/spark",),
    "storms": (
        "tests/spark/chaos",
        "tests/spark/test_backpressure.py",
        "tests/spark/test_cluster.py",
        "tests/aquifer/chaos",
        "tests/end_to_end",
    ),
    "processes": (
        "tests/aquifer/faults",
        "tests/aquifer/plain",
        "tests/cli",
        "tests/net/backpressure",
        "tests/net/http",
    ),
}
"""The tests that mostly wait, in runs of about the same length."""


SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For every Java that a test starts: none lives long enough for a better compiler to be worth its time."""


def main(arguments: list[str]) -> int:
    """Run them; 0 if all runs passed."""
    pytest = [sys.executable, "-m", "pytest"]
    os.environ["JDK_JAVA_OPTIONS"] = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {SHORT_LIVED}".strip()
    if arguments:
        return subprocess.call([*pytest, *arguments])
    began = time.monotonic()
    with ExitStack() as ending:
        waiting = []
        for name, paths in BESIDE.items():
            said = ending.enter_context(tempfile.TemporaryFile("w+"))
            others = {path for other, theirs in BESIDE.items() if other != name for path in theirs}
            left_out = [
                f"--ignore={path}" for path in sorted(others) if path not in paths and _is_in(path, paths)
            ]
            # A cache of its own, or none: all would write the same file.
            command = [*pytest, "-p", "no:cacheprovider", *paths, *left_out]
            # The others have the way: they never wait, and would be last.
            process = subprocess.Popen(["nice", *command], stdout=said, stderr=subprocess.STDOUT)
            ending.callback(process.wait)
            ending.callback(process.terminate)
            waiting.append((process, said))
        everywhere = sorted(path for paths in BESIDE.values() for path in paths)
        codes = [subprocess.call([*pytest, *(f"--ignore={path}" for path in everywhere)])]
        for process, said in waiting:
            codes.append(process.wait())
            said.seek(0)
            print(said.read(), flush=True)
    took = time.monotonic() - began
    print(f"all runs took {took:.0f} s; exit codes {', '.join(map(str, codes))}")
    return max(map(abs, codes))


def _is_in(path: str, folders: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
