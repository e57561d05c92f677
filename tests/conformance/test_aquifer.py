"""Both ends of a gateway keep the rules, over real sockets: what reads its source, and what reads its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from penstock.aquifer import AquiferPublisher, Gateway
from penstock.streams import on_dropped
from penstock.tck import Environment, PublisherVerification, SubscriberBlackboxVerification
from tests.conformance.gateways import Gateways

gateways = Gateways()

PATIENT = Environment(timeout=10, gc=10)
"""A record passes through several threads and a socket, each of which may have to wait for its turn."""


@pytest.fixture(scope="module", autouse=True)
def closing() -> Iterator[None]:
    """What is told to nobody any more need not be logged here; and no gateway is left."""
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        yield
        for gateway in opened:
            gateway.close()
        gateways.close()


class Verification(PublisherVerification):
    """What both dialects have in common."""

    profile = "threads"
    fanout = "multicast"
    environment = PATIENT
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


class Catch:
    """A Publisher that keeps its Subscriber instead of serving it: from then on the kit serves it."""

    subscriber: Any = None

    def subscribe(self, subscriber: Any) -> None:
        self.subscriber = subscriber


class TestGatewayAsASubscriber(SubscriberBlackboxVerification):
    """What a gateway subscribes to its source with."""

    profile = "threads"
    environment = PATIENT

    def create_subscriber(self) -> Any:
        source = Catch()
        gateway = Gateway(source, "tcp://127.0.0.1:0", codec="json").start()
        opened.append(gateway)
        return source.subscriber


opened: list[Gateway] = []
