"""What does it cost to send small elements that a synchronous source has at hand?

The elements have 100 bytes. A write for each of them is a system call for each of them; what can be joined
without anybody waiting for it should be joined. The server has one core, and the load generator another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.net import load
from benchmarks.net.serving import Server, Serving, of_python, of_reactor_netty

__all__ = ["question"]

SECONDS = 0.1
"""How long each server is under load, at a time."""
ELEMENT = 100
"""Bytes."""


@contextmanager
def question() -> Iterator[Question]:
    """What arrives is the elements, one after the other; the load generator sees to that."""
    load.compiled()
    servers = [
        of_python("raw uvloop protocol, a write per element", "raw-uvloop-source"),
        of_python("raw uvloop protocol, 128 joined by hand before", "raw-uvloop-joined-source"),
        of_python("Penstock", "penstock-source"),
        of_python("asyncio streams on uvloop", "streams-uvloop-source"),
        *of_reactor_netty("source"),
    ]
    with Serving(_warm_up) as serving:
        yield Question(
            name="net.small_elements",
            title="elements of 100 bytes from a synchronous source to a socket",
            elements=1_000,
            base=servers[0].name,
            expected=lambda n: n,
            clock=Clock.BETWEEN_PROCESSES,
            fewest_rounds=5,
            alternatives=tuple(_alternative(serving, server) for server in servers),
        )


def _warm_up(port: int, seconds: float) -> None:
    load.sink(port, seconds=seconds)


def _alternative(serving: Serving, server: Server) -> Alternative:
    def run(number: int) -> Timed:
        report = load.sink(serving.port_of(server), seconds=SECONDS)
        # The time is given, and the elements are counted.
        taken = report["seconds"] * 1e9 * ELEMENT / report["bytes"]
        facts = {"thousand per s": 1e6 / taken, "MB per s": report["bytes"] / report["seconds"] / 1e6}
        return Timed(number, round(taken * number), facts)

    return Alternative(server.name, run)
