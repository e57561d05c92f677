"""A chain of operators is cut into segments, and each segment becomes one Python function, once per shape.

Most chains are one segment. The text of a segment's function (see :mod:`.codegen`) depends on the *kinds* of
its operators only (``map filter map``), so it is compiled once and cached; the user's functions are its
arguments.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from time import monotonic
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from penstock.spec import none_element
from penstock.streams.fusion.codegen import SOURCE, Head, LoopWriter, Tail
from penstock.streams.fusion.fragments import LOOP_NAMES, Kind
from penstock.streams.fusion.op import Labelled, Op, label_of

__all__ = [
    "PENDING",
    "CompiledLoop",
    "Shape",
    "compile_loop",
    "culprit",
    "cut",
    "emitted_before",
    "free_shape_of",
    "run",
    "shape_of",
    "states_of",
]

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
"""There may be something, but there is no demand for it."""


@dataclass(frozen=True, slots=True)
class CompiledLoop:
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

    An operator that emits before the first or after the last element is the last of its segment. It also
    starts one if an operator above it could stop the stream from inside a nested loop, because Python cannot
    leave two loops at once and still run the lines after them.
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
    head: Head,
    kinds: tuple[Kind, ...],
    tail: Tail,
    watched: bool,
    trusted: bool,
    paced: bool = False,
    free: bool = False,
    inbox: bool = False,
) -> CompiledLoop:
    """Compile one segment.

    ``watched`` means that ``S`` is told when, and how, the loop ends by itself; ``trusted`` that there is no
    ``None`` among the elements that come in; ``paced`` that an event loop waits while the loop runs; ``free``
    that everything was requested of a collection; ``inbox`` that the subscriber is one.
    """
    writer = LoopWriter(head, kinds, tail, watched, trusted, paced, free, inbox)
    text = writer.text()
    shape = " ".join(kind.name for kind in kinds[:6]) + (" …" if len(kinds) > 6 else "")
    filename = f"<penstock {head.value}→{tail.value}: {shape} #{next(_serial)}>"
    names = dict(LOOP_NAMES, PENDING=PENDING, FULL=FULL, monotonic=monotonic, islice=islice)
    exec(compile(text, filename, "exec"), names)
    # Registered, so that a traceback shows the compiled line.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    function = names["loop"]
    return CompiledLoop(function, function.__code__, text, len(kinds), writer.owner)


_serial = iter(range(1, 1 << 62))


class Shape(NamedTuple):
    """The compiled form of a chain: depends on the kinds of its operators only."""

    loops: tuple[CompiledLoop, ...]
    bases: tuple[int, ...]
    """Index of each loop's first operator."""
    leads: bool
    """Whether an operator emits before the first element."""
    opens: bool = False
    """Whether an operator makes many elements of one."""
    stateful: bool = True
    """Whether an operator has state that the drain has to see."""


def shape_of(
    ops: tuple[Op, ...],
    head: Head,
    tail: Tail,
    *,
    watched: bool,
    trusted: bool = False,
    paced: bool = False,
    inbox: bool = False,
) -> Shape:
    """Compile the chain, or find it compiled already."""
    return _shape(tuple([op.kind for op in ops]), head, tail, watched, trusted, paced, inbox)


@lru_cache(maxsize=4096)
def _shape(
    kinds: tuple[Kind, ...],
    head: Head,
    tail: Tail,
    watched: bool,
    trusted: bool,
    paced: bool,
    inbox: bool,
) -> Shape:
    loops: list[CompiledLoop] = []
    bases: list[int] = []
    base = 0
    segments = cut(kinds)
    managed = tail is Tail.PUSH
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        here = head if number == 0 else Head.SEGMENT
        there = tail if last else (Tail.SEGMENT if managed else Tail.PULL)
        told = watched and (managed or last)
        trusts, rests, appends = trusted or number > 0, paced and number == 0, inbox and last
        loops.append(compile_loop(here, segment, there, told, trusts, rests, inbox=appends))
        bases.append(base)
        base += len(segment)
    leads, opens = any(kind.lead for kind in kinds), any(kind.opens for kind in kinds)
    return Shape(tuple(loops), tuple(bases), leads, opens, any(kind.state for kind in kinds))


def free_shape_of(ops: tuple[Op, ...], *, watched: bool, trusted: bool) -> Shape | None:
    """The chain as a loop that is free, over a collection; None if a counter has to stay in it."""
    return _free_shape(tuple([op.kind for op in ops]), watched, trusted)


