"""Every program of the Spark page runs, as a script and in a notebook; its tables are generated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.notebook import open_notebook
from tests.examples.pages import ROOT, Snippet, snippets_of
from tests.spark.option_tables import with_tables
from tests.spark.scripts import run_scripts

PAGE = "docs/spark.md"
SNIPPETS = [pytest.param(snippet, id=str(snippet)) for snippet in snippets_of(PAGE)]


def test_the_tables_of_options_are_those_of_the_fields() -> None:
    page = (ROOT / PAGE).read_text("utf-8")

    assert with_tables(page) == page, "run: python -m tests.spark.option_tables"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the snippets print, one after the other in one process."""
    folder = tmp_path_factory.mktemp("page")
    paths = []
    for snippet in snippets_of(PAGE):
        paths.append(folder / f"line{snippet.line}.py")
        paths[-1].write_text(snippet.script, "utf-8")
    return run_scripts(paths, folder)


@pytest.mark.slow
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_prints_what_it_says(snippet: Snippet, printed: dict[str, list[str]]) -> None:
    assert snippet.output is not None
    assert printed[f"line{snippet.line}.py"] == snippet.output.splitlines()


@pytest.mark.rare(45)
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_programs_of_the_page_run_in_a_notebook(tmp_path: Path) -> None:
    with open_notebook(tmp_path, patience=280) as notebook:
        for snippet in snippets_of(PAGE):
            cell = notebook.run(snippet)

            assert cell.errors == [], f"{snippet}: {cell.stderr}"
            assert cell.printed == snippet.output, str(snippet)
