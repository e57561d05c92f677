"""Our Subscribers keep the rules: whatever reads a stream, and whatever stands before a foreign Publisher.

Some of them come into the world only when a stream is read. They are caught on their way: they are given a
stream, or a Publisher, that keeps its Subscriber instead of serving it. From then on the kit serves it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.streams import Flux, on_dropped, schedulers
from penstock.streams.terminal import AsyncReader, BlockingReader, Running, first_future, wait_for_one
from penstock.tck import (
    Probed,
    SubscriberBlackboxVerification,
    SubscriberWhiteboxVerification,
    WhiteboxSubscriberProbe,
    run,
)
from penstock.tck.subscriber.subject import ScriptedError

PREFETCH = 4
"""A window that the kit's twelve elements exceed, so that it has to be refilled."""


class Catch:
    """A stream, to our own readers, or a Publisher, to operators: it keeps its Subscriber."""

    def __init__(self) -> None:
        self._caught = threading.Event()
        self._subscriber: Any = None

    def _connect(self, subscriber: Any) -> None:
        self._subscriber = subscriber
        self._caught.set()

    subscribe = _connect

    def subscriber(self) -> Any:
        """Whom a stream was asked for."""
        assert self._caught.wait(10), "nobody subscribed"
        return self._subscriber


@pytest.fixture(autouse=True)
def dropped() -> Iterator[None]:
    """Errors that nobody waits for any more need not be logged here."""
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        yield


# ---------------------------------------------------------------- subscribe(on_next=…)


class TestCallbacks(SubscriberBlackboxVerification):
    """``subscribe(on_next=…, on_error=…, on_complete=…)``."""

    profile = "sync"

    def create_subscriber(self) -> Any:
        return Running(lambda element: None, lambda error: None, lambda: None, PREFETCH)

    def trigger_request(self, subscriber: Any) -> None:
        # It asks by itself, and looking at it must not change anything.
        assert subscriber.scan() is not None
        assert subscriber.done in (True, False)


class TestNoCallbacks(SubscriberBlackboxVerification):
    """``subscribe()``: nobody listens, and nobody minds an error."""

    profile = "sync"

    def create_subscriber(self) -> Any:
        return Running(None, None, None, 1)


class TestCallbacksThatRaise(SubscriberBlackboxVerification):
    """Functions of a user that fail: not one of these exceptions reaches the Publisher (§2.13)."""

    profile = "sync"

    def create_subscriber(self) -> Any:
        def fails(*_: Any) -> None:
            raise LookupError("the function fails")

        return Running(fails, fails, fails, PREFETCH)


class TestCallbacksThatCancel(SubscriberBlackboxVerification):
    """Functions of a user that cancel, even when there is nothing left to cancel (§2.3, §2.4)."""

    profile = "sync"

    def create_subscriber(self) -> Any:
        running = Running(
            lambda element: running.cancel(),
            lambda error: running.cancel(),
            lambda: running.cancel(),
            PREFETCH,
        )
        return running

    def trigger_request(self, subscriber: Any) -> None:
        if subscriber.done:
            subscriber.cancel()


class PuppetRunning(Running):
    """Asks by itself, as any ``Running``; the puppet has nothing to do but to cancel."""

    def __init__(self, probe: WhiteboxSubscriberProbe) -> None:
        told = probe.register_on_next, probe.register_on_error, probe.register_on_complete
        super().__init__(*told, PREFETCH)
        self._probe = probe

    def on_subscribe(self, subscription: Any, /) -> None:
        first = self._subscription is None
        super().on_subscribe(subscription)
        if first:
            self._probe.register_on_subscribe(self)

    def trigger_request(self, n: int, /) -> None:
        pass

    def signal_cancel(self) -> None:
        self.cancel()


class TestCallbacksWithAProbe(SubscriberWhiteboxVerification):
    """The functions get every element, the same error, and the end."""

    profile = "sync"

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        return PuppetRunning(probe)


class TestCallbacksBesideAProbe(SubscriberWhiteboxVerification):
    """The same Subscriber while somebody else asks in its place."""

    profile = "sync"

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        return Probed(Running(None, lambda error: None, None, PREFETCH), probe)


# ---------------------------------------------------------------- for x in flux, block(): a thread that waits


