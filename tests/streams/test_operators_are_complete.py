"""An operator is complete: kit, docstring, marble, and a row on the page of operators."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.streams import Flux, Mono
from penstock.testing import marble_examples
from tests.conformance import flux_shapes, mono_shapes
from tests.source.test_docstrings import OPERATOR_LINES, SOURCE_LINES
from tests.source.test_which_operator import calls, column, operators

SHAPES: dict[type, set[str]] = {
    Flux: {*flux_shapes.FLUX_SOURCES, *flux_shapes.FLUX_OPERATORS},
    Mono: {*mono_shapes.MONO_SOURCES, *mono_shapes.MONO_OPERATORS},
}
WAYS_OUT: dict[type, set[str]] = {Flux: flux_shapes.EXITS, Mono: mono_shapes.EXITS}
"""Not operators: they consume a stream, or look at it, and give no stream that could be drawn or verified."""
COLUMNS: dict[type, int] = {Flux: 0, Mono: 1}

WITHOUT_MARBLE: dict[str, str] = {
    "Flux.map_parallel": "its processes know nothing of virtual time",
    "Flux.from_queue": "a queue is filled by other threads or tasks, which virtual time does not steer",
    "Flux.to_queue": "what it does shows in the queue, not in the stream",
}
"""Operators for which a marble makes no sense, each with the reason."""


def public(stream: type) -> list[str]:
    return sorted(operators(stream) - WAYS_OUT[stream])


def missing(stream: type, name: str) -> Iterator[str]:
    """What an operator does not have."""
    method = inspect.getattr_static(stream, name)
    docstring = inspect.getdoc(getattr(stream, name)) or ""
    if name not in SHAPES[stream]:
        yield "a shape in tests/conformance, so that the kit verifies it"
    needed = SOURCE_LINES if isinstance(method, staticmethod | classmethod) else OPERATOR_LINES
    lines = docstring.splitlines()
    for start in needed:
        if not any(line.startswith((start, f"Never {start.split()[0].lower()}")) for line in lines):
            yield f"a line '{start} …' in its docstring"
    if f"{stream.__name__}.{name}" not in WITHOUT_MARBLE and not list(marble_examples(docstring)):
        yield "a marble at the end of its docstring"
    if name not in {called for owner, called in calls(column(COLUMNS[stream])) if not owner}:
        yield "a row in docs/which-operator.md"


@pytest.mark.parametrize(
    ("stream", "name"), [(stream, name) for stream in (Flux, Mono) for name in public(stream)]
)
def test_an_operator_has_all_that_makes_it_complete(stream: type, name: str) -> None:
    assert list(missing(stream, name)) == []


def test_what_has_no_marble_has_a_reason_and_exists() -> None:
    known = {f"{stream.__name__}.{name}" for stream in (Flux, Mono) for name in public(stream)}

    assert set(WITHOUT_MARBLE) <= known
    assert all(WITHOUT_MARBLE.values())


class _Bare(Flux[Any]):
    """A Flux with an operator that has nothing but its name."""

    __slots__ = ()

    def bare(self) -> Flux[Any]:
        return self


def test_an_operator_with_nothing_but_its_name_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    for table, value in ((SHAPES, set()), (WAYS_OUT, set()), (COLUMNS, 0)):
        monkeypatch.setitem(table, _Bare, value)

    assert len(list(missing(_Bare, "bare"))) == 1 + len(OPERATOR_LINES) + 1 + 1
