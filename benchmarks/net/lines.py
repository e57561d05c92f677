"""What does it cost to answer each line that a socket receives?

A line has 100 bytes. Each goes through a function, and what comes out is sent back. Saturated, one connection
writes as much as it can, so that a chunk brings hundreds of lines. With one in flight, a line goes out when
the one before it is back. The server has one core, and the load generator another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.net import load
from benchmarks.net.serving import Server, Serving, of_python

__all__ = ["question"]

SECONDS = 0.05
"""How long each server is under load, at a time."""
LINE = 100
"""Bytes, with the end of the line."""
WRITE = 655 * LINE
IN_FLIGHT = 4 * WRITE

BASE = "raw uvloop protocol"


@contextmanager
def question() -> Iterator[Question]:
    """Every line comes back, in order; the load generator sees to that."""
    load.compiled()
    servers = [
        of_python(BASE, "raw-uvloop-lines"),
        of_python("Penstock, lines → map → send", "penstock-lines"),
        of_python("Penstock, async for … await send", "penstock-line-by-line"),
        of_python("asyncio streams on uvloop", "streams-uvloop-lines"),
    ]
    traffics: dict[str, Callable[[int], load.Report]] = {
        "saturated": partial(load.stream, size=WRITE, in_flight=IN_FLIGHT, seconds=SECONDS),
        "one in flight": partial(load.pingpong, connections=1, size=LINE, seconds=SECONDS),
    }
    with Serving(_warm_up) as serving:
        yield Question(
            name="net.lines",
            title="an answer to each line, with one core",
            elements=1_000,
            base=f"saturated: {BASE}",
            expected=lambda n: n,
            unit="line",
            clock=Clock.BETWEEN_PROCESSES,
            fewest_rounds=5,
            alternatives=tuple(
                _alternative(serving, traffic, run, server)
                for traffic, run in traffics.items()
                for server in servers
            ),
        )


def _warm_up(port: int, seconds: float) -> None:
    load.stream(port, size=WRITE, in_flight=IN_FLIGHT, seconds=seconds)


def _alternative(
    serving: Serving, traffic: str, load_on: Callable[[int], load.Report], server: Server
) -> Alternative:
    def run(number: int) -> Timed:
        report = load_on(serving.port_of(server))
        # The time is given, and the lines are counted.
        taken = report["seconds"] * 1e9 * LINE / report["bytes"]
        facts = {"thousand per s": 1e6 / taken, "MB per s": report["bytes"] / report["seconds"] / 1e6}
        return Timed(number, round(taken * number), facts)

    return Alternative(f"{traffic}: {server.name}", run, base=f"{traffic}: {BASE}")
