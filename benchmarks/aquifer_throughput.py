"""What does a record cost on its way through a gateway to a process, beside ØMQ by hand?

Records have 100 bytes, there is one subscriber, and both processes share the machine. What the others give
for it: a loop over a socket neither bounds its memory nor notices a loss, and knows no demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks import gateway, zeromq
from benchmarks.measuring import Alternative, Clock, Question
from benchmarks.processes import Receiving, Sending, exchange

__all__ = ["question"]


@contextmanager
def question() -> Iterator[Question]:
    """Everything crosses, in order, one way or another."""
    yield Question(
        name="aquifer_throughput",
        title="records of 100 bytes to a subscriber in another process",
        elements=2_000_000,
        base="PUSH/PULL, a message per record",
        expected=lambda n: n,
        unit="record",
        clock=Clock.BETWEEN_PROCESSES,
        fewest_rounds=2,
        alternatives=(
            _alternative("PUSH/PULL, a message per record", zeromq.push, zeromq.pull, 0.2),
            _alternative("PUB/SUB, a message per record", zeromq.publish, zeromq.subscribe, 0.2),
            _alternative(
                "PUB/SUB, frames of 2500 and a call per record",
                zeromq.publish_frames,
                partial(zeromq.subscribe_frames, call=True),
            ),
            _alternative(
                "PUB/SUB, frames of 2500, no call",
                zeromq.publish_frames,
                partial(zeromq.subscribe_frames, call=False),
            ),
            _alternative("Penstock, extended", gateway.serve, partial(gateway.subscribe, dialect="extended")),
            _alternative(
                "Penstock, extended, read with for",
                gateway.serve,
                partial(gateway.loop, dialect="extended"),
                0.2,
            ),
            _alternative(
                "Penstock, extended, a source of lists of 2500",
                gateway.serve_lists,
                partial(gateway.subscribe, dialect="extended"),
            ),
            _alternative(
                "Penstock, extended, lists in and out",
                gateway.serve_lists,
                partial(gateway.subscribe, dialect="extended", batches=True),
            ),
            _alternative(
                "Penstock, extended, SQLite journal",
                gateway.serve_from_disk,
                partial(gateway.subscribe, dialect="extended"),
            ),
            _alternative(
                "Penstock, plain, REQ/SUB by hand, Next 10 000",
                gateway.serve,
                partial(zeromq.document_client, size=10_000),
                0.2,
            ),
            _alternative(
                "Penstock, plain, our subscriber",
                gateway.serve,
                partial(gateway.subscribe, dialect="plain"),
                0.2,
            ),
        ),
    )


def _alternative(name: str, send: Sending, receive: Receiving, share: float = 1.0) -> Alternative:
    return Alternative(name, lambda n: exchange(n, send=send, receive=receive), share)
