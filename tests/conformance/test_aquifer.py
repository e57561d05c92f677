"""``AquiferPublisher`` keeps the rules, over real sockets: our own kit on the far end of a gateway.

A gateway keeps its whole log, so one of them serves every test that wants as many elements: each subscriber
reads it from the oldest record, in the same order (rule 1.12).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, ClassVar

import pytest

from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
from penstock.streams import Flux, on_dropped
from penstock.tck import PublisherVerification

ENDLESS = 2**31
"""From here on the kit means a stream without an end."""


class Gateways:
    """One gateway for each number of elements."""

    def __init__(self) -> None:
        self._running: dict[int, Gateway] = {}

    def endpoint(self, elements: int) -> str:
        """Where so many elements can be had."""
        if elements not in self._running:
            endless = elements >= ENDLESS
            numbers = Flux.from_iterable(count()) if endless else Flux.range(elements)
            self._running[elements] = Gateway(
                numbers, "tcp://127.0.0.1:0", codec="json", journal=MemoryJournal(max_records=10_000)
            ).start()
        return self._running[elements].endpoint

    def failed(self) -> str:
        """Where nothing but an error can be had."""
        if -1 not in self._running:
            self._running[-1] = Gateway(Flux.error(OSError("no such file")), "tcp://127.0.0.1:0").start()
        return self._running[-1].endpoint

    def close(self) -> None:
        for gateway in self._running.values():
            gateway.close()


gateways = Gateways()


@pytest.fixture(scope="module", autouse=True)
def closing() -> Iterator[None]:
    """What is told to nobody any more need not be logged here; and no gateway is left."""
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        yield
    gateways.close()


class Verification(PublisherVerification):
    """What both dialects have in common."""

    profile = "threads"
    fanout = "multicast"
    settings: ClassVar[dict[str, Any]] = {}

    def create_publisher(self, elements: int) -> Any:
        return AquiferPublisher(gateways.endpoint(elements), codec="json", **self.settings)

    def create_failed_publisher(self) -> Any:
        return AquiferPublisher(gateways.failed(), **self.settings)


class TestExtended(Verification):
    """Frames, absolute credit."""

    settings: ClassVar[dict[str, Any]] = {"dialect": "extended"}


class TestExtendedWithTheSmallestWindow(Verification):
    """Nothing is ever ahead of the reader by more than a record."""

    settings: ClassVar[dict[str, Any]] = {"dialect": "extended", "window": 1, "max_window": 1}


class TestPlain(Verification):
    """The six messages of the document."""

    settings: ClassVar[dict[str, Any]] = {"dialect": "plain"}
