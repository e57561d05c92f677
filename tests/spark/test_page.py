"""Every program of the Spark page runs, as a script and in a notebook; its tables are generated."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.notebook import open_notebook
from tests.examples.pages import ROOT, snippets_of
from tests.spark.option_tables import with_tables
from tests.spark.scripts import run_scripts

PAGE = "docs/spark.md"


def test_the_tables_of_options_are_those_of_the_fields() -> None:
    page = (ROOT / PAGE).read_text("utf-8")

    assert with_tables(page) == page, "run: python -m tests.spark.option_tables"


@pytest.mark.rare(45, kind="the page of Spark")
@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_the_programs_of_the_page_print_what_they_say(tmp_path: Path) -> None:
    """One after the other in one process."""
    said = {f"line{snippet.line}.py": snippet for snippet in snippets_of(PAGE)}
    for name, snippet in said.items():
        (tmp_path / name).write_text(snippet.script, "utf-8")

    printed = run_scripts([tmp_path / name for name in said], tmp_path)

    for name, snippet in said.items():
        assert snippet.output is not None, str(snippet)
        assert printed[name] == snippet.output.splitlines(), str(snippet)


@pytest.mark.rare(45, kind="the page of Spark")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_programs_of_the_page_run_in_a_notebook(tmp_path: Path) -> None:
    with open_notebook(tmp_path, patience=280) as notebook:
        for snippet in snippets_of(PAGE):
            cell = notebook.run(snippet)

            assert cell.errors == [], f"{snippet}: {cell.stderr}"
            assert cell.printed == snippet.output, str(snippet)
