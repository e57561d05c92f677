"""A chain of operators, cut into compiled loops and set in motion."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any, NamedTuple

from penstock.spec import none_element
from penstock.streams.segment.compiling import Loop, compile_loop, cut
from penstock.streams.segment.fragments import Kind
from penstock.streams.segment.operators import Op
from penstock.streams.segment.writing import SOURCE, Head, Tail

__all__ = ["Shape", "culprit", "run", "shape_of", "states_of"]


class Shape(NamedTuple):
    """The compiled form of a chain: depends on the kinds of its operators only."""

    loops: tuple[Loop, ...]
    bases: tuple[int, ...]
    """Index of each loop's first operator."""
    leads: bool
    """Whether an operator speaks before the first element."""


def shape_of(
    ops: tuple[Op, ...], head: Head, tail: Tail, *, watched: bool, trusted: bool = False, paced: bool = False
) -> Shape:
    """Compile the chain, or find it compiled already."""
    return _shape(tuple([op.kind for op in ops]), head, tail, watched, trusted, paced)


@lru_cache(maxsize=4096)
def _shape(
    kinds: tuple[Kind, ...], head: Head, tail: Tail, watched: bool, trusted: bool, paced: bool
) -> Shape:
    loops: list[Loop] = []
    bases: list[int] = []
    base = 0
    segments = cut(kinds)
    managed = tail is Tail.PUSH
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        here = head if number == 0 else Head.SEGMENT
        there = tail if last else (Tail.SEGMENT if managed else Tail.PULL)
        told = watched and (managed or last)
        loops.append(compile_loop(here, segment, there, told, trusted or number > 0, paced and number == 0))
        bases.append(base)
        base += len(segment)
    return Shape(tuple(loops), tuple(bases), any(kind.lead for kind in kinds))


def states_of(ops: tuple[Op, ...]) -> list[Any]:
    """Fresh state for those operators that need it, one entry per operator."""
    return [op.kind.state(*op.args) if op.kind.state else None for op in ops]


def run(
    shape: Shape, ops: tuple[Op, ...], states: list[Any], manager: Any, source: Any, out: Any, origin: str
) -> Any:
    """Start the loops on ``source``; what is returned is the lowest one, the others feed it."""

    def none(index: int) -> Exception:
        return none_element(ops[index].label if index >= 0 else origin)

    feed = source
    for loop, base in zip(shape.loops, shape.bases, strict=True):
        end = base + loop.size
        values: list[Any] = []
        for op, state in zip(ops[base:end], states[base:end], strict=True):
            values += [op.args[which] for which in op.kind.uses]
            if op.kind.state:
                values.append(state)
        feed = _own_copy(loop)(manager, feed, out, none, base, *values)
    return feed


def _own_copy(loop: Loop) -> Callable[..., Any]:
    """The same function with code of its own.

    The interpreter adapts code to what it meets: a call site that always calls the same function becomes
    cheap, one that calls many stays general. Streams of one shape share their text but not their functions,
    so sharing the code as well would make all of them slow; a copy takes a microsecond.
    """
    return FunctionType(loop.code.replace(), loop.function.__globals__)


def culprit(error: BaseException, shape: Shape) -> int:
    """The index of the operator that raised ``error``; SOURCE or TAIL if it was none of them.

    The compiled text has a line for each operator, so the traceback knows; nothing is spent on an element
    that does not fail. ``StopIteration`` is turned into a ``RuntimeError`` by the generator that it leaves
    (an error and not an end), with the original as its cause.
    """
    for candidate in (error, error.__cause__):
        index = _search(candidate, shape) if candidate is not None else None
        if index is not None:
            return index
    return SOURCE


def _search(error: BaseException, shape: Shape) -> int | None:
    codes = [loop.code for loop in shape.loops]  # what runs is a copy, equal but not the same
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    if trace is None:
        return None
    level = max(i for i, code in enumerate(codes) if code == trace.tb_frame.f_code)
    while trace is not None and level >= 0 and trace.tb_frame.f_code == codes[level]:
        # A signal may come between two lines, where there is no number.
        owner = shape.loops[level].owner.get(trace.tb_lineno, SOURCE)
        if owner >= 0:
            return shape.bases[level] + owner
        if owner != SOURCE:
            return owner
        # The line takes from the segment above: look whether the error came out of that one.
        trace, level = trace.tb_next, level - 1
    return SOURCE
