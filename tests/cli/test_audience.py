"""When a gateway may leave: not before a reader that it knows has committed everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from penstock.aquifer import AquiferPublisher, Gateway, LogReader
from penstock.cli.gateway.figures import Audience
from penstock.streams import Flux

LONG_AFTER = 3600.0


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """Its source has ended."""
    with Gateway(Flux.range(10).map(lambda n: b"%d" % n), "tcp://127.0.0.1:0") as gateway:
        assert gateway.join(60)
        yield gateway


def is_served(audience: Audience, gateway: Gateway, now: float) -> bool:
    audience.look(gateway.status(), now)
    return audience.is_served


def test_a_durable_reader_that_has_not_committed_is_waited_for(gateway: Gateway) -> None:
    audience = Audience()
    with closing(LogReader(gateway.endpoint)) as query:  # as a Spark query asks: it is never connected
        query.state(name="query", lease=7200.0, acknowledge=0)
        assert len(list(AquiferPublisher(gateway.endpoint).flux())) == 10
        assert not is_served(audience, gateway, 0.0), "another reader has everything, but this one has not"
        query.state(name="query", lease=7200.0, acknowledge=9)
        assert not is_served(audience, gateway, LONG_AFTER)

        query.state(name="query", lease=7200.0, acknowledge=10)

        assert not is_served(audience, gateway, LONG_AFTER), "it has to learn that this was the end"
        assert is_served(audience, gateway, 2 * LONG_AFTER)


def test_a_reader_that_falls_behind_again_is_waited_for_again(gateway: Gateway) -> None:
    audience = Audience()
    with closing(LogReader(gateway.endpoint)) as query:
        query.state(name="query", lease=7200.0, acknowledge=10)
        assert not is_served(audience, gateway, 0.0)
        query.state(name="second", lease=7200.0, acknowledge=0)

        assert not is_served(audience, gateway, LONG_AFTER)


def test_without_any_reader_nobody_has_been_served(gateway: Gateway) -> None:
    assert not is_served(Audience(), gateway, LONG_AFTER)
