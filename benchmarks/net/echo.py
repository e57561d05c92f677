"""What does our layer cost an echo server, beside a raw protocol and other libraries?

The server has one core, and the load generator another. On 1, 10 and 100 connections 64 bytes go to and fro;
on one connection 64 KiB are written at a time, with four of these writes in flight. All servers of a round
are under load one after the other, for a twentieth of a second each: a machine is fast at one moment and slow
at the next, and many short looks at each server tell more than a few long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from benchmarks.measuring import Alternative, Clock, Question, Timed
from benchmarks.net import load
from benchmarks.net.serving import Server, Serving, of_python, of_reactor_netty

__all__ = ["BASE", "echo_servers", "question"]

SECONDS = 0.05
"""How long each server is under load, at a time."""
MESSAGE, WRITE, WRITES_IN_FLIGHT = 64, 2**16, 4

BASE = "raw uvloop protocol"


def echo_servers() -> list[Server]:
    """All of them, the one that the others are compared to first."""
    return [
        of_python(BASE, "raw-uvloop"),
        of_python("Penstock, fused", "penstock-fused"),
        of_python("Penstock, not fused", "penstock-unfused"),
        of_python("Penstock, an operator between", "penstock-mapped"),
        of_python("raw asyncio protocol", "raw-asyncio"),
        of_python("asyncio streams on uvloop", "streams-uvloop"),
        of_python("asyncio streams", "streams-asyncio"),
        of_python("anyio on uvloop", "anyio"),
        of_python("trio", "trio"),
        *of_reactor_netty("echo"),
    ]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What goes to and fro."""

    name: str
    run: Callable[[int], load.Report]
    """Puts load on a port."""


def _traffic() -> Iterator[Traffic]:
    for connections in (1, 10, 100):
        run = partial(load.pingpong, connections=connections, size=MESSAGE, seconds=SECONDS)
        yield Traffic(f"{connections} connection{'s' * (connections > 1)}", run)
    run = partial(load.stream, size=WRITE, in_flight=WRITES_IN_FLIGHT * WRITE, seconds=SECONDS)
    yield Traffic("64 KiB writes", run)


@contextmanager
def question() -> Iterator[Question]:
    """Everything comes back, byte by byte; the load generator sees to that."""
    load.compiled()
    traffics, servers = list(_traffic()), echo_servers()
    with Serving(_warm_up) as serving:
        yield Question(
            name="net.echo",
            title="an echo server with one core",
            elements=1_000,
            base=f"{traffics[0].name}: {BASE}",
            expected=lambda n: n,
            unit="round trip",
            clock=Clock.BETWEEN_PROCESSES,
            fewest_rounds=5,
            alternatives=tuple(
                _alternative(serving, traffic, server) for traffic in traffics for server in servers
            ),
        )


def _warm_up(port: int, seconds: float) -> None:
    load.pingpong(port, connections=10, size=MESSAGE, seconds=seconds)
    load.stream(port, size=WRITE, in_flight=WRITES_IN_FLIGHT * WRITE, seconds=seconds / 2)


def _alternative(serving: Serving, traffic: Traffic, server: Server) -> Alternative:
    def run(number: int) -> Timed:
        report = traffic.run(serving.port_of(server))
        # The time is given, and the round trips are counted.
        taken = report["seconds"] * 1e9 / report["round_trips"]
        facts = {"thousand per s": 1e6 / taken, "MB per s": report["bytes"] / report["seconds"] / 1e6}
        if "p99_us" in report:
            facts["99 % within µs"] = report["p99_us"]
        return Timed(number, round(taken * number), facts)

    return Alternative(f"{traffic.name}: {server.name}", run, base=f"{traffic.name}: {BASE}")
