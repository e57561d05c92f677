"""docs/architecture.md and its drawings show what the code does."""

from __future__ import annotations

import pytest

from tests.source import architecture
from tests.source.fronts import Source
from tests.source.measures import crossings, traced
from tests.source.repository import ROOT

SOURCE = Source.of(ROOT)
PAGE = architecture.PAGE.read_text("utf-8")
AGAIN = "write it anew: python -m tests.source.architecture"


def test_the_imports_are_those_of_the_code() -> None:
    arrows = architecture.imports_between_packages(SOURCE)

    assert architecture.section(PAGE, "imports") == architecture.table_of_imports(arrows).strip(), AGAIN
    assert architecture.IMPORTS.read_text("utf-8") == architecture.draw_imports(arrows), AGAIN


def test_the_drawing_of_the_ways_is_that_of_the_page() -> None:
    ways = architecture.ways_in(PAGE)

    assert architecture.WAYS.read_text("utf-8") == architecture.draw_ways(ways), AGAIN
    assert architecture.section(PAGE, "ways") == architecture.table_of_ways(ways).strip(), AGAIN


def test_every_module_on_the_ways_exists() -> None:
    modules = {m for way in architecture.ways_in(PAGE).values() for pair in way for m in pair}

    assert [m for m in modules if m not in SOURCE.modules and "<compiled loop>" not in m] == [], AGAIN


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_ways_are_those_that_a_run_takes() -> None:
    shown = {way: set(pairs) for way, pairs in architecture.ways_in(PAGE).items()}
    seen: dict[str, set[tuple[str, str]]] = {"data": set(), "demand": set()}
    for _ in range(3):  # on a busy machine one run may miss a call that only sometimes happens
        for way, calls in traced(ROOT).items():
            seen[way] |= set(crossings(calls))
        if seen == shown:
            break

    assert seen == shown, AGAIN
