"""How many records a second does a gateway deliver to one, four and sixteen subscribers together?

Each subscriber is a process, so on a machine with few cores most of what sixteen of them need is processor
time of their own, and the figures say more about that than about the gateway. A delivery is a record that one
subscriber got; everybody gets every record, and the slowest holds up the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks import gateway, zeromq
from benchmarks.measuring import Alternative, Clock, Question
from benchmarks.processes import Receiving, Sending, exchange

__all__ = ["question"]

SUBSCRIBERS = (1, 4, 16)


@contextmanager
def question() -> Iterator[Question]:
    """The same records for everybody; compared with raw PUB/SUB for as many."""
    extended = partial(gateway.subscribe, dialect="extended")
    plain = partial(zeromq.document_client, size=10_000)
    yield Question(
        name="aquifer_fan_out",
        title="records of 100 bytes to several subscribers, each a process",
        elements=3_200_000,
        base=_raw(1),
        expected=lambda n: n,
        unit="delivery",
        clock=Clock.BETWEEN_PROCESSES,
        fewest_rounds=1,
        alternatives=tuple(
            alternative
            for number in SUBSCRIBERS
            for alternative in (
                _alternative(_raw(number), number, zeromq.publish, zeromq.subscribe, 0.2),
                _alternative(f"Penstock, extended, to {number}", number, gateway.serve, extended),
                _alternative(f"Penstock, plain, to {number}", number, gateway.serve, plain, 0.2),
            )
        ),
    )


def _raw(number: int) -> str:
    return f"PUB/SUB, a message per record, to {number}"


def _alternative(
    name: str, number: int, send: Sending, receive: Receiving, share: float = 1.0
) -> Alternative:
    return Alternative(
        name,
        lambda n: exchange(n, send=send, receive=receive, receivers=number),
        share,
        base=_raw(number),
    )
