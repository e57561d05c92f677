"""A Subscriber that raises in on_subscribe, whatever it raises, has left before anything was connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.aquifer import AquiferPublisher, Gateway
from penstock.spec import Subscription
from penstock.streams import on_dropped
from tests.aquifer.faults.rigs import ANYWHERE, Numbers, our_threads
from tests.aquifer.test_what_codecs_raise import outcome

NOBODY = "tcp://127.0.0.1:1"
"""No gateway is asked in these tests."""

PUBLISHERS: dict[str, Callable[[], AquiferPublisher]] = {
    "alone": lambda: AquiferPublisher(NOBODY),
    "in a group": lambda: AquiferPublisher(NOBODY, group="g", records=True),
}

either = pytest.mark.parametrize("publisher", PUBLISHERS)


class Refusing:
    """Raises in on_subscribe."""

    def __init__(self, error: BaseException) -> None:
        self._error = error
        self.others: list[Any] = []

    def on_subscribe(self, subscription: Subscription, /) -> None:
        subscription.request(1)
        raise self._error

    def on_next(self, element: Any, /) -> None:
        self.others.append(element)

    def on_error(self, error: BaseException, /) -> None:
        self.others.append(error)

    def on_complete(self) -> None:
        self.others.append("complete")


@either
@pytest.mark.parametrize("error", [ValueError(), asyncio.CancelledError(), GeneratorExit()], ids=repr)
def test_its_error_is_reported_and_subscribe_returns(publisher: str, error: BaseException) -> None:
    before, subscriber, dropped = our_threads(), Refusing(error), list[BaseException]()

    with on_dropped(error=lambda error, where: dropped.append(error)):
        PUBLISHERS[publisher]().subscribe(subscriber)

    assert dropped == [error]
    assert subscriber.others == []
    # Those of an earlier test may have ended.
    assert set(our_threads()) <= set(before)


@either
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exit_is_raised_on_the_main_thread_and_reported_on_others(
    publisher: str, error: BaseException
) -> None:
    before, dropped = our_threads(), list[BaseException]()

    with on_dropped(error=lambda error, where: dropped.append(error)):
        with pytest.raises(type(error)):
            PUBLISHERS[publisher]().subscribe(Refusing(error))
        assert dropped == []
        _, raised = outcome(lambda: PUBLISHERS[publisher]().subscribe(Refusing(error)))

    assert (raised, dropped) == (None, [error])
    # Those of an earlier test may have ended.
    assert set(our_threads()) <= set(before)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_a_question_to_the_server_that_raises_is_answered_and_the_server_goes_on(
    kind: type[BaseException],
) -> None:
    def question(streams: Any) -> None:
        raise kind("on purpose")

    with Gateway(Numbers(3), ANYWHERE) as gateway:
        _, error = outcome(lambda: gateway._server.call(question))
        assert isinstance(error, kind)
        assert gateway.status().epoch
