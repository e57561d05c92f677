"""Every piece of code on the Spark page runs as printed, and every option is on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.spark.options import SINK_NAMES, SOURCE_NAMES
from tests.spark.scripts import run_scripts

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
SNIPPET = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("names", [SOURCE_NAMES, SINK_NAMES])
def test_every_option_is_on_the_page(names: tuple[str, ...]) -> None:
    text = PAGE.read_text("utf-8")

    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the snippets print, one after the other in one process."""
    folder = tmp_path_factory.mktemp("page")
    paths = []
    for number, (script, _) in enumerate(SNIPPET.findall(PAGE.read_text("utf-8"))):
        paths.append(folder / f"snippet{number}.py")
        paths[-1].write_text(script, "utf-8")
    return run_scripts(paths, folder)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", range(2))
def test_a_snippet_prints_what_it_says(number: int, printed: dict[str, list[str]]) -> None:
    _, output = SNIPPET.findall(PAGE.read_text("utf-8"))[number]

    assert printed[f"snippet{number}.py"] == output.splitlines()
