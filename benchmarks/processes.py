"""One process that sends, others that receive, and the time between the first and the last of it.

Every run has processes of its own, so that none profits from what another has left behind, and so that the
peak of its memory is its own. They are forked from a server that has imported everything already. The order
is always the same: the sender says where it can be reached, the receivers connect, a first part of the
records warms everything up, and nothing is on its way any more when the sender is told to go on. From this
moment on the clock runs, until the last receiver has its last record. Both moments are read from the
machine's monotonic clock, which is the same for all processes.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeAlias

from benchmarks.measuring import Timed

__all__ = [
    "LONGEST",
    "RECORD",
    "Facts",
    "Line",
    "Receiving",
    "Relaying",
    "Sending",
    "beside",
    "exchange",
    "now",
]

RECORD = bytes(range(100))
"""What is sent: always the same 100 bytes."""
LONGEST = 60.0
"""Seconds after which a process that says nothing counts as lost."""
SETTLED = 0.05
"""Seconds between the end of the warm-up and the start of the clock: what is on its way arrives."""

now = time.monotonic_ns

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["benchmarks.gateway", "benchmarks.zeromq", "benchmarks.slow_line"])


class Line:
    """What a process and the one that started it say to each other."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def say(self, something: Any) -> None:
        """Tell the other side."""
        self._connection.send(something)

    def hear(self) -> Any:
        """What the other side says next; whatever went wrong there is raised here."""
        if not self._connection.poll(LONGEST):
            raise TimeoutError(f"nothing was heard from a process for {LONGEST:g} s")
        something = self._connection.recv()
        if isinstance(something, _Failure):
            raise RuntimeError(f"a process failed:\n{something.trace}")
        return something

    def waiting(self) -> bool:
        """Whether there is something to hear."""
        return self._connection.poll()

    def fileno(self) -> int:
        """What to wait on until there is something to hear."""
        return self._connection.fileno()


Facts: TypeAlias = Mapping[str, float]
Sending: TypeAlias = Callable[[Line, int, int, int], Facts]
"""Given the line, how many receivers, warm-up records and records there are: say the endpoint; send the
warm-up when all receivers are there; when told to go on, say the time, and send the rest; stay until told."""
Receiving: TypeAlias = Callable[[Line, str, int, int], Facts]
"""Given the line, the endpoint, the warm-up and the records: say that the warm-up has come; say the time of
the last record, and how many there were since the warm-up; stay until told."""
Relaying: TypeAlias = Callable[[Line, str], Facts]
"""Given the line and an endpoint: say another endpoint that leads there; stay until told."""


def exchange(
    deliveries: int,
    *,
    send: Sending,
    receive: Receiving,
    receivers: int = 1,
    warm_up: int = 20_000,
    relay: Relaying | None = None,
) -> Timed:
    """Let a process send, and others receive; each of them gets its part of the deliveries."""
    records = deliveries // receivers
    with ExitStack() as stack:
        sender = _start(stack, send, receivers, warm_up, records)
        endpoint = sender.hear()
        between = [] if relay is None else [_start(stack, relay, endpoint)]
        for line in between:
            endpoint = line.hear()
        others = [_start(stack, receive, endpoint, warm_up, records) for _ in range(receivers)]
        for other in others:
            other.hear()  # Warm.
        time.sleep(SETTLED)
        sender.say("go on")
        began = sender.hear()
        finished = [other.hear() for other in others]
        taken = max(moment for moment, _ in finished) - began
        facts = {"thousand per s": deliveries * 1e6 / taken}
        of_receivers = _dismissed("receiver", others)
        _dismissed("relay", between)
        facts |= _dismissed("sender", [sender]) | of_receivers
        return Timed(sum(count for _, count in finished), taken, facts)


@contextmanager
def beside(part: Callable[..., Facts], *arguments: Any) -> Iterator[Line]:
    """A process that plays its part while this one does its own; at the end it is told to stop."""
    with ExitStack() as stack:
        line = _start(stack, part, *arguments)
        yield line
        _dismissed("sender", [line])


def _start(stack: ExitStack, part: Callable[..., Facts], *arguments: Any) -> Line:
    ours, theirs = _processes.Pipe()
    process = _processes.Process(target=_play, args=(theirs, part, arguments), daemon=True)
    process.start()
    theirs.close()
    stack.callback(_end, process, ours)
    return Line(ours)


def _end(process: BaseProcess, connection: Connection) -> None:
    process.join(5.0 if sys.exception() is None else 0.1)
    if process.is_alive():
        process.kill()
        process.join()
    connection.close()


def _dismissed(role: str, lines: list[Line]) -> dict[str, float]:
    """Tell processes that they can go; the most of each fact that they have to tell."""
    for line in lines:
        line.say("stop")
    facts: dict[str, float] = {}
    for line in lines:
        for heading, fact in line.hear().items():
            title = f"{role} {heading}" if heading == _MEMORY else heading
            facts[title] = max(fact, facts.get(title, fact))
    return facts


_MEMORY = "MiB"


class _Failure:
    """What went wrong in a process."""

    def __init__(self, trace: str) -> None:
        self.trace = trace


def _play(connection: Connection, part: Callable[..., Facts], arguments: tuple[Any, ...]) -> None:
    """The whole life of a process."""
    line = Line(connection)
    try:
        facts = part(line, *arguments)
    except BaseException:
        line.say(_Failure(traceback.format_exc()))
    else:
        line.say({**facts, _MEMORY: _peak_memory()})


def _peak_memory() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
