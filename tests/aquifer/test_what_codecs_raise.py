"""Codecs, sources and feeds that raise what is not an Exception, or what a loop takes for its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from penstock.aquifer import (
    AquiferPublisher,
    AquiferSubscription,
    Gateway,
    Record,
    Redelivery,
    SourceFailed,
)
from penstock.delivery import UP, Delivery, FeedState
from penstock.spec import Publisher, Subscription
from penstock.streams import Flux
from penstock.streams.spi import ElementInbox
from tests.aquifer.faults.rigs import ANYWHERE, Numbers, eventually, file_descriptors

ODD = [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, StopIteration]
VALUES = [b"%d" % number for number in range(100)]


class Fussy:
    """A codec that raises for one record, in one direction."""

    name = "fussy"

    def __init__(self, kind: type[BaseException], *, reading: bool = False, times: int = 1000) -> None:
        self._kind = kind
        self._reading = reading
        self._times = times

    def _check(self, value: bytes) -> bytes:
        if value == b"50" and self._times:
            self._times -= 1
            raise self._kind("not this one")
        return value

    def encode(self, element: Any) -> bytes:
        return bytes(element) if self._reading else self._check(element)

    def decode(self, value: bytes) -> bytes:
        return self._check(value) if self._reading else value


def outcome(function: Callable[[], Any], seconds: float = 60) -> tuple[Any, BaseException | None]:
    """What a function returns or raises, on a thread of its own; a TimeoutError if it waits for ever."""
    done: Future[tuple[Any, BaseException | None]] = Future()

    def run() -> None:
        try:
            done.set_result((function(), None))
        except BaseException as error:
            done.set_result((None, error))

    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)


def read(endpoint: str, into: list[Any], **settings: Any) -> None:
    into.extend(AquiferPublisher(endpoint, **settings).flux())


@pytest.mark.parametrize("kind", ODD)
def test_a_codec_that_raises_while_it_reads_ends_the_stream_with_an_error(kind: type[BaseException]) -> None:
    with Gateway(Flux.from_iterable(VALUES), ANYWHERE) as gateway:
        codec = Fussy(kind, reading=True)
        _, error = outcome(lambda: read(gateway.endpoint, [], codec=codec, id="me"))
        assert isinstance(error, ValueError if kind is StopIteration else kind), "and does not just end"
        got: list[bytes] = []
        outcome(lambda: read(gateway.endpoint, got, id="me"))
        assert b"50" in got, "the next reader gets the record: it was not acknowledged"


@pytest.mark.parametrize("kind", ODD)
def test_a_codec_that_raises_while_the_gateway_packs_fails_the_stream(kind: type[BaseException]) -> None:
    got: list[bytes] = []
    with Gateway(Flux.from_iterable(VALUES), ANYWHERE, codec=Fussy(kind)) as gateway:
        _, error = outcome(lambda: read(gateway.endpoint, got))
    assert isinstance(error, SourceFailed)
    assert "could not become a record" in str(error)


@pytest.mark.parametrize("kind", ODD)
def test_a_codec_that_raises_anything_leaves_the_record_out_if_so_set(kind: type[BaseException]) -> None:
    with Gateway(Flux.from_iterable(VALUES), ANYWHERE, codec=Fussy(kind), on_bad_record="skip") as gateway:
        got: list[bytes] = []
        _, error = outcome(lambda: read(gateway.endpoint, got))
    assert error is None
    assert got == [value for value in VALUES if value != b"50"]


def test_a_codec_that_fails_once_is_named_as_the_reason() -> None:
    with Gateway(Flux.from_iterable(VALUES), ANYWHERE, codec=Fussy(OSError, times=1)) as gateway:
        _, error = outcome(lambda: read(gateway.endpoint, []))
    assert "could not become a record: OSError: not this one" in str(error)


class Careless:
    """A feed whose own bookkeeping raises."""

    skipped = 0

    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind
        self.told = 0

    def _raise(self, *_: object) -> None:
        self.told += 1
        raise self._kind("not my day")

    journalled = _raise

    def resume(self, marks: Mapping[str, str]) -> None: ...

    @property
    def state(self) -> FeedState:
        return UP

    def __call__(self, journalled: int) -> Publisher[Any]:
        return Flux.from_iterable([Delivery([value], stored=self._raise) for value in VALUES])


@pytest.mark.parametrize("kind", [*ODD, ValueError])
def test_a_feed_that_raises_when_it_is_told_what_is_stored_loses_nothing(kind: type[BaseException]) -> None:
    feed = Careless(kind)
    with Gateway(feed, ANYWHERE) as gateway:
        got: list[bytes] = []
        _, error = outcome(lambda: read(gateway.endpoint, got))
        assert (got, error) == (VALUES, None)
        told = feed.told
        eventually(lambda: feed.told > told)  # From time to time, without a record, too.
        assert gateway.status().failure is None


class Reader:
    """A Subscriber that refuses each record once, and whose on_subscribe may raise."""

    def __init__(self, kind: type[BaseException] | None = None) -> None:
        self._kind = kind
        self.subscription: AquiferSubscription
        self.error: BaseException | None = None
        self.over = threading.Event()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert isinstance(subscription, AquiferSubscription)
        self.subscription = subscription
        if self._kind is not None:
            raise self._kind("not now")
        subscription.request(1000)

    def on_next(self, record: Record, /) -> None:
        assert record.offset is not None
        self.subscription.nack(record.offset, "no")

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        self.over.set()

    def on_complete(self) -> None:
        self.over.set()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_on_subscribe_that_asks_to_stop_leaves_no_connection(kind: type[BaseException]) -> None:
    with Gateway(Numbers(), ANYWHERE) as gateway:
        reader = Reader(kind)
        before = file_descriptors()
        with pytest.raises(kind):
            AquiferPublisher(gateway.endpoint).subscribe(reader)
        eventually(lambda: file_descriptors() <= before)
        assert reader.subscription.join(60)
        reader.subscription.request(1)  # It has no effect, and does not raise.


class OneWay:
    """A codec that reads records and cannot write them."""

    name = "one way"

    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind

    def encode(self, element: Any) -> bytes:
        raise self._kind("I only read")

    def decode(self, value: bytes) -> bytes:
        return value


@pytest.mark.parametrize("kind", [SystemExit, StopIteration])
def test_a_dead_letter_that_cannot_be_written_fails_its_reader(kind: type[BaseException]) -> None:
    with (
        Gateway(Flux.from_iterable(VALUES[:3]), ANYWHERE) as gateway,
        Gateway(Flux.never(), ANYWHERE, writable=True) as letters,
    ):
        reader = Reader()
        AquiferPublisher(
            gateway.endpoint,
            id="me",
            records=True,
            acknowledge="each",
            codec=OneWay(kind),
            redelivery=Redelivery(limit=1, dead_letters=letters.endpoint),
        ).subscribe(reader)
        assert reader.over.wait(60)
        assert isinstance(reader.error, kind)
        assert reader.subscription.join(60)
        eventually(lambda: [one.acknowledged for one in gateway.status().saved.values()] == [0])


class Interrupted(ElementInbox):
    """An inbox that a Ctrl-C hits while the loop that reads it asks for more."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.append = self.got.append
        self.extend = self.got.extend
        self.idle = False
        self.subscription: AquiferSubscription
        self.asker: int | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert isinstance(subscription, AquiferSubscription)
        self.subscription = subscription
        subscription.request(1)

    def takes_elements(self) -> bool:
        return True

    def on_next(self, element: Any, /) -> None:
        self.append(element)

    def wake(self) -> None:
        if threading.get_ident() == self.asker:
            raise KeyboardInterrupt

    def on_error(self, error: BaseException, /) -> None: ...

    def on_complete(self) -> None: ...


def test_a_ctrl_c_while_a_loop_asks_for_more_reaches_the_loop() -> None:
    with Gateway(Flux.from_iterable(VALUES), ANYWHERE) as gateway:
        inbox = Interrupted()
        AquiferPublisher(gateway.endpoint).subscribe(inbox)
        eventually(lambda: len(inbox.got) == 1)
        inbox.asker, inbox.idle = threading.get_ident(), True
        with pytest.raises(KeyboardInterrupt):
            inbox.subscription.request(10)
        inbox.subscription.cancel()
        assert inbox.subscription.join(60)
