"""Chapter 2: what our own Subscribers do, and what becomes of a stream whose Subscriber raises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux
from penstock.streams.fusion import QueueDrain, Relay
from penstock.streams.operators.flat_map import Inner
from penstock.streams.terminal import AsyncReader, BlockingReader, Running
from penstock.streams.terminal.readers import _One
from tests.streams.recording import Recorder
from tests.streams.rules.publishers import CASES, Env, Probe, names
from tests.streams.rules.test_publisher_rules import wait_until


class Handle:
    """A Subscription that writes down what is done with it."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.cancels = 0

    def request(self, n: int, /) -> None:
        self.requests.append(n)

    def cancel(self) -> None:
        self.cancels += 1


def an_async_window() -> AsyncReader:
    async def make() -> AsyncReader:
        return AsyncReader(4)

    return asyncio.run(make())


def a_relay(kind: type[QueueDrain]) -> Callable[[], QueueDrain]:
    def make() -> QueueDrain:
        relay = kind((), Recorder(UNBOUNDED), "test", None)
        relay.introduce()
        return relay

    return make


SUBSCRIBERS: dict[str, Callable[[], Any]] = {
    "running": lambda: Running(None, lambda error: None, None, 4),
    "blocking_window": lambda: BlockingReader(4),
    "async_window": an_async_window,
    "one": _One,
    "relay": a_relay(Relay),
}
LEAVING = ["running", "blocking_window", "async_window", "one"]


@pytest.mark.parametrize("name", SUBSCRIBERS)
def test_rule_2_1_demand_is_signalled_when_subscribed(name: str) -> None:
    subscriber, handle = SUBSCRIBERS[name](), Handle()
    subscriber.on_subscribe(handle)
    assert len(handle.requests) == 1
    assert handle.requests[0] >= 1


@pytest.mark.parametrize("name", SUBSCRIBERS)
@pytest.mark.parametrize("end", ["on_complete", "on_error"])
def test_rules_2_3_and_2_4_nothing_is_called_while_or_after_the_end_is_handled(name: str, end: str) -> None:
    subscriber, handle = SUBSCRIBERS[name](), Handle()
    subscriber.on_subscribe(handle)
    before = list(handle.requests)
    subscriber.on_complete() if end == "on_complete" else subscriber.on_error(ValueError())
    assert (handle.requests, handle.cancels) == (before, 0)


@pytest.mark.parametrize("name", SUBSCRIBERS)
def test_rule_2_5_a_second_subscription_is_cancelled_and_the_first_kept(name: str) -> None:
    subscriber, first, second = SUBSCRIBERS[name](), Handle(), Handle()
    subscriber.on_subscribe(first)
    subscriber.on_subscribe(second)
    assert (first.cancels, second.cancels, second.requests) == (0, 1, [])


@pytest.mark.parametrize("name", SUBSCRIBERS)
def test_rule_2_6_leaving_cancels_the_subscription(name: str) -> None:
    subscriber, handle = SUBSCRIBERS[name](), Handle()
    subscriber.on_subscribe(handle)
    subscriber.cancel()
    assert handle.cancels >= 1


@pytest.mark.parametrize("name", SUBSCRIBERS)
def test_rule_2_8_elements_on_their_way_after_a_cancel_do_no_harm(name: str) -> None:
    subscriber, handle = SUBSCRIBERS[name](), Handle()
    subscriber.on_subscribe(handle)
    subscriber.cancel()
    requests = list(handle.requests)
    for i in range(3):
        subscriber.on_next(i)
    subscriber.on_complete()
    assert handle.requests == requests


@pytest.mark.parametrize("name", SUBSCRIBERS)
@pytest.mark.parametrize("end", ["on_complete", "on_error"])
def test_rules_2_9_and_2_10_an_end_before_any_element_is_taken(name: str, end: str) -> None:
    subscriber, handle = SUBSCRIBERS[name](), Handle()
    subscriber.on_subscribe(handle)
    subscriber.on_complete() if end == "on_complete" else subscriber.on_error(ValueError())
    subscriber.cancel()
    assert handle.cancels == 0, "it should know that there is nothing left to cancel"


@pytest.mark.parametrize("name", LEAVING)
@pytest.mark.parametrize("method", ["on_subscribe", "on_next", "on_error"])
def test_rule_2_13_none_raises_a_type_error_at_the_caller(name: str, method: str) -> None:
    subscriber = SUBSCRIBERS[name]()
    if method != "on_subscribe":
        subscriber.on_subscribe(Handle())
    with pytest.raises(TypeError, match=r"§2\.13"):
        getattr(subscriber, method)(None)


