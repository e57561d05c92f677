"""The page "Which operator do I need?" names every operator, and none that does not exist."""

import re
from collections.abc import Iterator

import pytest

from penstock import streams
from penstock.streams import Flux, Mono
from tests.source.repository import ROOT

PAGE = (ROOT / "docs" / "which-operator.md").read_text("utf-8")
ROW = re.compile(r"^\|[^|]*\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
CALL = re.compile(r"`(?:(\w+)\.)?(\w+)\([^`]*\)`")


def operators(stream: type) -> set[str]:
    """The public methods that the fluent mixins give to Flux or Mono."""
    mixins = (kind for kind in stream.__mro__ if kind.__module__.startswith("penstock.streams.api"))
    return {name for mixin in mixins for name in vars(mixin) if not name.startswith("_")}


def calls(text: str) -> Iterator[tuple[str, str]]:
    """Every `name(…)` or `owner.name(…)` in backticks, as (owner, name)."""
    return ((call[1] or "", call[2]) for call in CALL.finditer(text))


def column(number: int) -> str:
    return "\n".join(cells[number] for cells in ROW.findall(PAGE))


@pytest.mark.parametrize(("stream", "number"), [(Flux, 0), (Mono, 1)])
def test_every_operator_is_on_the_page(stream: type, number: int) -> None:
    named = {name for owner, name in calls(column(number)) if not owner}

    assert operators(stream) - named == set()


@pytest.mark.parametrize(("stream", "number"), [(Flux, 0), (Mono, 1)])
def test_a_column_names_only_what_its_type_has(stream: type, number: int) -> None:
    named = {name for owner, name in calls(column(number)) if not owner}

    assert named - operators(stream) == set()


def test_everything_called_on_the_page_exists() -> None:
    def exists(owner: str, name: str) -> bool:
        if owner in ("flux", "mono"):
            owner = owner.capitalize()
        if owner:
            return hasattr(getattr(streams, owner, None), name)
        return name in operators(Flux) | operators(Mono)

    unknown = [f"{owner}.{name}" if owner else name for owner, name in calls(PAGE) if not exists(owner, name)]

    assert unknown == []


def test_no_question_is_without_an_answer() -> None:
    rows = [cells for cells in ROW.findall(PAGE) if set(cells[0]) - set("-: ")]

    assert len(rows) > 50
    assert [cells for cells in rows if cells[0].strip() == cells[1].strip() == "–"] == []