@lru_cache(maxsize=4096)
def _free_shape(kinds: tuple[Kind, ...], watched: bool, trusted: bool) -> Shape | None:
    if len(cut(kinds)) > 1 or any(kind.opens for kind in kinds):
        return None
    loop = compile_loop(Head.ITERABLE, kinds, Tail.PUSH, watched, trusted, free=True)
    leads, stateful = any(kind.lead for kind in kinds), any(kind.state for kind in kinds)
    return Shape((loop,), (0,), leads, False, stateful)


def states_of(ops: tuple[Op, ...], shape: Shape) -> list[Any]:
    """Fresh state for those operators that need it, one entry per operator."""
    if not shape.stateful:
        return [None] * len(ops)
    return [op.kind.state(*op.args) if op.kind.state else None for op in ops]


def run(
    shape: Shape,
    ops: tuple[Op, ...],
    states: list[Any],
    manager: Any,
    source: Any,
    out: Any,
    origin: str | Labelled,
    *,
    brief: bool = False,
) -> Any:
    """Start the loops on ``source``; returns the lowest one, which the others feed.

    ``brief`` says that so few elements come that code of its own would cost more than it saves.
    """

    def none(index: int) -> Exception:
        return none_element(ops[index].label if index >= 0 else label_of(origin))

    feed = source
    at = 0
    for loop, base in zip(shape.loops, shape.bases, strict=True):
        values: list[Any] = []
        while at < base + loop.size:
            op = ops[at]
            kind = op.kind
            for which in kind.uses:
                values.append(op.args[which])
            if kind.state:
                values.append(states[at])
            at += 1
        function = loop.function if brief and not shape.opens else _own_copy(loop)
        feed = function(manager, feed, out, none, base, *values)
    return feed


def _own_copy(loop: CompiledLoop) -> Callable[..., Any]:
    """The same function with code of its own.

    The interpreter specialises code: a call site that always calls the same function becomes cheap, one that
    calls many stays general. Streams of one shape share their text but not their functions, so sharing the
    code as well would make all of them slow; a copy takes a microsecond.
    """
    return FunctionType(loop.code.replace(), loop.function.__globals__)


def culprit(error: BaseException, shape: Shape) -> int:
    """The index of the operator that raised ``error``; SOURCE or TAIL if none of them did.

    The compiled text has a line for each operator, so the traceback tells; an element that does not fail pays
    nothing for it. ``StopIteration`` is turned into a ``RuntimeError`` by the generator that it leaves
    (an error and not an end), with the original as its cause.
    """
    for candidate in (error, error.__cause__):
        index = _search(candidate, shape) if candidate is not None else None
        if index is not None:
            return index
    return SOURCE


def emitted_before(error: BaseException, shape: Shape, manager: Any) -> int:
    """How many elements the loop of ``manager`` had sent on when it raised ``error``.

    It counts them in a variable of its own, and tells nobody before it stops.
    """
    for candidate in (error, error.__cause__):
        trace = None if candidate is None else candidate.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            if _runs(frame.f_code, shape, len(shape.loops) - 1) and frame.f_locals["S"] is manager:
                if "e" in frame.f_locals:
                    return int(frame.f_locals["e"])
                taken = manager.passed()
                return int(taken - frame.f_locals["d"] - (taken > 0))  # the last one was not sent
            trace = trace.tb_next
    return int(manager.emitted)


def _search(error: BaseException, shape: Shape) -> int | None:
    trace, level = error.__traceback__, -1
    while trace is not None and (level := _level_of(trace.tb_frame.f_code, shape)) < 0:
        trace = trace.tb_next
    if trace is None:
        return None
    while trace is not None and level >= 0 and _runs(trace.tb_frame.f_code, shape, level):
        # A signal may come between two lines, where there is no number.
        owner = shape.loops[level].owner.get(trace.tb_lineno, SOURCE)
        if owner >= 0:
            return shape.bases[level] + owner
        if owner != SOURCE:
            return owner
        # The line takes from the segment above: look whether the error came out of that one.
        trace, level = trace.tb_next, level - 1
    return SOURCE


def _level_of(code: CodeType, shape: Shape) -> int:
    """The last of the loops that ``code`` is a copy of, or -1."""
    level = len(shape.loops) - 1
    while level >= 0 and not _runs(code, shape, level):
        level -= 1
    return level


def _runs(code: CodeType, shape: Shape, level: int) -> bool:
    """Whether ``code`` is a copy of a loop: copies share their table of lines.

    They are equal, too, but CPython 3.11 loses a RecursionError while it compares them.
    """
    return code.co_linetable is shape.loops[level].code.co_linetable
