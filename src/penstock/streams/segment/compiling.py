"""Segments: a run of synchronous operators becomes one Python function, once per shape.

A chain is cut into segments; most chains are one. The text of a segment's function (see :mod:`.writing`)
depends on the *kinds* of its operators only (``map filter map``), so it is compiled once and cached; the
user's functions are its arguments.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from time import monotonic
from types import CodeType
from typing import Any

from penstock.streams.segment.fragments import LOOP_NAMES, Kind
from penstock.streams.segment.writing import Head, Tail, Writer

__all__ = ["PENDING", "Loop", "compile_loop", "cut"]

MOST_NESTED_LOOPS = 8
"""Python refuses more than 20 nested blocks; a few are ours."""
MOST_OPERATORS = 250
"""A longer run is cut, so that no compiled function grows without bound."""


class _Token:
    """Travels from segment to segment in place of an element."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


PENDING: Any = _Token("PENDING")
"""Nothing there now."""
FULL: Any = _Token("FULL")
"""There may be something, but nobody has asked for it."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A compiled segment."""

    function: Callable[..., Any]
    code: CodeType
    text: str
    size: int
    """How many operators it holds."""
    owner: dict[int, int]
    """Line number → index of the operator whose line it is, within the segment; SOURCE or TAIL."""


def cut(kinds: Iterable[Kind]) -> list[tuple[Kind, ...]]:
    """Cut a chain into segments, each of which can be one loop.

    An operator that speaks before the first or after the last element is the last of its segment. It also
    starts one if an operator above it could stop the stream from inside a nested loop: Python has no way to
    leave two loops at once and still run what follows them.
    """
    segments: list[tuple[Kind, ...]] = []
    current: list[Kind] = []
    nested = 0
    stops_inside = False
    for kind in kinds:
        too_long = len(current) >= MOST_OPERATORS or (kind.opens and nested >= MOST_NESTED_LOOPS)
        if current and (current[-1].ends_segment or too_long or (kind.flush and stops_inside)):
            segments.append(tuple(current))
            current, nested, stops_inside = [], 0, False
        current.append(kind)
        stops_inside = stops_inside or (kind.stops and nested > 0)
        nested += kind.opens
    segments.append(tuple(current))
    return segments


@lru_cache(maxsize=2048)
def compile_loop(
    head: Head, kinds: tuple[Kind, ...], tail: Tail, watched: bool, trusted: bool, paced: bool = False
) -> Loop:
    """Compile one segment.

    ``watched`` says that ``S`` wants to hear when, and how, it ends by itself; ``trusted`` that there is no
    ``None`` among the elements that come in; ``paced`` that an event loop waits while we work.
    """
    writer = Writer(head, kinds, tail, watched, trusted, paced)
    text = writer.text()
    shape = " ".join(kind.name for kind in kinds[:6]) + (" …" if len(kinds) > 6 else "")
    filename = f"<penstock {head.value}→{tail.value}: {shape} #{next(_serial)}>"
    names = dict(LOOP_NAMES, PENDING=PENDING, FULL=FULL, monotonic=monotonic, chain=chain, islice=islice)
    exec(compile(text, filename, "exec"), names)
    # Registered so that a traceback shows the compiled line instead of nothing.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    function = names["loop"]
    return Loop(function, function.__code__, text, len(kinds), writer.owner)


_serial = iter(range(1, 1 << 62))
