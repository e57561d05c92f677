"""Runs scripts that start Spark one after the other in one process, so that they share its Java.

``python -m tests.spark.scripts SCRIPT…`` prints the name of each script, as a line that nothing else prints,
and what the script prints.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_MARK = "\x1e script "


def run_scripts(
    paths: Sequence[Path], folder: Path, seconds: float = 1200, **environment: str
) -> dict[str, list[str]]:
    """What each of the scripts prints, by its name; all have to end well."""
    # Spark logs to the error output whatever one does, so that is only shown.
    finished = subprocess.run(
        [sys.executable, "-m", "tests.spark.scripts", *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={
            **os.environ,
            **environment,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PENSTOCK_SCRIPTS_IN": str(folder),
        },
    )
    printed: dict[str, list[str]] = {}
    for part in finished.stdout.split(_MARK)[1:]:
        name, *lines = part.splitlines()
        printed[name] = lines
    assert finished.returncode == 0, f"after {list(printed)}: {finished.stderr}"
    return printed


def main(paths: list[str]) -> None:
    os.chdir(os.environ["PENSTOCK_SCRIPTS_IN"])
    for path in paths:
        print(f"{_MARK}{Path(path).name}", flush=True)
        runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