class Nobody:
    """What a reader tells when there is no probe."""

    def register_on_next(self, element: Any) -> None:
        pass

    def register_on_error(self, error: BaseException) -> None:
        pass

    def register_on_complete(self) -> None:
        pass


class Puppet(Probed):
    """Leaves it to the Subscriber to ask, and to its reader to tell what it got."""

    def on_next(self, element: Any, /) -> None:
        self._subscriber.on_next(element)

    def on_error(self, error: Any, /) -> None:
        self._subscriber.on_error(error)

    def on_complete(self) -> None:
        self._subscriber.on_complete()

    def trigger_request(self, n: int, /) -> None:
        pass

    def signal_cancel(self) -> None:
        self._subscriber.cancel()


def read_on_a_thread(verification: Any, window: BlockingReader, told: Any) -> BlockingReader:
    """Have a thread read ``window`` until its stream is over, at the latest at the end of the test."""

    def work() -> None:
        try:
            for element in window.read(Catch()):  # type: ignore[arg-type]
                told.register_on_next(element)
        except ScriptedError as error:
            told.register_on_error(error)
        else:
            told.register_on_complete()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    verification.add_cleanup(lambda: (window.on_complete(), thread.join(10)))
    return window


class TestFor(SubscriberBlackboxVerification):
    """``for x in flux``, with a thread that reads."""

    def create_subscriber(self) -> Any:
        return read_on_a_thread(self, BlockingReader(PREFETCH), Nobody())


class TestForWithoutAReader(SubscriberBlackboxVerification):
    """The window fills up, and that is no reason for anything."""

    profile = "sync"

    def create_subscriber(self) -> Any:
        return BlockingReader(PREFETCH)


class TestForWithAProbe(SubscriberWhiteboxVerification):
    """What the loop sees is what was sent."""

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        return Puppet(read_on_a_thread(self, BlockingReader(PREFETCH), probe), probe)


def waiting(verification: Any) -> Any:
    """The Subscriber of a thread that is in ``block()``."""
    stream = Catch()

    def work() -> None:
        with contextlib.suppress(ScriptedError):
            wait_for_one(stream, None)  # type: ignore[arg-type]

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    subscriber = stream.subscriber()
    verification.add_cleanup(lambda: (subscriber.on_complete(), thread.join(10)))
    return subscriber


class TestBlock(SubscriberBlackboxVerification):
    """``mono.block()``, with a thread that waits."""

    def create_subscriber(self) -> Any:
        return waiting(self)


class TestBlockBesideAProbe(SubscriberWhiteboxVerification):
    """The same, and every signal is told."""

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        return Probed(waiting(self), probe)


# ---------------------------------------------------------------- to_future()


class TestToFuture(SubscriberBlackboxVerification):
    """``mono.to_future()``."""

    profile = "sync"

    def create_subscriber(self) -> Any:
        stream = Catch()
        first_future(stream)  # type: ignore[arg-type]
        return stream.subscriber()


class TestToFutureThatIsCancelled(SubscriberWhiteboxVerification):
    """Here it is the future through which one leaves; after the end that reaches nobody."""

    profile = "sync"

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        stream = Catch()
        future = first_future(stream)  # type: ignore[arg-type]

        class ByFuture(Probed):
            def trigger_request(self, n: int, /) -> None:
                pass

            def signal_cancel(self) -> None:
                future.cancel()

        return ByFuture(stream.subscriber(), probe)


# ---------------------------------------------------------------- async for, await


def read_in_a_task(verification: Any, window: AsyncReader, told: Any) -> AsyncReader:
    """Have a task read ``window``; the kit ends the task together with its event loop."""

    async def work() -> None:
        try:
            async for element in window.read(Catch()):  # type: ignore[arg-type]
                told.register_on_next(element)
        except ScriptedError as error:
            told.register_on_error(error)
        else:
            told.register_on_complete()

    task = asyncio.get_running_loop().create_task(work())
    verification.add_cleanup(task.cancel)
    return window


class TestAsyncFor(SubscriberBlackboxVerification):
    """``async for x in flux``, with a task that reads."""

    profile = "asyncio"

    def create_subscriber(self) -> Any:
        return read_in_a_task(self, AsyncReader(PREFETCH), Nobody())


class TestAsyncForWithoutAReader(SubscriberBlackboxVerification):
    """The window fills up."""

    profile = "asyncio"

    def create_subscriber(self) -> Any:
        return AsyncReader(PREFETCH)


