"""One meaning of a whole number in every ``request``: numbers with ``__index__`` are numbers, True is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest

from penstock.aquifer import AquiferPublisher, Gateway
from penstock.net.outbound import Ending, SendPublisher
from penstock.spec import Publisher, RuleViolation, strict
from penstock.streams import Flux, schedulers
from penstock.streams.spi import as_stream
from penstock.tck.processor import HelperPublisher
from tests.net.memory.transports import connected
from tests.streams.recording import Recorder

WANTED = 3


class Whole:
    """A number of a foreign type."""

    def __index__(self) -> int:
        return WANTED


class Few(IntEnum):
    THREE = WANTED


LEGAL = [WANTED, Whole(), Few.THREE]
ILLEGAL = [0, -1, True, False, 3.0, "3", b"3", None, [3], Fraction(3), Decimal(3), object()]

Subject = tuple[Publisher[Any], Callable[[], object]]
"""A Publisher, and what lets it go on."""
Open = Callable[[], AbstractContextManager[Subject]]


def at_once(publisher: Publisher[Any]) -> Open:
    @contextmanager
    def opened() -> Iterator[Subject]:
        yield publisher, lambda: None

    return opened


@contextmanager
def of_a_gateway() -> Iterator[Subject]:
    with Gateway(Flux.range(9), "tcp://127.0.0.1:0", codec="json") as gateway:
        yield AquiferPublisher(gateway.endpoint, codec="json"), lambda: None


@contextmanager
def of_a_socket() -> Iterator[Subject]:
    connection, transport, loop = connected()

    def go_on() -> None:
        for number in range(9):
            if transport.reading:
                transport.receive(b"%d" % number)
        loop.settle()

    yield connection.inbound._receiver, go_on


@contextmanager
def of_a_send() -> Iterator[Subject]:
    connection, _, loop = connected()
    yield SendPublisher(connection.output, as_stream(Flux.never(), "send()")), loop.settle


@contextmanager
def of_an_end() -> Iterator[Subject]:
    connection, _, loop = connected()
    yield Ending(connection, lambda done: connection.when_peer_ends(lambda: done(None))), loop.settle


WITH_ELEMENTS: dict[str, Open] = {
    "a fused chain": at_once(Flux.range(9).map(str)),
    "overflow": at_once(Flux.range(9).on_backpressure_buffer()),
    "subscribe_on": at_once(Flux.range(9).subscribe_on(schedulers.immediate())),
    "publish_on": at_once(Flux.range(9).publish_on(schedulers.immediate())),
    "the guard around a Publisher": at_once(strict(Flux.range(9))),
    "the kit's Publisher": lambda: at_once(HelperPublisher(range(9)))(),
    "a gateway's reader": of_a_gateway,
    "a socket": of_a_socket,
}
WITHOUT: dict[str, Open] = {"a send": of_a_send, "the end of a connection": of_an_end}


def asked(opened: AbstractContextManager[Subject], n: Any, until: Callable[[Recorder], bool]) -> Recorder:
    """Ask a Publisher for this, and wait until that has had its effect."""
    with opened as (publisher, go_on):
        recorder = Recorder.of(publisher)
        recorder._requested = WANTED
        recorder.subscription.request(n)  # §3.16: returns normally, whatever it is
        go_on()
        for _ in range(2000):
            if until(recorder):
                break
            recorder.finished.wait(0.01)
        recorder.subscription.cancel()
        return recorder.check()


@pytest.mark.parametrize("n", LEGAL, ids=repr)
@pytest.mark.parametrize("subject", WITH_ELEMENTS)
def test_a_number_of_any_type_may_be_requested(subject: str, n: Any) -> None:
    recorder = asked(WITH_ELEMENTS[subject](), n, lambda recorder: len(recorder.items) >= WANTED)

    assert (len(recorder.items), recorder.error) == (WANTED, None)


@pytest.mark.parametrize("n", ILLEGAL, ids=lambda n: type(n).__name__ + repr(n)[:8])
@pytest.mark.parametrize("subject", [*WITH_ELEMENTS, *WITHOUT])
def test_everything_else_ends_the_stream(subject: str, n: Any) -> None:
    recorder = asked((WITH_ELEMENTS | WITHOUT)[subject](), n, lambda recorder: recorder.terminated)

    assert isinstance(recorder.error, RuleViolation), recorder.error
    assert (recorder.error.rule, recorder.items) == ("3.9", [])


@pytest.mark.parametrize("n", LEGAL, ids=repr)
@pytest.mark.parametrize("subject", WITHOUT)
def test_a_publisher_without_elements_takes_them_too(subject: str, n: Any) -> None:
    recorder = asked(WITHOUT[subject](), n, lambda recorder: True)

    assert recorder.error is None


def test_numpys_numbers_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")

    assert Recorder.of(Flux.range(9)).request(numpy.int64(2)).items == [0, 1]
    refused = Recorder.of(Flux.range(9)).request(numpy.array([2]))
    assert isinstance(refused.error, RuleViolation)
