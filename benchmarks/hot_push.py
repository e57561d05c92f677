"""What does an element cost that is pushed into a running stream from outside?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamz
from reactivex import operators as ops
from reactivex.subject import Subject

from benchmarks.measuring import Alternative, Question
from benchmarks.workload import Unbounded, add_one, double, is_even, sum_of_chain
from penstock.streams import Emitter, Flux, Sink, Sinks

__all__ = ["question"]

MANY = 10
"""Subscribers of one sink."""


@contextmanager
def question() -> Iterator[Question]:
    """One call for each element."""
    yield Question(
        name="hot_push",
        title="pushed from outside, one call for each element, through map, filter, map",
        elements=10_000,
        base="a function by hand",
        expected=sum_of_chain,
        alternatives=(
            Alternative("a function by hand", by_hand),
            Alternative("Penstock, unicast sink", lambda n: through_sink(Sinks.unicast(), n)),
            Alternative("Penstock, multicast sink", lambda n: through_sink(Sinks.multicast(), n)),
            Alternative("Penstock, create", through_create),
            Alternative("Penstock, multicast sink, ten subscribers", through_sink_to_many, share=0.2),
            Alternative("reactivex Subject", with_subject),
            Alternative("reactivex Subject, ten subscribers", with_subject_to_many, share=0.2),
            Alternative("streamz emit", with_streamz, share=0.1),
        ),
    )


def by_hand(n: int) -> int:
    """What the chain would be if it were a function."""
    subscriber = Unbounded()
    on_next = subscriber.on_next

    def emit(x: int) -> None:
        x = add_one(x)
        if is_even(x):
            on_next(double(x))

    for x in range(n):
        emit(x)
    subscriber.on_complete()
    return subscriber.result()


def _through_chain(flux: Flux[int]) -> Flux[int]:
    return flux.map(add_one).filter(is_even).map(double)


def through_sink(sink: Sink[int], n: int) -> int:
    """A sink, which is safe to call from any thread and tells what became of the element."""
    subscriber = Unbounded()
    _through_chain(sink.flux()).subscribe(subscriber)
    emit = sink.try_emit
    for x in range(n):
        emit(x)
    sink.try_complete()
    return subscriber.result()


def through_sink_to_many(n: int) -> int:
    """Each of them gets every element."""
    sink: Sink[int] = Sinks.multicast()
    subscribers = [Unbounded() for _ in range(MANY)]
    for subscriber in subscribers:
        _through_chain(sink.flux()).subscribe(subscriber)
    emit = sink.try_emit
    for x in range(n):
        emit(x)
    sink.try_complete()
    return _same(subscribers)


def _same(subscribers: list[Unbounded]) -> int:
    results = {subscriber.result() for subscriber in subscribers}
    return results.pop() if len(results) == 1 else -1


def through_create(n: int) -> int:
    """The callback of ``create``."""

    def wire(emitter: Emitter[int]) -> None:
        emit = emitter.next
        for x in range(n):
            emit(x)
        emitter.complete()

    subscriber = Unbounded()
    _through_chain(Flux.create(wire)).subscribe(subscriber)
    return subscriber.result()


def with_subject(n: int) -> int:
    """No demand, no bound."""
    subscriber = Unbounded()
    subject: Subject[int] = Subject()
    stream = subject.pipe(ops.map(add_one), ops.filter(is_even), ops.map(double))
    stream.subscribe(subscriber.on_next, subscriber.on_error, subscriber.on_complete)
    emit = subject.on_next
    for x in range(n):
        emit(x)
    subject.on_completed()
    return subscriber.result()


def with_subject_to_many(n: int) -> int:
    """The same for each of them."""
    subject: Subject[int] = Subject()
    subscribers = [Unbounded() for _ in range(MANY)]
    for each in subscribers:
        stream = subject.pipe(ops.map(add_one), ops.filter(is_even), ops.map(double))
        stream.subscribe(each.on_next, each.on_error, each.on_complete)
    emit = subject.on_next
    for x in range(n):
        emit(x)
    subject.on_completed()
    return _same(subscribers)


def with_streamz(n: int) -> int:
    """Its normal way of working."""
    subscriber = Unbounded()
    source = streamz.Stream()
    source.map(add_one).filter(is_even).map(double).sink(subscriber.on_next)
    for x in range(n):
        source.emit(x)
    subscriber.on_complete()
    return subscriber.result()
