"""Every piece of code in the documentation runs as printed, and prints what stands below it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.running import run

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/index.md", "docs/net.md", "docs/streams.md"]
DECISIONS = [f"docs/decisions/{path.name}" for path in sorted((ROOT / "docs/decisions").glob("*.md"))]
SNIPPET = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def snippets() -> Iterator[object]:
    for page in PAGES + DECISIONS:
        text = (ROOT / page).read_text("utf-8")
        for found in SNIPPET.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            yield pytest.param(found[1], found[2], id=f"{page}:{line}")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_examples(page: str) -> None:
    assert SNIPPET.search((ROOT / page).read_text("utf-8"))


@pytest.mark.parametrize(("script", "output"), list(snippets()))
def test_a_snippet_prints_what_it_says(script: str, output: str | None, tmp_path: Path) -> None:
    assert output is not None, "put what it prints into a text block right below it"
    path = tmp_path / "app.py"
    path.write_text(script, "utf-8")

    # The page names the file of an error without its folder.
    assert run(path).replace(f"{tmp_path}/", "") == output
