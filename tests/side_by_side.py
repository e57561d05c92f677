"""All tests, as three runs of pytest side by side: `python -m tests.side_by_side`.

Many tests wait for processes most of the time: Spark, gateways that are killed, commands, slow peers. They
run beside the others, which compute. What the first run says is shown as it comes, what the others say when
they have ended. With arguments it is one run of pytest with these arguments.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

SPARK = ("tests/spark",)
"""One Spark session for all of them, and some of their own."""
PROCESSES = (
    "tests/aquifer/chaos",
    "tests/aquifer/faults",
    "tests/aquifer/plain",
    "tests/cli",
    "tests/end_to_end",
    "tests/net/backpressure",
    "tests/net/http",
)
"""The other folders whose tests mostly wait."""


def main(arguments: list[str]) -> int:
    """Run them; 0 if all runs passed."""
    pytest = [sys.executable, "-m", "pytest"]
    if arguments:
        return subprocess.call([*pytest, *arguments])
    began = time.monotonic()
    with ExitStack() as ending:
        waiting = []
        for folders in (SPARK, PROCESSES):
            said = ending.enter_context(tempfile.TemporaryFile("w+"))
            # A cache of its own, or none: all would write the same file.
            command = [*pytest, "-p", "no:cacheprovider", *folders]
            process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
            ending.callback(process.wait)
            ending.callback(process.terminate)
            waiting.append((process, said))
        codes = [subprocess.call([*pytest, *(f"--ignore={folder}" for folder in SPARK + PROCESSES)])]
        for process, said in waiting:
            codes.append(process.wait())
            said.seek(0)
            print(said.read(), flush=True)
    took = time.monotonic() - began
    print(f"all runs took {took:.0f} s; exit codes {', '.join(map(str, codes))}")
    return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
