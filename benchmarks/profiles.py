"""``python -m benchmarks --profile NAME``: where the time of something that is measured goes.

For most names this is a table of functions: how often each is called for an element, and its share of the
time. The profiler slows down calls and nothing else, so the shares show the order and not the size. What a
part costs is told by *parts*, where each line does what the line before it does and one thing more; these are
measured in interleaved rounds, without a profiler.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from benchmarks import report
from benchmarks.measuring import Alternative, Question, measure

__all__ = ["NAMES", "show"]

ELEMENTS = 20_000
SECONDS = 3.0
ROWS = 10

_SERVERS = {
    "net.echo": "penstock-fused",
    "net.echo, an operator between": "penstock-mapped",
    "net.lines": "penstock-lines",
    "net.lines, async for … await send": "penstock-line-by-line",
}


# ------------------------------------------------------------------------------------------ calls


@contextmanager
def _starting() -> Iterator[Callable[[int], object]]:
    from benchmarks.starting import pushed, stream

    yield lambda n: [pushed(stream()) for _ in range(n)]


@contextmanager
def _asynchronous() -> Iterator[Callable[[int], object]]:
    from benchmarks.asynchronous import add_up
    from benchmarks.workload import chain

    with asyncio.Runner() as runner:
        yield lambda n: runner.run(add_up(aiter(chain(n))))


@contextmanager
def _create() -> Iterator[Callable[[int], object]]:
    yield _row("create")


def _row(name: str) -> Callable[[int], object]:
    from benchmarks.matrix import ROWS as MATRIX
    from benchmarks.operators import subscribed

    (ours,) = [row.ours for row in MATRIX if row.name == name]
    return lambda n: subscribed(ours(n))


_LOCAL = {"starting": _starting, "asynchronous": _asynchronous, "create": _create}


def _profile_here(name: str) -> None:
    with _LOCAL[name]() as run:
        run(ELEMENTS // 10)
        profiler = cProfile.Profile()
        profiler.runcall(run, ELEMENTS)
    print(_table(pstats.Stats(profiler), ELEMENTS))


def _profile_server(name: str) -> None:
    """The server's process writes its profile when its input ends."""
    from benchmarks.net import load
    from benchmarks.net.serving import Running, Server

    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder, "profile"))
        profiled = [sys.executable, "-m", "cProfile", "-o", output, "-m", "benchmarks.net.servers"]
        with Running(Server(name, lambda: [*profiled, _SERVERS[name]])) as server:
            if name.startswith("net.lines"):
                load.stream(server.port, size=65_500, in_flight=262_000, seconds=SECONDS)
            else:
                load.pingpong(server.port, connections=100, size=64, seconds=SECONDS)
        stats = pstats.Stats(output)
        print(_table(stats, _calls_of(stats, "ended" if name.startswith("net.lines") else "on_next")))


def _calls_of(stats: pstats.Stats, name: str) -> int:
    """How often a function was called that is called once for each element."""
    figures: dict[Any, Any] = stats.stats  # type: ignore[attr-defined]
    return max(int(calls) for function, (_, calls, _, _, _) in figures.items() if function[2] == name)


def _table(stats: pstats.Stats, elements: int) -> str:
    figures: dict[Any, Any] = stats.stats  # type: ignore[attr-defined]
    rows = [
        (own, calls, _title(function))
        for function, (_, calls, own, _, _) in figures.items()
        if calls >= elements / 2000 and not function[0].startswith("<frozen")
    ]
    whole = sum(own for own, _, _ in rows)
    lines = ["| function | calls for each | share |", "| --- | --: | --: |"]
    for own, calls, title in sorted(rows, reverse=True)[:ROWS]:
        lines.append(f"| {title} | {calls / elements:.3f} | {100 * own / whole:.0f} % |")
    lines.append(f"| all together | {sum(calls for _, calls, _ in rows) / elements:.2f} | 100 % |")
    return "\n".join(lines)


def _title(function: tuple[str, int, str]) -> str:
    path, _, name = function
    if path == "~":
        return name.strip("<>").replace("built-in method ", "").replace("method ", "")
    return f"{Path(path).stem if path.endswith('.py') else 'compiled loop'}: {name}"


# ------------------------------------------------------------------------------------------ parts


