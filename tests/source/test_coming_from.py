"""The pages for those who know Reactor or reactivex: every name has an answer, and every answer exists."""

from __future__ import annotations

import inspect
import re

import pytest
import reactivex
from reactivex import operators as reactivex_operators

from penstock import streams
from penstock.streams import ConnectableFlux, Flux, Mono
from tests.source.repository import ROOT

ROW = re.compile(r"^\| `(\w+)` \| (–|`[^`]+`) \| (.*) ?\|$", re.MULTILINE)
WORDS = {"contextvars", "concurrency", "times", "transform_rails"}
"""Other words that stand in backticks on these pages."""


def section(page: str, title: str) -> str:
    """The text of a page below a heading."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


TABLES = {
    "Reactor's Flux": (section("coming-from-reactor.md", "Flux"), Flux),
    "Reactor's Mono": (section("coming-from-reactor.md", "Mono"), Mono),
    "reactivex.operators": (section("coming-from-reactivex.md", "Operators"), Flux),
    "reactivex": (section("coming-from-reactivex.md", "Sources and functions"), Flux),
}


def exists(owner: str, name: str, stream: type) -> bool:
    """Whether a name of the second column is ours: of the type of the table, or of whoever owns it."""
    if owner:
        return hasattr(getattr(streams, owner, None), name)
    return hasattr(stream, name) or name in streams.__all__


def first_call(answer: str) -> tuple[str, str]:
    """The owner, if it is named, and the name of what an answer begins with."""
    found = re.match(r"`(?:([A-Z]\w*)\.)?([a-z]\w*)\(", answer)
    assert found is not None, answer
    return found[1] or "", found[2]


@pytest.mark.parametrize("table", TABLES)
def test_every_answer_exists(table: str) -> None:
    text, stream = TABLES[table]
    wrong = []
    for name, answer, _ in ROW.findall(text):
        if answer != "–":
            owner, first = first_call(answer)
            chained = re.findall(r"\)\.([a-z]\w*)\(", answer)
            if not exists(owner, first, stream) or not all(
                any(hasattr(kind, each) for kind in (Flux, Mono, ConnectableFlux)) for each in chained
            ):
                wrong.append(f"{name}: {answer}")

    assert wrong == []


@pytest.mark.parametrize("table", TABLES)
def test_a_name_without_an_answer_has_a_reason(table: str) -> None:
    text, _ = TABLES[table]
    assert [name for name, answer, reason in ROW.findall(text) if answer == "–" and len(reason) < 10] == []


@pytest.mark.parametrize("table", TABLES)
def test_a_remark_names_only_what_exists(table: str) -> None:
    text, _ = TABLES[table]
    rows = {name for name, _, _ in ROW.findall(text)}
    wrong = []
    for name, _, remark in ROW.findall(text):
        for word in re.findall(r"`([a-z_]+)(?:\([^`]*\))?`", remark):
            known = (
                word in WORDS | rows or hasattr(Flux, word) or hasattr(Mono, word) or hasattr(streams, word)
            )
            if not known:
                wrong.append(f"{name}: {word}")

    assert wrong == []


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_an_answer_or_a_dash(table: str) -> None:
    text, _ = TABLES[table]
    rows = [line for line in text.split("|---|---|---|\n")[1].splitlines() if line.startswith("| ")]

    assert rows
    assert [row for row in rows if not ROW.match(row)] == []


@pytest.mark.parametrize(("table", "number"), [("Reactor's Flux", 187), ("Reactor's Mono", 116)])
def test_all_names_of_reactor_are_there_once(table: str, number: int) -> None:
    names = [name for name, _, _ in ROW.findall(TABLES[table][0])]

    assert len(names) == number
    assert len(names) == len(set(names))
    assert {"flatMap", "then", "zipWith", "retryWhen"} <= set(names)


def test_all_operators_of_reactivex_are_there() -> None:
    theirs = {
        name for name in reactivex_operators.__all__ if inspect.isfunction(getattr(reactivex_operators, name))
    }

    assert theirs - {name for name, _, _ in ROW.findall(TABLES["reactivex.operators"][0])} == set()


def test_all_functions_of_reactivex_are_there() -> None:
    theirs = {name for name in reactivex.__all__ if inspect.isfunction(getattr(reactivex, name))}

    assert theirs - {name for name, _, _ in ROW.findall(TABLES["reactivex"][0])} == set()