class TestAsyncForWithAProbe(SubscriberWhiteboxVerification):
    """What the coroutine sees is what was sent."""

    profile = "asyncio"

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        return Puppet(read_in_a_task(self, AsyncReader(PREFETCH), probe), probe)


class TestAwait(SubscriberBlackboxVerification):
    """``await mono``: the same with a window of one."""

    profile = "asyncio"

    def create_subscriber(self) -> Any:
        return read_in_a_task(self, AsyncReader(1), Nobody())


# ---------------------------------------------------------------- before a foreign Publisher


class Below:
    """The Subscriber below an operator: tells the probe, and is the puppet itself."""

    def __init__(self, probe: WhiteboxSubscriberProbe) -> None:
        self._probe = probe
        self.on_next = probe.register_on_next
        self.on_error = probe.register_on_error
        self.on_complete = probe.register_on_complete

    def on_subscribe(self, subscription: Any, /) -> None:
        self.trigger_request, self.signal_cancel = subscription.request, subscription.cancel
        self._probe.register_on_subscribe(self)  # type: ignore[arg-type]


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "from_publisher": Flux.from_publisher,
    "concat_map": lambda foreign: Flux.just(1).concat_map(lambda _: foreign),
    "concat_with": lambda foreign: Flux.empty().concat_with(foreign),
    "flat_map": lambda foreign: Flux.just(1).flat_map(lambda _: foreign),
    "merge": lambda foreign: Flux.merge(foreign),
    "on_error_resume": lambda foreign: Flux.error(OSError()).on_error_resume(lambda _: foreign),
    "publish_on": lambda foreign: Flux.from_publisher(foreign).publish_on(schedulers.shared_single()),
    "share": lambda foreign: Flux.from_publisher(foreign).share(),
    "switch_if_empty": lambda foreign: Flux.empty().switch_if_empty(foreign),
    "take": lambda foreign: Flux.from_publisher(foreign).take(100),
    "timeout": lambda foreign: Flux.from_publisher(foreign).timeout(30),
}


def before_a_foreign_publisher(name: str) -> type[SubscriberWhiteboxVerification]:
    """The verification of the Subscriber that an operator, and the guard round it, hold out to others."""

    def create_subscriber(self: Any, probe: WhiteboxSubscriberProbe) -> Any:
        foreign = Catch()
        OPERATORS[name](foreign).subscribe(Below(probe))
        return foreign.subscriber()

    settings = {"subject": f"{name} of a foreign publisher", "create_subscriber": create_subscriber}
    return type(f"Test{name}", (SubscriberWhiteboxVerification,), settings)


@pytest.mark.parametrize("name", OPERATORS)
def test_what_stands_before_a_foreign_publisher(name: str) -> None:
    results = list(run(before_a_foreign_publisher(name)))

    failures = [f"{result.test}: {result.message}" for result in results if result.verdict == "fail"]
    assert "\n\n".join(failures) == ""
    assert sum(result.verdict == "pass" for result in results) == 21


# ---------------------------------------------------------------- what the kit does not do


class Asked:
    """A Subscription that remembers what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def request(self, n: int, /) -> None:
        self.calls.append(f"request({n})")

    def cancel(self) -> None:
        self.calls.append("cancel()")


def filled(window: Any) -> Asked:
    """What a window has asked for that holds all its elements, and the end."""
    asked = Asked()
    window.on_subscribe(asked)
    for element in range(PREFETCH):
        window.on_next(element)
    window.on_complete()
    return asked


def test_a_window_whose_stream_is_over_is_not_refilled() -> None:
    window = BlockingReader(PREFETCH)
    asked = filled(window)

    assert list(window.read(Catch())) == [0, 1, 2, 3]  # type: ignore[arg-type]
    assert asked.calls == [f"request({PREFETCH})"]


def test_nor_is_one_that_a_coroutine_reads() -> None:
    async def read() -> list[Any]:
        window = AsyncReader(PREFETCH)
        asked = filled(window)
        elements = [element async for element in window.read(Catch())]  # type: ignore[arg-type]
        assert asked.calls == [f"request({PREFETCH})"]
        return elements

    assert asyncio.run(read()) == [0, 1, 2, 3]
