"""The examples of the page about other libraries, and of the bridges' docstrings, run as printed."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from penstock.interop import reactivex_bridge
from tests.examples.running import run
from tests.examples.test_snippets import ROOT, SNIPPET

SNIPPETS = SNIPPET.findall((ROOT / "docs" / "interop.md").read_text("utf-8"))


@pytest.mark.parametrize(("script", "output"), SNIPPETS)
def test_an_example_of_the_page_prints_what_it_says(script: str, output: str, tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(script, "utf-8")

    assert run(path) == output


def test_the_examples_of_a_docstring_run_as_printed() -> None:
    failed, attempted = doctest.testmod(reactivex_bridge)

    assert (failed, attempted) == (0, 5)
