"""Every piece of code in the documentation runs as printed, and prints what stands below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.pages import Snippet, pages, snippets_of
from tests.examples.running import run

CONTINUED = {"docs/conformance.md", "docs/spec.md"}
"""Pages whose programs go on where the one above stopped; the tests of their layers run them."""
WITH_SPARK = {"docs/spark.md"}
SNIPPETS = [
    pytest.param(snippet, id=str(snippet))
    for page in pages()
    if page not in CONTINUED | WITH_SPARK
    for snippet in snippets_of(page)
]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/net.md", "docs/streams.md"])
def test_a_page_has_examples(page: str) -> None:
    assert page in pages()


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_prints_what_it_says(snippet: Snippet, tmp_path: Path) -> None:
    assert snippet.output is not None, "put what it prints into a text block right below it"
    path = tmp_path / "app.py"
    path.write_text(snippet.script, "utf-8")

    # The page names the file of an error without its folder.
    assert run(path).replace(f"{tmp_path}/", "") == snippet.output
