"""The subjects themselves: every one can be made and comes to an end, and the correct ones are correct."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from typing import Any

import pytest

from penstock.spec import RULES, UNBOUNDED, strict
from tests.tck.broken.publishers_demand import LIMIT
from tests.tck.broken.registry import BROKEN_PROCESSORS, BROKEN_PUBLISHERS, BROKEN_SUBSCRIBERS
from tests.tck.legal.registry import LEGAL_PROCESSORS, LEGAL_PUBLISHERS, LEGAL_SUBSCRIBERS
from tests.tck.legal.serving import FailedPublisher, RangePublisher

PATIENCE = 60
"""Seconds after which something that has to happen is taken for lost."""

ALL_BROKEN = [
    *BROKEN_PUBLISHERS.values(),
    *BROKEN_SUBSCRIBERS.values(),
    *BROKEN_PROCESSORS.values(),
]


class Listener:
    """Asks for ``first`` elements and then one by one, and knows when the stream has ended.

    With ``first=0`` it waits until somebody calls ``begin``.
    """

    def __init__(self, first: int = 1, leaves_after: int | None = None) -> None:
        self.elements: list[Any] = []
        self.error: BaseException | None = None
        self.over = threading.Event()
        self._first = first
        self._leaves_after = leaves_after
        self._subscription: Any = None

    def on_subscribe(self, subscription: Any, /) -> None:
        if self._subscription is None and subscription is not None:
            self._subscription = subscription
            if self._first:
                subscription.request(self._first)

    def begin(self) -> None:
        self._subscription.request(1)

    def on_next(self, element: Any, /) -> None:
        self.elements.append(element)
        if len(self.elements) == self._leaves_after:
            self._subscription.cancel()
        elif self._subscription is not None:
            self._subscription.request(1)

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        self.over.set()

    def on_complete(self) -> None:
        self.over.set()


class Puppeteer:
    """The probe of a white-box test, as the kit of the JVM knows it."""

    def __init__(self) -> None:
        self.puppet: Any = None
        self.heard: list[Any] = []

    def register_on_subscribe(self, puppet: Any) -> None:
        self.puppet = puppet

    def register_on_next(self, element: Any) -> None:
        self.heard.append(element)

    def register_on_error(self, error: BaseException) -> None:
        self.heard.append(error)

    def register_on_complete(self) -> None:
        self.heard.append("complete")


def wait_until(holds: Any) -> None:
    """Wait for what a subject does on a thread of its own."""
    end, tick = time.monotonic() + PATIENCE, threading.Event()
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        tick.wait(0.001)


def by_name(cases: Any) -> Any:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def sizes(case: Any) -> list[int]:
    return [n for n in (0, 1, 5, 50) if case.max_elements is None or n <= case.max_elements]


@by_name(ALL_BROKEN)
def test_a_broken_subject_says_which_rules_it_breaks(case):
    kind = getattr(case, "create_failed", None)
    if kind in (None, FailedPublisher):
        kind = getattr(case, "create", None) or case.create_blackbox or case.create_whitebox
    assert kind.__name__ == case.name
    assert kind.__doc__
    assert case.rules
    assert set(case.rules) <= set(RULES)
    assert any(f"§{rule}" in kind.__doc__ for rule in case.rules)


@by_name(BROKEN_PUBLISHERS.values())
def test_a_broken_publisher_can_be_made_and_ends_by_itself(case):
    publishers = [case.create(n) for n in (0, 1, 3, 2**31 - 1)]
    if case.create_failed is not None:
        publishers.append(case.create_failed())
    for publisher in publishers:
        listener = Listener(first=UNBOUNDED, leaves_after=3)
        try:
            publisher.subscribe(listener)
        except Exception:
            continue  # It is broken.
        assert len(listener.elements) <= LIMIT + 1


@by_name(BROKEN_SUBSCRIBERS.values())
def test_a_broken_subscriber_can_be_made(case):
    assert case.create_blackbox or case.create_whitebox
    if case.create_blackbox:
        assert callable(case.create_blackbox().on_next)
    if case.create_whitebox:
        assert callable(case.create_whitebox(Puppeteer()).on_next)


@by_name(BROKEN_PROCESSORS.values())
def test_a_broken_processor_does_all_the_rest_as_it_should(case):
    losing = {"DropsElements": list(range(0, 20, 2)), "NeverAsksUpstream": []}
    processor, listener = case.create(16), Listener()
    RangePublisher(20).subscribe(processor)
    processor.subscribe(listener)

    assert sorted(listener.elements) == losing.get(case.name, list(range(20)))
    assert listener.over.is_set() == (case.name not in ("SwallowsComplete", "NeverAsksUpstream"))
    assert listener.error is None


@by_name(LEGAL_PUBLISHERS.values())
def test_a_legal_publisher_sends_what_it_should(case):
    def try_out(n: int) -> list[Listener]:
        publisher = strict(case.create(n), found.append)
        listeners = [Listener() for _ in range(case.max_subscribers or 2)]
        for listener in listeners:
            publisher.subscribe(listener)
        return listeners

    async def try_out_on_a_loop(n: int) -> list[Listener]:
        listeners = try_out(n)
        while not all(listener.over.is_set() for listener in listeners):
            await asyncio.sleep(0)
        return listeners

    found: list[Any] = []
    for n in sizes(case):
        listeners = asyncio.run(try_out_on_a_loop(n)) if case.profile == "asyncio" else try_out(n)
        for listener in listeners:
            assert listener.over.wait(PATIENCE)
            assert listener.error is None
        counts = [len(listener.elements) for listener in listeners]
        assert sum(counts) == n if case.fanout is None else set(counts) == {n}
        if case.fanout == "multicast":
            assert [*map(id, listeners[0].elements)] == [*map(id, listeners[1].elements)]
    assert found == []


def test_the_unicast_publisher_turns_a_second_subscriber_away():
    publisher = LEGAL_PUBLISHERS["UnicastPublisher"].create(3)
    first, second = Listener(), Listener()
    publisher.subscribe(first)
    publisher.subscribe(second)
    assert first.elements == [0, 1, 2]
    assert isinstance(second.error, RuntimeError)


def test_the_failed_publisher_fails():
    listener = Listener()
    FailedPublisher().subscribe(listener)
    assert isinstance(listener.error, OSError)


def test_the_reference_lets_go_of_a_subscriber_that_cancels():
    publisher, listener = RangePublisher(5), Listener(leaves_after=2)
    publisher.subscribe(listener)
    subscription, gone = listener._subscription, weakref.ref(listener)
    assert listener.elements == [0, 1]
    del listener
    assert gone() is None
    subscription.request(1)


@by_name(LEGAL_SUBSCRIBERS.values())
def test_a_legal_subscriber_takes_what_comes(case):
    found: list[Any] = []
    subscriber = case.create_blackbox()
    RangePublisher(10).subscribe(strict(subscriber, found.append))
    wait_until(subscriber.over)
    assert subscriber.elements == [*range(3 if case.name == "TakesThreeAndLeaves" else 10)]
    assert subscriber.cancelled or subscriber.completed
    assert found == []


@by_name(LEGAL_SUBSCRIBERS.values())
def test_a_legal_subscriber_does_as_its_probe_tells_it(case):
    probe, moment = Puppeteer(), threading.Event()
    RangePublisher(3).subscribe(case.create_whitebox(probe))
    wait_until(lambda: probe.puppet is not None)
    moment.wait(0.05)
    assert probe.heard == []
    probe.puppet.trigger_request(2)
    wait_until(lambda: len(probe.heard) >= 2)
    moment.wait(0.05)
    assert probe.heard == [0, 1]
    probe.puppet.signal_cancel()
    probe.puppet.trigger_request(1)
    moment.wait(0.05)
    assert probe.heard == [0, 1]


@by_name(LEGAL_PROCESSORS.values())
@pytest.mark.parametrize("upstream_first", [True, False])
@pytest.mark.parametrize("buffer_size", [1, 16])
def test_a_legal_processor_passes_everything_on(case, upstream_first, buffer_size):
    found: list[Any] = []
    processor = case.create(buffer_size)
    listeners = [Listener(first=0) for _ in range(case.max_subscribers or 3)]
    guarded = strict(RangePublisher(100), found.append)
    if upstream_first:
        guarded.subscribe(strict(processor, found.append))
    for listener in listeners:
        strict(processor, found.append).subscribe(listener)
    if not upstream_first:
        guarded.subscribe(strict(processor, found.append))
    for listener in listeners:
        listener.begin()
    for listener in listeners:
        assert listener.over.is_set()
        assert listener.elements == [*range(100)]
    assert found == []
