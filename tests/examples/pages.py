"""The pages of the documentation, and the programs on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Snippet", "pages", "snippets_of"]

ROOT = Path(__file__).parents[2]
_SNIPPET = re.compile(
    r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?(?:\n(In a notebook, [^\n]*)\n)?", re.DOTALL
)
_EVERYWHERE = " in every example of this page"
_INSTEAD = re.compile(r"`([^`]+)` instead of `([^`]+)`")


@dataclass(frozen=True)
class Snippet:
    """A program on a page, what stands below it as its output, and what a notebook needs instead."""

    page: str
    line: int
    script: str
    output: str | None
    in_notebook: tuple[tuple[str, str], ...]
    """What to write, and what it replaces."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Every page that has programs, as its path from the root."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in found if "```python\n" in path.read_text("utf-8")]


def snippets_of(page: str) -> Iterator[Snippet]:
    """The programs of a page, from top to bottom."""
    text = (ROOT / page).read_text("utf-8")
    sentences = [line for line in text.splitlines() if line.startswith("In a notebook, ")]
    everywhere = [pair for line in sentences if _EVERYWHERE in line for pair in _INSTEAD.findall(line)]
    for found in _SNIPPET.finditer(text):
        here = _INSTEAD.findall(found[3] or "")
        pairs = tuple(dict.fromkeys(pair for pair in [*here, *everywhere] if pair[1] in found[1]))
        missing = [old for _, old in here if old not in found[1] and _EVERYWHERE not in (found[3] or "")]
        assert not missing, f"{page} replaces what is not in the program above it: {missing}"
        yield Snippet(page, text.count("\n", 0, found.start()) + 1, found[1], found[2], pairs)
