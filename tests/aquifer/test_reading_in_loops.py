"""``for`` and ``async for`` over a gateway: a loop gets many records at a time, as many as it asks for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from penstock.aquifer import AquiferPublisher, Gateway
from penstock.streams import Flux
from penstock.streams.spi import ElementInbox
from tests.aquifer.faults.rigs import ANYWHERE, eventually, read
from tests.streams.recording import Recorder

PATIENCE = 30


def _numbers(count: int) -> Flux[bytes]:
    return Flux.from_iterable([b"%d" % number for number in range(count)])


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
    class Deaf(ElementInbox):
        def __init__(self) -> None:
            self.kept: list[bytes] = []
            self.append = self.kept.append
            self.extend = self.kept.extend
            self.idle = True
            self.over: list[BaseException | None] = []

        def on_subscribe(self, subscription: object, /) -> None:
            subscription.request(5)  # type: ignore[attr-defined]

        def on_next(self, element: bytes, /) -> None:
            raise AssertionError("its elements are put into it")

        def on_error(self, error: BaseException, /) -> None:
            self.over.append(error)

        def on_complete(self) -> None:
            self.over.append(None)

        def wake(self) -> None:
            raise SystemExit("cannot wake")

    with Gateway(_numbers(100), ANYWHERE) as gateway:
        publisher, inbox = AquiferPublisher(gateway.endpoint, id="deaf"), Deaf()
        publisher.subscribe(inbox)
        eventually(lambda: inbox.kept)
        # What its reader may not have seen comes again.
        assert read(gateway.endpoint, id="deaf").wait().items[0] == b"0"
    assert inbox.over == []
