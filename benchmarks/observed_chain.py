"""What does it cost a chain to be observed?

Observed means that its process publishes its streams: a thread looks at them twenty times a second, and
somebody elsewhere asks for the figures once a second, as ``penstock top`` and a dashboard do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from select import select
from time import process_time_ns

from benchmarks.measuring import Alternative, Question, Timed
from benchmarks.processes import Facts, Line, beside
from benchmarks.workload import Unbounded, chain, sum_of_chain
from penstock.observe import Observer, publish

__all__ = ["question"]


@contextmanager
def question() -> Iterator[Question]:
    """map, filter, map into a Subscriber, with and without an observer."""
    yield Question(
        name="observed_chain",
        title="map, filter, map over a range into a Subscriber, observed or not",
        elements=5_000_000,
        base="not observed",
        expected=sum_of_chain,
        alternatives=(Alternative("not observed", alone), Alternative("observed", observed)),
    )


def alone(n: int) -> Timed:
    """Nobody looks."""
    return _timed(n)


def observed(n: int) -> Timed:
    """A thread looks, and another process asks it once a second; the first time when all has begun."""
    publication = publish()
    try:
        with beside(ask_each_second, os.getpid()) as asking:
            asking.hear()
            return _timed(n)
    finally:
        publication.close()


def _timed(n: int) -> Timed:
    subscriber = Unbounded()
    start = process_time_ns()
    chain(n).subscribe(subscriber)
    return Timed(subscriber.result(), process_time_ns() - start)


def ask_each_second(line: Line, process: int) -> Facts:
    """Ask a process for the figures of its streams until told to stop."""
    with Observer(str(process)) as observer:
        observer.look()
        line.say("ready")
        while not select([line], [], [], 1.0)[0]:
            observer.look()
    line.hear()
    return {}
