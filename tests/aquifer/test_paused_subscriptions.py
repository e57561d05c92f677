"""A subscription that its subscriber pauses: it signals nothing, speaks to the gateway, and loses nothing."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.aquifer import (
    AquiferPublisher,
    AquiferSubscription,
    Gateway,
    MemoryJournal,
    Record,
    Redelivery,
    SqliteJournal,
    TakenOver,
)
from penstock.spec import UNBOUNDED
from penstock.streams import Flux, StageMeter, metering
from penstock.streams.spi import ExpectsLarge
from tests.aquifer.faults.rigs import ANYWHERE, eventually, free_endpoint, read, set_patience, stays
from tests.streams.schedulers.child import run_script

PATIENCE = 30
SIZE = 2000
"""Large for a loop, and still many in a frame."""


def record(number: int, size: int = SIZE) -> bytes:
    return number.to_bytes(4, "big") * (size // 4)


def number_of(value: Any) -> int:
    return int.from_bytes(getattr(value, "value", value)[:4], "big")


def records(count: int, size: int = SIZE) -> Flux[bytes]:
    return Flux.range(0, count).map(lambda number: record(number, size))


def filled(count: int, size: int = SIZE, **settings: Any) -> Gateway:
    return Gateway(records(count, size), ANYWHERE, journal=MemoryJournal(), **settings)


class Pausing(ExpectsLarge):
    """Pauses its subscription inside on_next when the test says so, and notes what comes."""

    def __init__(self, first: int = UNBOUNDED, *, pauses: Callable[[int], bool] = lambda got: True) -> None:
        self.first = first
        self.pauses = pauses
        self.got: list[Any] = []
        self.paused = threading.Semaphore(0)
        self.is_paused = False
        self.broken: list[int] = []
        self.over = threading.Event()
        self.error: BaseException | None = None
        self.subscription: Any = None

    def on_subscribe(self, subscription: Any, /) -> None:
        self.subscription = subscription
        subscription.request(self.first)

    def expect_large(self, step: int) -> bool:
        return True

    def on_next(self, element: Any, /) -> None:
        if self.is_paused:
            self.broken.append(number_of(element))
        self.got.append(element)
        if self.pauses(len(self.got)):
            self.is_paused = True
            self.subscription.pause()
            self.paused.release()

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        self.over.set()

    def on_complete(self) -> None:
        self.over.set()

    def resume(self) -> None:
        self.is_paused = False
        self.subscription.resume()

    def wait_until_paused(self) -> None:
        assert self.paused.acquire(timeout=PATIENCE)

    def go_on(self) -> None:
        """Never pause again."""
        self.pauses = lambda got: False
        self.resume()

    @property
    def numbers(self) -> list[int]:
        return [number_of(each) for each in self.got]


def paused_at(count: int, endpoint: str, first: int = UNBOUNDED, **settings: Any) -> Pausing:
    """A subscriber that has paused at its ``count``-th record."""
    subscriber = Pausing(first, pauses=lambda got: got == count)
    AquiferPublisher(endpoint, start=settings.pop("start", "earliest"), **settings).subscribe(subscriber)
    subscriber.wait_until_paused()
    return subscriber


@pytest.mark.parametrize("first", [UNBOUNDED, 500, 1])
@pytest.mark.parametrize("settings", [{}, {"records": True}, {"dialect": "plain"}], ids=str)
def test_nothing_comes_after_a_pause_before_it_is_resumed(first: int, settings: dict[str, Any]) -> None:
    count = 300
    with filled(count) as gateway:
        eventually(lambda: gateway.status().head == count)
        subscriber = Pausing(first, pauses=lambda got: got % 7 == 1)
        AquiferPublisher(gateway.endpoint, start="earliest", **settings).subscribe(subscriber)
        for _ in range(count // 7 + 1):
            subscriber.wait_until_paused()
            if first == 1:
                subscriber.subscription.request(7)
            subscriber.resume()
        assert subscriber.over.wait(PATIENCE)
    assert subscriber.broken == []
    assert subscriber.numbers == list(range(count))


def test_small_records_stop_at_a_pause_as_well() -> None:
    with filled(1000, 100) as gateway:
        subscriber = paused_at(10, gateway.endpoint)
        stays(lambda: len(subscriber.got) == 10, "it went on")
        subscriber.go_on()
        assert subscriber.over.wait(PATIENCE)
    assert subscriber.numbers == list(range(1000))


@pytest.mark.parametrize("first", [UNBOUNDED, 100])
def test_a_request_does_not_resume(first: int) -> None:
    with filled(200) as gateway:
        subscriber = paused_at(3, gateway.endpoint, first)
        subscriber.subscription.request(100)
        stays(lambda: len(subscriber.got) == 3, "it went on")
        state = subscriber.subscription.meter_state()
        assert state.requested == min(first + 100, UNBOUNDED)
        assert state.emitted == 3
        subscriber.go_on()
        assert subscriber.over.wait(PATIENCE)
    assert subscriber.numbers == list(range(200))


def test_requests_and_resumes_of_many_threads_are_all_heard() -> None:
    """Real threads race; a wake-up that is lost leaves the records where they are."""
    count, before = 4000, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with filled(count, 1500) as gateway:
            eventually(lambda: gateway.status().head == count)
            subscriber = Pausing(1, pauses=lambda got: got % 3 == 0)
            AquiferPublisher(gateway.endpoint, start="earliest").subscribe(subscriber)
            eventually(lambda: subscriber.got)

            def ask() -> None:
                for _ in range(count // 40):
                    subscriber.subscription.request(10)

            def resume() -> None:
                while not subscriber.over.is_set():
                    if subscriber.paused.acquire(timeout=0.1):
                        subscriber.resume()

            work = [threading.Thread(target=each) for each in [ask] * 4 + [resume] * 2]
            for thread in work:
                thread.start()
            for thread in work:
                thread.join(PATIENCE * 2)
            assert subscriber.over.is_set()
        assert subscriber.numbers == list(range(count))
    finally:
        sys.setswitchinterval(before)


def test_a_cancel_ends_a_paused_subscription_and_keeps_the_place() -> None:
    with filled(300) as gateway:
        subscriber = paused_at(20, gateway.endpoint, id="reader")
        subscriber.subscription.cancel()
        assert subscriber.subscription.join(PATIENCE)
        assert not subscriber.over.is_set()
        rest = read(gateway.endpoint, id="reader").wait().items
    assert [number_of(each) for each in rest] == list(range(20, 300))


@pytest.mark.parametrize("settings", [{"id": "reader"}, {"dialect": "plain"}], ids=str)
def test_a_subscription_that_is_paused_for_longer_than_its_lease_is_not_dropped(
    settings: dict[str, Any],
) -> None:
    with filled(300) as gateway:
        subscriber = paused_at(5, gateway.endpoint, lease=0.5, timeout=0.3, **settings)
        set_patience(subscriber.subscription, 0.5)
        stays(lambda: not subscriber.over.is_set(), "it has ended", 2.0)
        assert gateway.status().counters.get("leases ended", 0) == 0
        set_patience(subscriber.subscription, 60)
        subscriber.go_on()
        assert subscriber.over.wait(PATIENCE)
    assert subscriber.error is None
    assert subscriber.numbers == list(range(300))


@pytest.mark.parametrize("size", [SIZE, 1 << 20])
def test_a_gateway_that_is_restarted_meanwhile_goes_on_at_the_same_record(tmp_path: Any, size: int) -> None:
    count, endpoint = 40, free_endpoint()
    with Gateway(records(count, size), endpoint, journal=SqliteJournal(tmp_path / "log.db")) as gateway:
        eventually(lambda: gateway.status().head == count)
        subscriber = paused_at(3, endpoint, id="reader", window_bytes=4 << 20)
    stays(lambda: len(subscriber.got) == 3, "it went on")
    with Gateway(Flux.empty(), endpoint, journal=SqliteJournal(tmp_path / "log.db")):
        subscriber.go_on()
        assert subscriber.over.wait(PATIENCE)
    assert subscriber.error is None
    assert subscriber.numbers == list(range(count))


def test_the_error_of_the_source_comes_after_what_waits() -> None:
    source = records(50).concat_with(Flux.error(OSError("the disk")))
    with Gateway(source, ANYWHERE, journal=MemoryJournal()) as gateway:
        subscriber = paused_at(5, gateway.endpoint)
        stays(lambda: not subscriber.over.is_set(), "the end has overtaken records")
        subscriber.go_on()
        assert subscriber.over.wait(PATIENCE)
    assert "the disk" in str(subscriber.error)
    assert subscriber.numbers == list(range(50))


def test_a_reader_that_is_replaced_meanwhile_gets_what_has_arrived_and_then_the_error() -> None:
    with filled(50) as gateway:
        subscriber = paused_at(5, gateway.endpoint, id="reader", window=20, max_window=20)
        other = read(gateway.endpoint, id="reader").wait()
        stays(lambda: not subscriber.over.is_set(), "the end has overtaken records", 0.2)
        subscriber.go_on()
        assert subscriber.over.wait(PATIENCE)
    assert isinstance(subscriber.error, TakenOver)
    assert subscriber.numbers == list(range(len(subscriber.got)))
    assert [number_of(each) for each in other.items][-1] == 49


def test_an_error_comes_at_once_if_nothing_is_requested_any_more() -> None:
    with filled(50) as gateway:
        subscriber = paused_at(5, gateway.endpoint, 5, id="reader", window=20, max_window=20)
        read(gateway.endpoint, id="reader").wait()
        assert subscriber.over.wait(PATIENCE)
    assert isinstance(subscriber.error, TakenOver)


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="there is no clock of a thread here")
def test_a_paused_subscription_whose_gateway_was_lost_does_nothing_until_it_is_resumed() -> None:
    endpoint = free_endpoint()
    with Gateway(records(50).concat_with(Flux.never()), endpoint, journal=MemoryJournal()):
        subscriber = paused_at(5, endpoint)
        eventually(lambda: subscriber.subscription.metrics().next == 50)
        set_patience(subscriber.subscription, 0.2)
    assert isinstance(subscriber.subscription, AquiferSubscription)
    driver = subscriber.subscription._driver
    eventually(lambda: driver.finished is not None)
    thread = subscriber.subscription._thread
    assert thread.ident is not None
    with Gateway(records(50), endpoint, journal=MemoryJournal()):
        clock = time.pthread_getcpuclockid(thread.ident)
        # It hears that there is a gateway again, which changes nothing.
        began = time.clock_gettime(clock)
        stays(lambda: not subscriber.over.is_set(), "the end has overtaken records", 2.0)
        assert time.clock_gettime(clock) - began < 0.5
        subscriber.go_on()
        assert subscriber.over.wait(PATIENCE)
    assert subscriber.error is not None
    assert subscriber.numbers == list(range(50))


def test_a_resume_while_the_end_is_considered_does_not_drop_what_waits() -> None:
    endpoint = free_endpoint()
    with Gateway(records(50).concat_with(Flux.never()), endpoint, journal=MemoryJournal()):
        subscriber = paused_at(5, endpoint)
        eventually(lambda: subscriber.subscription.metrics().next == 50)
        set_patience(subscriber.subscription, 0.2)
    subscription = subscriber.subscription
    assert isinstance(subscription, AquiferSubscription)
    eventually(lambda: subscription._driver.finished is not None)
    considered = threading.Event()
    is_over, is_deliverable = subscription._over, subscription._deliverable

    def resumed_meanwhile() -> bool:
        before = is_deliverable()
        subscriber.go_on()
        return before

    def over() -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subscription, "_deliverable", resumed_meanwhile)
            found = is_over()
        considered.set()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subscription, "_over", over)
        assert considered.wait(PATIENCE)
    subscriber.go_on()
    assert subscriber.over.wait(PATIENCE)
    assert subscriber.error is not None
    assert subscriber.numbers == list(range(50))


@pytest.mark.parametrize("group", [{"id": "reader"}, {"group": "team", "partitions": 3}], ids=str)
def test_records_that_are_settled_one_by_one_are_neither_lost_nor_doubled(group: dict[str, Any]) -> None:
    """Some of a portion do not come, because the subscriber has paused: they are not out yet."""
    count = 200
    refused: set[int] = set()

    class Settling(Pausing):
        def on_next(self, element: Any, /) -> None:
            super().on_next(element)
            if element.offset % 5 == 0 and element.offset not in refused:
                refused.add(element.offset)
                self.subscription.nack(element.offset, "later")
            else:
                self.subscription.ack(element.offset)

    source = Flux.range(0, count).map(lambda number: record(number))
    with Gateway(source, ANYWHERE, journal=MemoryJournal()) as gateway:
        eventually(lambda: gateway.status().head == count)
        subscriber = Settling(pauses=lambda got: got % 3 == 0)
        terms: dict[str, Any] = {"acknowledge": "each", "redelivery": Redelivery(delay=0.05)}
        AquiferPublisher(gateway.endpoint, start="earliest", records=True, **terms, **group).subscribe(
            subscriber
        )
        while not subscriber.over.is_set():
            if subscriber.paused.acquire(timeout=0.05):
                subscriber.resume()
            assert len(subscriber.got) <= count + len(refused)
        assert subscriber.error is None
    assert subscriber.broken == []
    assert sorted(subscriber.numbers) == sorted([*range(count), *range(0, count, 5)])


def test_records_that_are_delivered_again_stop_at_a_pause() -> None:
    count = 60
    with filled(count) as gateway:
        subscriber = Pausing(pauses=lambda got: got > count and got % 2 == 0)
        terms: dict[str, Any] = {"acknowledge": "each", "redelivery": Redelivery(delay=0.05, limit=3)}
        AquiferPublisher(gateway.endpoint, id="reader", records=True, **terms).subscribe(subscriber)
        eventually(lambda: len(subscriber.got) == count)
        for element in list(subscriber.got):
            subscriber.subscription.nack(element.offset, "once more")
        for _ in range(count // 2):
            subscriber.wait_until_paused()
            subscriber.resume()
        eventually(lambda: len(subscriber.got) == 2 * count)
        assert subscriber.subscription._acknowledgements.unsettled.redelivered == count
        for element in subscriber.got[count:]:
            subscriber.subscription.ack(element.offset)
        assert subscriber.over.wait(PATIENCE)
    assert subscriber.broken == []
    assert subscriber.numbers == [*range(count), *range(count)]


def test_a_pause_stops_all_partitions_of_a_group() -> None:
    count = 200
    source = Flux.range(0, count).map(lambda n: Record(record(n, 20_000), key=b"%d" % n))
    with Gateway(source, ANYWHERE, journal=MemoryJournal()) as gateway:
        eventually(lambda: gateway.status().head == count)
        subscriber = Pausing(pauses=lambda got: got % 9 == 0)
        publisher = AquiferPublisher(gateway.endpoint, group="team", partitions=4, start="earliest")
        publisher.subscribe(subscriber)
        for _ in range(count // 9):
            subscriber.wait_until_paused()
            subscriber.resume()
        assert subscriber.over.wait(PATIENCE)
    assert subscriber.broken == []
    assert sorted(subscriber.numbers) == list(range(count))


@pytest.mark.parametrize("group", [{}, {"group": "team", "partitions": 3}], ids=str)
@pytest.mark.parametrize("expect_large", [True, lambda: None, "yes"], ids=["flag", "function", "text"])
def test_an_attribute_of_the_users_own_subscriber_means_nothing(
    expect_large: Any, group: dict[str, Any]
) -> None:
    class Own:
        def __init__(self) -> None:
            self.expect_large = expect_large
            self.got: list[int] = []
            self.over: list[BaseException | None] = []

        def on_subscribe(self, subscription: Any, /) -> None:
            subscription.request(UNBOUNDED)

        def on_next(self, element: bytes, /) -> None:
            self.got.append(number_of(element))

        def on_error(self, error: BaseException, /) -> None:
            self.over.append(error)

        def on_complete(self) -> None:
            self.over.append(None)

    with filled(50) as gateway:
        own = Own()
        AquiferPublisher(gateway.endpoint, start="earliest", **group).subscribe(own)
        eventually(lambda: own.over)
    assert own.over == [None]
    assert sorted(own.got) == list(range(50))


def test_it_is_seen_who_holds_up_a_paused_subscription() -> None:
    meter = StageMeter()
    with filled(50, 1 << 20) as gateway, metering(meter):
        publisher = AquiferPublisher(gateway.endpoint, start="earliest")
        elements = iter(publisher.flux().map(lambda each: each))
        next(elements)
        (subscription,) = publisher._subscriptions
        eventually(lambda: subscription._demand.is_paused and not subscription._recipient.is_at_work)
        meter.sample(1.0)
        meter.sample(1.5)
        waiting = {each.kind: each.waiting_for_demand for each in meter.figures()}
        assert waiting == {"stage": 0.5, "reader": 0.5}
        elements.close()  # type: ignore[attr-defined]
    assert not [each for each in meter.figures() if each.working]


SIZES = [100, 100, 3_000_000, 10, 10, 10, 40_000, 900, 1025, 1] * 30


@pytest.mark.parametrize("settings", [{}, {"records": True}, {"dialect": "plain"}], ids=str)
def test_tiny_and_huge_records_one_after_the_other_come_in_order(settings: dict[str, Any]) -> None:
    def numbered() -> Iterator[bytes]:
        for number, size in enumerate(SIZES):
            yield number.to_bytes(4, "big") + bytes(size)

    with Gateway(Flux.from_iterable(numbered()), ANYWHERE, journal=MemoryJournal()) as gateway:
        publisher = AquiferPublisher(gateway.endpoint, start="earliest", **settings)
        seen = [number_of(each) for each in publisher.flux()]
    assert seen == list(range(len(SIZES)))


def test_two_loops_at_once_read_everything() -> None:
    count = 100
    with filled(count, 200_000) as gateway:
        publisher = AquiferPublisher(gateway.endpoint, start="earliest")
        pairs = list(zip(publisher.flux(), publisher.flux().map(number_of), strict=True))
    assert [(number_of(one), other) for one, other in pairs] == [(number, number) for number in range(count)]


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_coroutines_read_everything(kind: str) -> None:
    factory = None if kind == "asyncio" else pytest.importorskip("uvloop").new_event_loop
    count = 100

    async def read_all(publisher: AquiferPublisher) -> list[int]:
        return [number_of(each) async for each in publisher.flux()]

    async def twice(endpoint: str) -> list[list[int]]:
        publisher = AquiferPublisher(endpoint, start="earliest")
        return await asyncio.gather(read_all(publisher), read_all(publisher))

    with filled(count, 200_000) as gateway, asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(twice(gateway.endpoint)) == [list(range(count))] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_does_not_go_on_with_a_paused_subscription_of_its_parent() -> None:
    printed = run_script("""
        import os, sys, warnings
        from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
        from penstock.streams import Flux, StageMeter, metering
        warnings.simplefilter("ignore", DeprecationWarning)
        source = Flux.range(0, 30).map(lambda n: bytes([n]) * (1 << 20))
        with Gateway(source, "tcp://127.0.0.1:0", journal=MemoryJournal()) as gateway:
            publisher = AquiferPublisher(gateway.endpoint, start="earliest")
            elements = iter(publisher.flux())
            first = next(elements)[0]
            (subscription,) = publisher._subscriptions
            while not subscription._demand.is_paused:
                pass
            sys.stdout.flush()
            child = os.fork()
            if not child:
                try:
                    next(elements)
                except RuntimeError as refused:
                    print("before a fork" in str(refused), flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            print([first, *(each[0] for each in elements)] == list(range(30)))
    """)
    assert printed == "True\nTrue\n"
