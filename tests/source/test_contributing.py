"""The worked examples of CONTRIBUTING.md work, and need no more places than they list."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.source.repository import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PLACE = re.compile(
    r"^\d\. .+? In `(?P<path>[^`]+)`, (?:above the line `(?P<line>[^`]+)`|a new file):\n\n"
    r"    ```python\n(?P<code>.*?)^    ```$",
    re.MULTILINE | re.DOTALL,
)


class Place(NamedTuple):
    """What an example adds to one file."""

    path: str
    line: str | None
    code: str

    def add_to(self, root: Path) -> None:
        """Make the change in a copy of the source."""
        file = root / self.path
        if self.line is None:
            assert not file.exists(), f"{self.path} is not a new file"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.code, "utf-8")
            return
        lines = file.read_text("utf-8").splitlines(keepends=True)
        found = [number for number, line in enumerate(lines) if self.line in line]
        assert found, f"{self.path} has no line with {self.line}"
        at = found[0]
        while lines[at - 1].lstrip().startswith("@"):  # a method begins with its decorators
            at -= 1
        file.write_text("".join([*lines[:at], self.code, *lines[at:]]), "utf-8")


def places(title: str) -> list[Place]:
    """The places that an example lists, in their order."""
    section = PAGE.partition(f"### {title}")[2].partition("\n### ")[0].partition("\n## ")[0]
    return [
        Place(match["path"], match["line"], _dedented(match["code"])) for match in PLACE.finditer(section)
    ]


def _dedented(code: str) -> str:
    """Take away the four spaces that make a code block part of a list."""
    return "".join(line[4:] if line.strip() else line for line in code.splitlines(keepends=True))


COUNTS = {"A fused operator": 4, "A feed": 2, "An option of the Spark source": 2}

TESTS = [
    "tests/streams/operators/test_every.py",
    "tests/conformance/test_every_operator.py::test_it_keeps_the_rules[Flux.every]",
    "tests/conformance/test_every_operator.py::test_no_operator_is_without_an_entry",
    "tests/streams/test_marbles.py",
    "tests/feeds/test_numbers.py",
    "tests/spark/test_label.py",
    "tests/source/test_docstrings.py",
    "tests/source/test_front_doors.py",
]


@pytest.mark.parametrize(("title", "count"), COUNTS.items())
def test_an_example_lists_so_many_places(title: str, count: int) -> None:
    assert len(places(title)) == count


@pytest.mark.rare(15)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_examples_work_with_these_places(tmp_path: Path) -> None:
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path / name)
    for title in COUNTS:
        for place in places(title):
            place.add_to(tmp_path)

    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-2000:]
