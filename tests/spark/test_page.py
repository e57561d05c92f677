"""Every piece of code on the Spark page runs as printed, and every option is on it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.options import SINK_NAMES, SOURCE_NAMES

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
SNIPPET = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("names", [SOURCE_NAMES, SINK_NAMES])
def test_every_option_is_on_the_page(names: tuple[str, ...]) -> None:
    text = PAGE.read_text("utf-8")

    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", range(2))
def test_a_snippet_prints_what_it_says(number: int, tmp_path: Path) -> None:
    script, output = SNIPPET.findall(PAGE.read_text("utf-8"))[number]
    path = tmp_path / "app.py"
    path.write_text(script, "utf-8")

    # Spark logs to the error output whatever one does, so that is only shown.
    finished = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path
    )
    assert finished.stdout == output, finished.stderr
    assert finished.returncode == 0, finished.stderr
