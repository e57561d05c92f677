"""``for`` and ``async for`` over a gateway: a loop gets many records at a time, as many as it asks for."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.aquifer import AquiferPublisher, AquiferSubscription, Gateway
from penstock.spec import Subscription
from penstock.streams import Flux
from penstock.streams.spi import ElementInbox
from tests.aquifer.faults.rigs import ANYWHERE, eventually, read
from tests.streams.recording import Recorder

PATIENCE = 30


def _numbers(count: int) -> Flux[bytes]:
    return Flux.from_iterable([b"%d" % number for number in range(count)])


class Keeping(ElementInbox):
    """Keeps what comes, and notes how many elements there were when the stream ended."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.append = self.kept.append
        self.extend = self.kept.extend
        self.idle = False
        self.over: list[tuple[int, BaseException | None]] = []
        self.subscription: Subscription | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.subscription = subscription

    def on_next(self, element: bytes, /) -> None:
        raise AssertionError("its elements are put into it")

    def on_error(self, error: BaseException, /) -> None:
        self.over.append((len(self.kept), error))

    def on_complete(self) -> None:
        self.over.append((len(self.kept), None))

    def wake(self) -> None:
        self.idle = False

    def request(self, n: int) -> None:
        assert self.subscription is not None
        self.subscription.request(n)


@pytest.mark.parametrize("settings", [{}, {"records": True}, {"dialect": "plain"}], ids=str)
def test_a_loop_gets_every_record_in_order(settings: dict[str, bool | str]) -> None:
    count = 5000
    with Gateway(_numbers(count), ANYWHERE) as gateway:
        elements = list(AquiferPublisher(gateway.endpoint, **settings).flux())  # type: ignore[arg-type]
    values = [each.value for each in elements] if settings.get("records") else elements
    assert values == [b"%d" % number for number in range(count)]


def test_a_coroutine_gets_every_record_in_order() -> None:
    count = 5000

    async def read_all(endpoint: str) -> list[bytes]:
        return [value async for value in AquiferPublisher(endpoint).flux()]

    with Gateway(_numbers(count), ANYWHERE) as gateway:
        seen = asyncio.run(read_all(gateway.endpoint))
    assert seen == [b"%d" % number for number in range(count)]


def test_a_loop_is_never_more_than_its_demand_ahead() -> None:
    with Gateway(_numbers(3000), ANYWHERE) as gateway:
        publisher = AquiferPublisher(gateway.endpoint)
        for taken, _ in enumerate(publisher.flux()):
            (metrics,) = publisher.metrics()
            assert metrics.records <= taken + 256


def test_each_record_reaches_the_loop_while_its_source_waits_for_that() -> None:
    taken = threading.Semaphore(0)

    def answered() -> Iterator[bytes]:
        for number in range(50):
            yield b"%d" % number
            assert taken.acquire(timeout=PATIENCE)

    with Gateway(Flux.from_iterable(answered()), ANYWHERE) as gateway:
        seen = []
        for value in AquiferPublisher(gateway.endpoint).flux():
            seen.append(value)
            taken.release()
    assert seen == [b"%d" % number for number in range(50)]


def test_a_loop_that_is_left_early_has_acknowledged_no_more_than_it_was_given() -> None:
    with Gateway(_numbers(10_000), ANYWHERE) as gateway:
        for taken, _ in enumerate(AquiferPublisher(gateway.endpoint, id="reader").flux(), 1):
            if taken == 1000:
                break
        rest = read(gateway.endpoint, id="reader").wait().items
    first = int(rest[0])
    assert first <= 1000 + 256
    assert rest == [b"%d" % number for number in range(first, 10_000)]


@pytest.mark.parametrize("dialect", ["extended", "plain"])
def test_a_record_that_is_null_fails_the_stream_after_those_before_it(dialect: str) -> None:
    seen: list[int] = []
    with Gateway(Flux.just(b"1", b"2", b"null", b"3"), ANYWHERE) as gateway:
        publisher = AquiferPublisher(gateway.endpoint, codec="json", dialect=dialect)
        with pytest.raises(ValueError, match="is null"):
            seen.extend(publisher.flux())
        recorder = Recorder.of(publisher, 100).wait()
    assert seen == recorder.items == [1, 2]
    assert isinstance(recorder.error, ValueError)


def test_a_record_that_is_null_can_be_read_as_a_record_and_in_a_list() -> None:
    with Gateway(Flux.just(b"1", b"null"), ANYWHERE) as gateway:
        records = read(gateway.endpoint, codec="json", records=True).wait().items
        lists = read(gateway.endpoint, codec="json", batches=True).wait().items
    assert [record.value for record in records] == [1, None]
    assert [value for each in lists for value in each] == [1, None]


def test_an_inbox_whose_reader_cannot_be_woken_ends_the_subscription() -> None:
    class Deaf(Keeping):
        def wake(self) -> None:
            raise SystemExit("cannot wake")

    with Gateway(_numbers(100), ANYWHERE) as gateway:
        publisher, inbox = AquiferPublisher(gateway.endpoint, id="deaf"), Deaf()
        inbox.idle = True
        publisher.subscribe(inbox)
        inbox.request(5)
        eventually(lambda: inbox.kept)
        # What its reader may not have seen comes again.
        assert read(gateway.endpoint, id="deaf").wait().items[0] == b"0"
    assert inbox.over == []


@pytest.mark.parametrize("dialect", ["extended", "plain"])
def test_requests_of_many_threads_are_met_in_order_and_the_end_comes_last(dialect: str) -> None:
    count = 9000
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Gateway(_numbers(count), ANYWHERE) as gateway:
            inbox = Keeping()
            AquiferPublisher(gateway.endpoint, dialect=dialect).subscribe(inbox)

            def ask() -> None:
                for _ in range(count // 45):
                    inbox.request(9)

            threads = [threading.Thread(target=ask) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            eventually(lambda: inbox.over)
        assert inbox.kept == [b"%d" % number for number in range(count)]
        assert inbox.over == [(count, None)]
    finally:
        sys.setswitchinterval(before)


def test_no_more_is_put_into_an_inbox_than_was_requested() -> None:
    with Gateway(_numbers(5000), ANYWHERE) as gateway:
        inbox, total = Keeping(), 0
        AquiferPublisher(gateway.endpoint).subscribe(inbox)
        for n in (1, 1, 5, 100, 1, 2400, 3, 1000, 7):
            total += n
            inbox.request(n)
            assert len(inbox.kept) <= total
            eventually(lambda: len(inbox.kept) == total)  # noqa: B023
        assert not inbox.over
        assert inbox.subscription is not None
        inbox.subscription.cancel()
        inbox.request(100)
        assert len(inbox.kept) == total


def test_what_a_request_was_given_at_once_is_acknowledged() -> None:
    with Gateway(_numbers(2000), ANYWHERE) as gateway:
        inbox = Keeping()
        AquiferPublisher(gateway.endpoint, id="reader").subscribe(inbox)
        inbox.request(1)
        eventually(lambda: len(inbox.kept) == 1)
        inbox.request(500)  # They are unpacked by now.
        eventually(lambda: len(inbox.kept) == 501)
        assert isinstance(inbox.subscription, AquiferSubscription)
        inbox.subscription.cancel()
        assert inbox.subscription.join(PATIENCE)
        assert read(gateway.endpoint, id="reader").wait().items[0] == b"501"
