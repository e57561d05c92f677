"""Every example with Spark in it runs, ends by itself, and shows what it says it shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

SHOWN = {
    "13_spark_windows.py": [
        "20 windows of 10 minutes and 2 sensors",
        "6000 readings in them",
        "averages: [24.0, 25.0]",
    ],
    "14_spark_log_to_parquet.py": [
        "after run 1: 5000 lines, 500 warnings",
        "after run 2: 10000 lines, 1000 warnings",
        "different lines: 10000",
    ],
    "15_spark_two_gateways.py": ["1000 of 2000 orders are paid, 12998 in all"],
    "16_spark_enrichment.py": ["{'cellar': 750, 'nowhere': 750, 'roof': 750, 'yard': 750}"],
    "17_spark_state.py": ["second 199: yard silent", "second 260: yard back", "second 449: roof silent"],
}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_what_it_says(name: str, tmp_path: Path) -> None:
    # Spark logs to the error output whatever one does, so that is only shown.
    finished = subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
        cwd=tmp_path,
    )

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == SHOWN[name], finished.stderr


def test_no_example_is_left_out() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*spark*.py")) == sorted(SHOWN)
