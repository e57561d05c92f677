"""What does an element of an inner stream cost?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import reactivex
from reactivex import operators as ops

from benchmarks.measuring import Alternative, Question
from benchmarks.workload import Unbounded
from penstock.streams import Flux

__all__ = ["question"]

LENGTH = 100


@contextmanager
def question() -> Iterator[Question]:
    """Streams of a hundred elements, put into one."""
    yield Question(
        name="inner_streams",
        title="streams of 100 elements each, put into one",
        elements=5_000,
        base="two nested loops",
        expected=lambda n: n // LENGTH * (LENGTH * (LENGTH - 1) // 2),
        alternatives=(
            Alternative("two nested loops", nested_loops),
            Alternative("Penstock flat_map_iterable", lambda n: pushed(outer(n).flat_map_iterable(numbers))),
            Alternative("Penstock concat_map", lambda n: pushed(outer(n).concat_map(inner))),
            Alternative("Penstock flat_map", lambda n: pushed(outer(n).flat_map(inner))),
            Alternative(
                "Penstock merge", lambda n: pushed(Flux.merge(*(inner(i) for i in range(n // LENGTH))))
            ),
            Alternative(
                "Penstock concat", lambda n: pushed(Flux.concat(*(inner(i) for i in range(n // LENGTH))))
            ),
            Alternative("Penstock on_error_resume", lambda n: pushed(resumed(n))),
            Alternative("reactivex flat_map", with_flat_map),
            Alternative("reactivex merge", with_merge),
        ),
    )


def numbers(_: int) -> range:
    """An inner iterable."""
    return range(LENGTH)


def outer(n: int) -> Flux[int]:
    """The elements that become streams."""
    return Flux.range(n // LENGTH)


def inner(_: int) -> Flux[int]:
    """An inner stream."""
    return Flux.range(LENGTH)


def resumed(n: int) -> Flux[int]:
    """No inner stream, but the same stage as those above: elements pass it one by one."""
    return outer(n).flat_map_iterable(numbers).on_error_resume(lambda error: Flux.empty())


def pushed(flux: Flux[int]) -> int:
    """To a Subscriber that asked for everything."""
    subscriber = Unbounded()
    flux.subscribe(subscriber)
    return subscriber.result()


def nested_loops(n: int) -> int:
    """By hand, with the same subscriber."""
    subscriber = Unbounded()
    on_next = subscriber.on_next
    for i in range(n // LENGTH):
        for x in numbers(i):
            on_next(x)
    subscriber.on_complete()
    return subscriber.result()


def _rx_inner(_: int) -> reactivex.Observable[int]:
    return reactivex.from_iterable(range(LENGTH))


def _rx_result(stream: reactivex.Observable[int]) -> int:
    subscriber = Unbounded()
    stream.subscribe(subscriber.on_next, subscriber.on_error, subscriber.on_complete)
    return subscriber.result()


def with_flat_map(n: int) -> int:
    """Unbounded."""
    return _rx_result(reactivex.from_iterable(range(n // LENGTH)).pipe(ops.flat_map(_rx_inner)))


def with_merge(n: int) -> int:
    """Unbounded."""
    return _rx_result(reactivex.merge(*(_rx_inner(i) for i in range(n // LENGTH))))
