"""Sources that tell what was done to them, and the checks that every operator has to pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.spec import Subscriber
from penstock.streams import Flux
from tests.streams.recording import Recorder

Operator = Callable[[Any], Any]
"""Adds an operator to a stream."""


class Oops(Exception):
    """What the user's function raises."""


def oops(*_: Any) -> Any:
    raise Oops("in the user's function")


class Counting:
    """The numbers from 1 to ``last``; tells how many were taken, and whether the iterator was closed."""

    def __init__(self, last: int = 10) -> None:
        self.last = last
        self.taken = 0
        self.closed = False

    def __iter__(self) -> Iterator[int]:
        try:
            for number in range(1, self.last + 1):
                self.taken += 1
                yield number
        finally:
            self.closed = True


class Elsewhere:
    """A publisher that is not ours: sends exactly what it is asked for, and tells how much that was."""

    def __init__(self, *elements: Any) -> None:
        self.requests: list[int] = []
        self.cancelled = False
        self._left = list(reversed(elements))
        self._subscriber: Subscriber[Any] | None = None
        self._demand = 0
        self._busy = False

    @property
    def asked(self) -> int:
        return sum(self.requests)

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        self._subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        self.requests.append(n)
        self._demand += n
        if self._busy:
            return
        self._busy = True
        while self._subscriber is not None and self._left and self._demand:
            self._demand -= 1
            self._subscriber.on_next(self._left.pop())
        self._busy = False
        if self._subscriber is not None and not self._left:
            subscriber, self._subscriber = self._subscriber, None
            subscriber.on_complete()

    def cancel(self) -> None:
        self.cancelled = True
        self._subscriber = None


def result(stream: Any) -> list[Any]:
    """All elements of a stream that completes."""
    recorder = Recorder(1_000)
    stream.subscribe(recorder)
    recorder.check()
    if recorder.error is not None:
        raise recorder.error
    assert recorder.completed
    return recorder.items


def failure(stream: Any) -> BaseException:
    """The error of a stream that fails."""
    recorder = Recorder(1_000)
    stream.subscribe(recorder)
    recorder.check()
    assert recorder.error is not None
    return recorder.error


def check_that_an_exception_ends_it(add: Operator, name: str, file: str) -> None:
    """The user's function raises: one error, the source closed, and a note that says where."""
    source = Counting()
    recorder = Recorder(1_000)
    add(Flux.from_iterable(source)).subscribe(recorder)

    recorder.check()
    assert isinstance(recorder.error, Oops)
    assert not recorder.completed
    assert source.closed
    (note,) = [note for note in recorder.error.__notes__ if note.startswith("in stream operator")]
    assert f" {name}(" in note
    assert file in note


def check_that_a_cancel_stops_it(add: Operator) -> None:
    """Cancelled after its first element: nothing more comes, and the source is closed."""
    source = Counting()
    recorder = Recorder(1)
    add(Flux.from_iterable(source)).subscribe(recorder)
    assert len(recorder.items) == 1
    taken = source.taken

    recorder.cancel()
    recorder.request(5)

    recorder.check()
    assert len(recorder.items) == 1
    assert not recorder.terminated
    assert source.closed
    assert source.taken == taken


def asked_of_the_source(add: Operator, *requests: int, elements: int = 100) -> list[int]:
    """What a publisher above the operator is asked for, in total, after each request from below."""
    source = Elsewhere(*range(1, elements + 1))
    recorder = Recorder()
    add(Flux.from_publisher(source)).subscribe(recorder)
    totals = []
    for n in requests:
        recorder.request(n)
        totals.append(source.asked)
    recorder.check()
    return totals
