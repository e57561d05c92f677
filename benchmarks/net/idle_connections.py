"""What does a connection cost that does nothing: how long does it take to open, how much memory does it hold?

Each connection gets one message and sends it back, and then stays. Each server is a new process, which has
had some connections before, so that what it loads and allocates once does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.net import load
from benchmarks.net.echo import BASE, echo_servers
from benchmarks.net.serving import Running, Server

__all__ = ["question"]

CONNECTIONS = 1_000
BEFORE = 20
"""Connections that were opened and closed before."""


@contextmanager
def question() -> Iterator[Question]:
    """Nobody is sent away, neither at once nor later; the load generator sees to that."""
    load.compiled()
    yield Question(
        name="net.idle_connections",
        title="connections that are opened, used once, and held",
        elements=CONNECTIONS,
        base=BASE,
        expected=lambda n: n,
        unit="connection",
        clock=Clock.BETWEEN_PROCESSES,
        fewest_rounds=1,
        alternatives=tuple(_alternative(server) for server in echo_servers()),
    )


def _alternative(server: Server) -> Alternative:
    def run(number: int) -> Timed:
        with Running(server) as running:
            with load.idle(running.port, connections=BEFORE):
                pass
            before = running.memory()
            with load.idle(running.port, connections=number) as report:
                held = running.memory() - before
            facts = {"bytes held per connection": held / number}
            return Timed(int(report["connections"]), round(report["seconds"] * 1e9), facts)

    return Alternative(server.name, run)
