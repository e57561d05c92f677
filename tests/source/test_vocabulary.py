"""One word for each thing: docs/vocabulary.md has the words, and those that were retired do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.source.architecture import ways_in
from tests.source.fronts import Source
from tests.source.measures import NOUNS_IN_ING, demand_words, homonyms, verbs
from tests.source.repository import ROOT

SOURCE = Source.of(ROOT)
PAGE = (ROOT / "docs/vocabulary.md").read_text("utf-8")
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text("utf-8")

WORDS_FOR_DEMAND = {"demand", "credit"}
"""*Demand* inside a process, *credit* on the wire."""

LEFT = {
    # The name of the field on the wire.
    "penstock.aquifer.protocol.extended_reader: shelf",
    "penstock.aquifer.protocol.session_opener: shelf",
    "penstock.aquifer.security.access: _complaint",
}
"""Names with a retired word in them; the list only gets shorter."""

RETIRED = {
    "bell": "waker",
    "hush": "drain",
    "desk": "session table",
    "doors": "data ports",
    "courier": "producer",
    "bookmark": "cursor",
    "bookmarks": "cursor",
    "shelf": "shared memory segment",
    "shelves": "shared memory segments",
    "lookout": "segment reader",
    "wishes": "subscribe options",
    "notes": "record metadata",
    "allowance": "demand or credit",
    "complaint": "error",
    "complaints": "errors",
}
"""Words that are no part of a name any more, and what is said instead."""


def named() -> Iterator[tuple[str, str]]:
    """Every name that the code gives to a module, a class, a function or an attribute, with its module."""
    for module in SOURCE.modules.values():
        yield module.name, module.name.split(".")[-1]
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield module.name, node.name
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield module.name, node.attr


def test_no_retired_word_is_part_of_a_name() -> None:
    found = []
    for module, name in named():
        parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")
        if f"{module}: {name}" not in LEFT:
            found += [f"{module}: {name}: say {RETIRED[part]}" for part in parts if part in RETIRED]

    assert "\n".join(sorted(set(found))) == ""


def test_demand_has_two_words() -> None:
    on_the_way = {module for pair in ways_in(ARCHITECTURE)["demand"] for module in pair}
    used = {word for word, count in demand_words(SOURCE, on_the_way).items() if count}

    assert used <= WORDS_FOR_DEMAND


def test_no_two_classes_share_a_name() -> None:
    assert homonyms(SOURCE) == {}


def test_files_are_named_by_nouns() -> None:
    assert verbs(SOURCE) == [], f"nouns that end in -ing: {', '.join(sorted(NOUNS_IN_ING))}"


def test_every_word_has_one_sentence() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    entries = [(word, meaning) for word, meaning in rows if word not in ("Word", "---")]

    assert len(entries) > 40
    assert [word for word, meaning in entries if not re.fullmatch(r"[A-Z`].*[^.]\.", meaning)] == []
