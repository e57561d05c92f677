"""What does it cost to make a stream of each element?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import reactivex
from reactivex import operators as ops

from benchmarks.measuring import Alternative, Question
from benchmarks.workload import Unbounded, sum_of_all
from penstock.streams import Flux, Mono

__all__ = ["question"]


@contextmanager
def question() -> Iterator[Question]:
    """The inner streams have one element, as most have that stand for a call."""
    yield Question(
        name="inner_monos",
        title="a stream of one element for each element, put into one",
        elements=500,
        base="reactivex flat_map",
        expected=sum_of_all,
        alternatives=(
            Alternative("reactivex flat_map", with_reactivex),
            Alternative("Penstock flat_map", lambda n: pushed(Flux.range(n).flat_map(Mono.just))),
            Alternative("Penstock concat_map", lambda n: pushed(Flux.range(n).concat_map(Mono.just))),
        ),
    )


def pushed(flux: Flux[int]) -> int:
    """To a Subscriber that asked for everything."""
    subscriber = Unbounded()
    flux.subscribe(subscriber)
    return subscriber.result()


def with_reactivex(n: int) -> int:
    """Unbounded."""
    subscriber = Unbounded()
    stream = reactivex.from_iterable(range(n)).pipe(ops.flat_map(reactivex.just))
    stream.subscribe(subscriber.on_next, subscriber.on_error, subscriber.on_complete)
    return subscriber.result()
