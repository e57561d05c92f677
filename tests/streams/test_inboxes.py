"""Loops that append to an inbox instead of calling ``on_next``.

The same chain runs twice, the second time for the same subscriber without the inbox. Nobody must be able to
tell the difference, but for the calls that are saved.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spec import Subscription
from penstock.streams import Flux
from penstock.streams.spi import ElementInbox
from tests.streams.test_free_loops import OPERATORS

PATIENCE = 20


class Keeping:
    """Keeps elements, and notes how the stream ends."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.ends: list[Any] = []
        self.calls = 0
        self.subscription: Subscription | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.subscription = subscription

    def on_next(self, element: Any, /) -> None:
        self.calls += 1
        self.kept.append(element)

    def on_error(self, error: BaseException, /) -> None:
        self.ends.append(repr(error))

    def on_complete(self) -> None:
        self.ends.append("complete")

    def request(self, n: int) -> None:
        assert self.subscription is not None
        self.subscription.request(n)

    def cancel(self) -> None:
        assert self.subscription is not None
        self.subscription.cancel()


class KeepingInbox(Keeping, ElementInbox):
    """The same as an inbox."""

    def __init__(self, *, takes: bool = True) -> None:
        super().__init__()
        self.append = self.kept.append
        self.idle = False
        self.woken = 0
        self._takes = takes

    def takes_elements(self) -> bool:
        return self._takes

    def wake(self) -> None:
        self.woken += 1
        self.idle = False


def _signals(subscriber: Keeping, flux: Flux[Any], requests: list[int], cancels: bool) -> list[Any]:
    flux.subscribe(subscriber)
    after = []
    for n in requests:
        subscriber.request(n)
        after.append(list(subscriber.kept))
    if cancels:
        subscriber.cancel()
        subscriber.request(5)
    return [after, subscriber.kept, subscriber.ends]


SOURCES: list[Callable[[int], Any]] = [range, lambda n: list(range(n)), lambda n: iter(range(n))]


@given(
    names=st.lists(st.sampled_from(sorted(OPERATORS)), max_size=3),
    source=st.sampled_from(SOURCES),
    size=st.integers(0, 60),
    requests=st.lists(st.sampled_from([1, 2, 7, 30, 1000, 2**63 - 1]), max_size=4),
    cancels=st.booleans(),
)
def test_an_inbox_gets_what_a_subscriber_gets_with_the_same_requests(
    names: list[str], source: Callable[[int], Any], size: int, requests: list[int], cancels: bool
) -> None:
    def flux() -> Flux[Any]:
        made: Flux[Any] = Flux.from_iterable(source(size))
        for name in names:
            made = OPERATORS[name](made)
        return made

    inbox = KeepingInbox()
    assert _signals(inbox, flux(), requests, cancels) == _signals(Keeping(), flux(), requests, cancels)


def test_no_call_is_made_for_an_element() -> None:
    inbox = KeepingInbox()
    Flux.from_iterable(range(100)).map(lambda x: x + 1).subscribe(inbox)
    inbox.request(100)
    assert inbox.kept == list(range(1, 101))
    assert inbox.calls == 0


def test_an_inbox_that_wants_calls_gets_them() -> None:
    inbox = KeepingInbox(takes=False)
    Flux.from_iterable(range(100)).subscribe(inbox)
    inbox.request(100)
    assert inbox.calls == 100


def test_a_reader_that_waits_is_woken_once() -> None:
    inbox = KeepingInbox()
    Flux.from_iterable(range(100)).subscribe(inbox)
    inbox.idle = True
    inbox.request(10)
    assert (inbox.woken, inbox.idle) == (1, False)
    inbox.request(10)
    assert inbox.woken == 1


def test_an_element_is_there_when_the_reader_is_woken() -> None:
    seen: list[int] = []

    class Looking(KeepingInbox):
        def wake(self) -> None:
            seen.append(len(self.kept))
            self.idle = True

    inbox = Looking()
    inbox.idle = True
    Flux.from_iterable(iter(range(4))).subscribe(inbox)
    inbox.request(4)
    assert seen == [1, 2, 3, 4]


def test_none_is_refused() -> None:
    inbox = KeepingInbox()
    Flux.from_iterable([1, None, 2]).subscribe(inbox)
    inbox.request(3)
    assert inbox.kept == [1]
    assert len(inbox.ends) == 1
    assert "None" in inbox.ends[0]


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), GeneratorExit()])
def test_a_source_that_fails_fails_the_stream(error: BaseException) -> None:
    def elements() -> Iterator[int]:
        yield 1
        raise error

    signals = []
    for subscriber in (KeepingInbox(), Keeping()):
        Flux.from_iterable(elements()).subscribe(subscriber)
        try:
            subscriber.request(5)
        except BaseException as raised:  # the main thread is asked to stop
            subscriber.ends.append(type(raised))
        signals.append((subscriber.kept, subscriber.ends))
    assert signals[0] == signals[1]
    assert signals[0][0] == [1]


def test_a_wake_that_raises_ends_the_stream_as_on_next_would() -> None:
    closed = []

    def elements() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    class Broken(KeepingInbox):
        def wake(self) -> None:
            raise RuntimeError("cannot wake")

    inbox = Broken()
    inbox.idle = True
    Flux.from_iterable(elements()).subscribe(inbox)
    inbox.request(5)
    assert inbox.kept == [0]
    assert closed == [True]


def test_requests_and_a_cancel_may_come_from_any_thread() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        inbox = KeepingInbox()
        Flux.from_iterable(iter(range(1_000_000))).subscribe(inbox)
        start = threading.Barrier(4)

        def ask() -> None:
            start.wait()
            for _ in range(200):
                inbox.request(7)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert inbox.kept == list(range(4 * 200 * 7))
        inbox.cancel()
        inbox.request(3)
        assert len(inbox.kept) == 4 * 200 * 7
    finally:
        sys.setswitchinterval(before)