def test_rule_2_5_an_inner_keeps_its_first_subscription() -> None:
    held: list[Any] = []

    class Twice:
        def subscribe(self, subscriber: Any, /) -> None:
            held.extend((Handle(), Handle()))
            inner: Inner = subscriber
            inner.on_subscribe(held[0])
            inner.on_subscribe(held[1])

    # The strict guard stands before a foreign publisher, so the stage itself is asked here.
    from penstock.streams.operators.flat_map import ManySources

    class Stage(ManySources):
        def poll(self) -> Any:
            raise AssertionError

        def finished(self) -> bool:
            return False

    stage = Stage((), Recorder(), "test", None)
    Twice().subscribe(Inner(stage, 2))
    assert (held[0].requests, held[1].requests, held[1].cancels) == ([2], [], 1)


# ---------------------------------------------------------------- §2.13, seen from the publisher
class Raising(Probe):
    def __init__(self, where: str) -> None:
        super().__init__(UNBOUNDED)
        self.where = where
        self.fault = ZeroDivisionError(where)

    def _raise(self, where: str) -> None:
        if self.where == where:
            raise self.fault

    def on_subscribe(self, subscription: Any, /) -> None:
        super().on_subscribe(subscription)
        self._raise("on_subscribe")

    def on_next(self, element: Any, /) -> None:
        super().on_next(element)
        self._raise("on_next")

    def on_error(self, error: BaseException, /) -> None:
        super().on_error(error)
        self._raise("on_error")

    def on_complete(self) -> None:
        super().on_complete()
        self._raise("on_complete")


@pytest.mark.parametrize("name", sorted({*names(lambda case: case.size is None)} - {"foreign"}))
@pytest.mark.parametrize("where", ["on_subscribe", "on_next", "on_complete"])
def test_rule_2_13_a_raising_subscriber_counts_as_cancelled_and_its_error_is_reported(
    env: Env, dropped: list[BaseException], name: str, where: str
) -> None:
    probe = Raising(where).to(CASES[name].make(env, 10))
    if where == "on_complete":
        probe.wait()
    wait_until(lambda: probe.fault in _with_causes(dropped))
    env.settle()
    assert len(probe.items) == {"on_subscribe": 0, "on_next": 1}.get(where, len(probe.items))
    assert probe.completed == (where == "on_complete")
    probe.request(5)
    env.settle()
    probe.check()


@pytest.mark.parametrize("where", ["on_subscribe", "on_next", "on_complete"])
def test_rule_2_13_the_guard_of_a_foreign_publisher_reports_a_raising_subscriber(
    env: Env, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    Raising(where).to(CASES["foreign"].make(env, 10))
    assert "§2.13 violated" in caplog.text
    assert where in caplog.text


@pytest.mark.parametrize(
    "tail", [lambda f: f, lambda f: f.map(str), lambda f: f.limit_rate(2), lambda f: f.cache()]
)
def test_rule_2_13_a_subscriber_that_raises_in_on_error_is_reported(
    dropped: list[BaseException], tail: Any
) -> None:
    error = ValueError("broken")
    probe = Raising("on_error").to(tail(Flux.error(error)))
    assert probe.error is error
    assert {probe.fault, error} <= set(dropped), "neither may be lost"


def _with_causes(errors: list[BaseException]) -> list[BaseException | None]:
    return [*errors, *(error.__cause__ for error in errors)]


def test_rule_2_13_the_source_of_a_raising_subscriber_is_closed_and_request_returns(
    dropped: list[BaseException],
) -> None:
    generator = (i for i in range(10))
    probe = Raising("on_next")
    probe.first = 0
    Flux.from_iterable(generator).map(lambda x: x).subscribe(probe)
    probe.request(3)
    assert getgeneratorstate(generator) == GEN_CLOSED
    assert dropped == [probe.fault]


@pytest.mark.parametrize("how", ["for", "async for", "subscribe"])
def test_rule_2_6_leaving_early_closes_the_source(how: str) -> None:
    closed = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.set()

    flux = Flux.from_iterable(numbers()).limit_rate(4)
    if how == "for":
        for _ in flux:
            break
    elif how == "subscribe":
        flux.take(1).subscribe(lambda x: None)
    else:

        async def leave() -> None:
            async for _ in flux:
                break

        asyncio.run(leave())
    assert closed.is_set()