def _parts_of_asynchronous(runner: asyncio.Runner) -> Question:
    from benchmarks.asynchronous import add_up, by_hand
    from benchmarks.chain import plain_loop
    from benchmarks.workload import add_one, chain, double, is_even, sum_of_chain

    nothing = object()

    async def in_handfuls(n: int) -> AsyncIterator[int]:
        """The generator by hand, with what lets others run: handfuls, and a look at the clock for each."""
        source, late = iter(range(n)), monotonic() + 0.001
        while True:
            if monotonic() > late:
                await asyncio.sleep(0)
                late = monotonic() + 0.001
            x: Any = nothing
            for x in islice(source, 32):
                x = add_one(x)
                if is_even(x):
                    yield double(x)
            if x is nothing:
                return

    return Question(
        name="asynchronous",
        title="parts of async for",
        elements=ELEMENTS,
        base="plain loop",
        expected=sum_of_chain,
        alternatives=(
            Alternative("plain loop", plain_loop),
            Alternative("+ an async generator", lambda n: runner.run(add_up(by_hand(n)))),
            Alternative("+ handfuls and the clock", lambda n: runner.run(add_up(in_handfuls(n)))),
            Alternative("+ None, notes, closing", lambda n: runner.run(add_up(aiter(chain(n))))),
        ),
    )


def _parts_of_create() -> Question:
    def pushes(push: Callable[[int], object], n: int, seen: list[int]) -> int:
        for x in range(n):
            push(x)
        return len(seen)

    def by_hand(n: int) -> int:
        seen: list[int] = []
        return pushes(seen.append, n, seen)

    def with_a_call(n: int) -> int:
        seen: list[int] = []
        return pushes(lambda x: seen.append(x), n, seen)

    def with_the_token(n: int) -> int:
        seen: list[int] = []
        token = Lock()

        def push(x: int) -> None:
            if token.acquire(False):
                try:
                    seen.append(x)
                finally:
                    token.release()

        return pushes(push, n, seen)

    def with_the_context(n: int) -> int:
        seen: list[int] = []
        token, run = Lock(), copy_context().run

        def push(x: int) -> None:
            if token.acquire(False):
                try:
                    run(seen.append, x)
                finally:
                    token.release()

        return pushes(push, n, seen)

    run_row: Callable[[int], Any] = _row("create")
    return Question(
        name="create",
        title="parts of an element of create",
        elements=ELEMENTS,
        base="list.append",
        expected=lambda n: n,
        alternatives=(
            Alternative("list.append", by_hand),
            Alternative("+ a function", with_a_call),
            Alternative("+ the token", with_the_token),
            Alternative("+ the context", with_the_context),
            Alternative("+ demand, end, None, counts", lambda n: len(run_row(n))),
        ),
    )


def _show_parts(name: str) -> None:
    if name == "create":
        print(report.answer_text(measure(_parts_of_create(), SECONDS)))
    elif name == "asynchronous":
        with asyncio.Runner() as runner:
            print(report.answer_text(measure(_parts_of_asynchronous(runner), SECONDS)))


# ------------------------------------------------------------------------------------------ operators


def _show_operators() -> None:
    """Each operator beside reactivex, the slowest first, with the calls that an element makes in both."""
    from benchmarks import operators
    from benchmarks.matrix import ROWS as MATRIX

    with operators.question() as question:
        both = {row.name for row in MATRIX if row.theirs is not None}
        kept = [one for one in question.alternatives if one.name.rpartition(": ")[0] in both]
        answer = measure(replace(question, alternatives=tuple(kept)), 20 * SECONDS)
    lines = [
        "| operator | Penstock / reactivex | by hand / reactivex | calls | of reactivex |",
        "| --- | --: | --: | --: | --: |",
    ]
    rows = []
    for row in MATRIX:
        if row.theirs is not None:
            ours, hand, theirs = (
                f"{row.name}: {column}" for column in (operators.OURS, operators.BY_HAND, operators.THEIRS)
            )
            runs = operators.columns(row)
            calls = [_calls(runs[column]) for column in (operators.OURS, operators.THEIRS)]
            rows.append((answer.ratio(ours, theirs), answer.ratio(hand, theirs), row.name, *calls))
    for ours_to, hand_to, title, ours_calls, their_calls in sorted(rows, reverse=True):
        lines.append(f"| {title} | {ours_to:.2f} | {hand_to:.2f} | {ours_calls:.1f} | {their_calls:.1f} |")
    print("\n".join(lines))


def _calls(run: Callable[[int], object], elements: int = 2_000) -> float:
    """Calls of Python and of C for each element: what twice as many elements cost more."""
    counts = []
    for n in (elements, 2 * elements):
        run(n)
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            run(n)
        finally:
            sys.setprofile(None)
        counts.append(calls)
    return (counts[1] - counts[0]) / elements


NAMES = ("operators", *_LOCAL, *_SERVERS)


def show(name: str) -> None:
    """Print where the time goes."""
    print(f"## {name}\n")
    if name == "operators":
        _show_operators()
    elif name in _SERVERS:
        _profile_server(name)
    else:
        _profile_here(name)
        _show_parts(name)
