"""Every program of the documentation also runs in a notebook, where an event loop is running already.

Each page is a notebook of its own: a kernel runs its programs from top to bottom, changed only as the page
says. The one about Spark is in tests/spark.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.notebook import open_notebook
from tests.examples.pages import pages, snippets_of


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in pages() if page != "docs/spark.md"])
def test_the_programs_of_a_page_run_in_a_notebook(page: str, tmp_path: Path) -> None:
    with open_notebook(tmp_path) as notebook:
        for snippet in snippets_of(page):
            cell = notebook.run(snippet)

            assert cell.errors == [], f"{snippet}: does the page say what to write in a notebook?"
            if page != "docs/conformance.md":  # Its kit makes Subscribers raise, which Publishers report.
                assert cell.stderr == "", str(snippet)
            if snippet.output is not None:
                assert cell.printed == snippet.output, str(snippet)
