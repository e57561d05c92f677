"""Modules stay small and are named after what they hold, and they import only downwards."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source.repository import ROOT, SOURCE

LONGEST_MODULE = 600
# Names that say nothing, and so collect everything.
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "core"}


def test_no_module_is_long() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}

    long = [f"{path}: {length} lines" for path, length in lengths.items() if length > LONGEST_MODULE]

    assert "\n".join(long) == ""


@pytest.mark.parametrize("tree", ["src", "tests"])
def test_no_module_is_a_drawer(tree: str) -> None:
    paths = [*(ROOT / tree).rglob("*.py"), *(ROOT / tree).rglob("*/")]

    drawers = [str(path.relative_to(ROOT)) for path in paths if path.stem.strip("_") in DRAWERS]

    assert "\n".join(drawers) == ""


def test_the_import_contracts_hold() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [lint_imports, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stdout + result.stderr
