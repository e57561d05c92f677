"""Writes the table of ``docs/spark-versions.md``: ``python -m tests.spark.version_table PYTHON…``.

Each PYTHON has another PySpark. With each, ``test_every_version.py`` runs, and what it finds becomes a
column; the columns of other versions stay.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["FEATURES", "PAGE", "column_of", "with_column"]

PAGE = Path(__file__).parents[2] / "docs" / "spark-versions.md"
FEATURES = (
    "batch",
    "stream",
    "AvailableNow",
    "sink",
    "foreachBatch",
    "stateful",
    "Connect",
    "pipelines",
)
_TABLE = re.compile(r"^\| Spark \|.*\n\|[-|]+\n(?:\|.*\n)*", re.MULTILINE)


def column_of(page: str, version: str) -> dict[str, str]:
    """What the page says of a version."""
    columns = _columns(page)
    return columns.get(version, {})


def with_column(page: str, version: str, outcomes: dict[str, str]) -> str:
    """The page with other words about a version."""
    columns = _columns(page) | {version: outcomes}
    versions = sorted(columns)
    lines = [f"| Spark | {' | '.join(versions)} |", "|---" * (len(versions) + 1) + "|"]
    for name in FEATURES:
        cells = (columns[each].get(name, "not tried") for each in versions)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return _TABLE.sub(lambda _: "\n".join(lines) + "\n", page, count=1)


def _columns(page: str) -> dict[str, dict[str, str]]:
    found = _TABLE.search(page)
    assert found is not None, f"{PAGE} has no table"
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines())
    return {version: {row[0]: row[at] for row in rows} for at, version in enumerate(head) if at}


def _tried(python: str) -> tuple[str, dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder, "outcomes")
        tests = Path(__file__).with_name("test_every_version.py")
        subprocess.run(
            [python, "-m", "pytest", "-q", str(tests)],
            env=os.environ | {"PENSTOCK_OUTCOMES": str(noted)},
            cwd=PAGE.parents[1],
            check=False,
        )
        if not noted.exists():
            raise SystemExit(f"{python}: the tests failed, so the page stays as it is")
        outcomes: dict[str, str] = json.loads(noted.read_text("utf-8"))
    version = subprocess.check_output([python, "-c", "import pyspark; print(pyspark.__version__)"], text=True)
    return ".".join(version.split(".")[:2]), outcomes


if __name__ == "__main__":
    for each in sys.argv[1:]:
        tried = _tried(each)
        PAGE.write_text(with_column(PAGE.read_text("utf-8"), *tried), "utf-8")
