"""All tests, as two runs of pytest side by side: `python -m tests.side_by_side`.

Half of the tests wait for processes most of the time: Spark, gateways that are killed, commands. They run
beside the others, which compute. What the first run says is shown as it comes, what the second one says when
it has ended. With arguments it is one run of pytest with these arguments.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

WAITING = ("tests/spark", "tests/aquifer/chaos", "tests/aquifer/faults", "tests/aquifer/plain", "tests/cli")
"""The folders whose tests mostly wait."""


def main(arguments: list[str]) -> int:
    """Run them; 0 if both runs passed."""
    pytest = [sys.executable, "-m", "pytest"]
    if arguments:
        return subprocess.call([*pytest, *arguments])
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as said:
        waiting = subprocess.Popen(
            # A cache of its own: both would write the same file.
            [*pytest, "-p", "no:cacheprovider", *WAITING],
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            first = subprocess.call([*pytest, *(f"--ignore={folder}" for folder in WAITING)])
            second = waiting.wait()
        except BaseException:
            waiting.terminate()
            waiting.wait()
            raise
        said.seek(0)
        print(said.read())
    print(f"both runs took {time.monotonic() - began:.0f} s; exit codes {first} and {second}")
    return first or second


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
