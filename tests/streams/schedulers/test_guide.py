"""The examples of the guide run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.streams import schedulers
from tests.streams.schedulers.child import run_script

GUIDE = Path(__file__).parents[3] / "docs" / "schedulers.md"
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


def test_every_example_says_what_it_prints() -> None:
    assert len(EXAMPLES) == GUIDE.read_text("utf-8").count("```python") > 0


@pytest.mark.parametrize(("script", "output"), EXAMPLES)
def test_an_example_prints_what_it_says(script: str, output: str) -> None:
    assert run_script(script) == output


def test_every_factory_is_in_the_table() -> None:
    factories = {name for name in schedulers.__all__ if name.islower()}

    assert factories == set(re.findall(r"^\|[^|]*\| `(\w+)\(", GUIDE.read_text("utf-8"), re.MULTILINE))
