"""What the front page points to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
LINK = re.compile(r"\]\((?![a-z]+:)([^)#]*)(?:#([^)]*))?\)")
TEST = re.compile(r"`(tests/[\w/.]+)`")


def heading_anchors() -> set[str]:
    titles = re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize(("path", "anchor"), LINK.findall(README))
def test_a_link_leads_somewhere(path: str, anchor: str) -> None:
    if path:
        assert (ROOT / path).exists()
    else:
        assert anchor in heading_anchors()


@pytest.mark.parametrize("path", TEST.findall(README))
def test_a_promise_has_the_test_that_shows_it(path: str) -> None:
    found = ROOT / path

    assert found.is_file() or any(found.glob("**/test_*.py"))
