"""A feed with a connection: a server that is down is a state, and nothing is read without demand."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, ClassVar

import pytest

from penstock.backoff import Backoff
from penstock.feeds import ConnectedFeed, ConnectionLost, Delivery
from penstock.tck import PublisherVerification
from tests.cli.running import PATIENCE
from tests.feeds.reading import Reader


class ScriptedFeed(ConnectedFeed):
    """Each connection is a function of a list: what it returns is yielded, or raised."""

    backoff = Backoff(first=0.001, longest=0.01)
    lost: ClassVar[tuple[type[BaseException], ...]] = (OSError, EOFError)

    def __init__(self, *connections: Callable[[], list[Any]]) -> None:
        super().__init__("a script")
        self._connections_left = list(connections)
        self.steps = 0
        self.closed = 0
        self.states: list[str] = []

    async def connection(self) -> AsyncGenerator[Any, None]:
        elements = self._connections_left.pop(0)()
        self.connected()
        try:
            for element in elements:
                self.steps += 1
                if isinstance(element, BaseException):
                    raise element
                yield element
                self.states.append(str(self.state))
        finally:
            self.closed += 1


def refused() -> list[Any]:
    raise ConnectionRefusedError("nobody listens")


def test_it_reconnects_until_the_server_is_there_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    feed = ScriptedFeed(
        lambda: [1, 2, ConnectionLost("closed by the server")], refused, refused, refused, lambda: [3]
    )
    assert feed.state.status == "connecting"

    assert list(feed.flux()) == [1, 2, 3]
    assert feed.states == ["up", "up", "up"]
    assert feed.closed == 2
    assert "a script: closed by the server; attempt 2 follows in" in caplog.text
    assert "nobody listens" in caplog.text
    assert "connected again" in caplog.text


def test_a_server_that_ends_each_connection_early_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    once = [lambda: [1, ConnectionLost("closed by the server")]]
    assert list(ScriptedFeed(*once * 50, lambda: [2]).flux()) == [1] * 50 + [2]
    told = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert len([each for each in told if "closed by the server" in each]) == 1
    assert len([each for each in told if "connected again" in each]) == 1


class LosesCancels(ConnectedFeed):
    """Its client takes a cancel for a lost connection, as some do that wait for one at the same time."""

    backoff = Backoff(first=0.001, longest=0.01)

    def __init__(self) -> None:
        super().__init__("a client")
        self.connections = 0
        self.waits = asyncio.Event()

    async def connection(self) -> AsyncGenerator[Any, None]:
        self.connections += 1
        yield self.connections
        self.waits.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionLost("the server has gone") from None


def test_a_cancel_that_the_client_loses_ends_the_feed_all_the_same() -> None:
    async def leave() -> int:
        feed = LosesCancels()
        async with feed.flux().stream() as elements:
            assert await anext(elements) == 1
            await feed.waits.wait()
        return feed.connections

    assert asyncio.run(asyncio.wait_for(leave(), PATIENCE)) == 1


def test_an_error_of_another_kind_ends_it() -> None:
    with pytest.raises(ValueError, match="not understood"):
        list(ScriptedFeed(lambda: [1, ValueError("not understood")]).flux())


def test_while_it_is_down_its_state_says_since_when_and_why() -> None:
    feed = ScriptedFeed(*[refused] * 1000)
    feed.backoff = Backoff(first=1000.0, longest=1000.0)
    reader = Reader()
    feed(0).subscribe(reader)
    reader.subscription.request(1)
    deadline = asyncio.run(_until(lambda: feed.state.status == "down"))
    reader.subscription.cancel()

    assert deadline
    assert feed.state.reason == "nobody listens"
    assert feed.state.attempts == 1
    assert feed.state.next_attempt is not None
    assert feed.state.next_attempt > feed.state.since


def test_nothing_is_read_without_demand() -> None:
    feed = ScriptedFeed(lambda: list(range(100)))
    reader = Reader()
    feed(0).subscribe(reader)
    reader.subscription.request(3)
    assert reader.take(3) == [0, 1, 2]
    assert feed.steps == 3
    reader.subscription.request(1)
    assert reader.take(1) == [3]
    assert feed.steps == 4
    reader.subscription.cancel()
    assert asyncio.run(_until(lambda: feed.closed == 1)), "the connection stays open after a cancel"


def test_the_records_of_deliveries_are_told_as_safe_when_they_were_taken() -> None:
    told: list[int] = []
    feed = ScriptedFeed(
        lambda: [
            Delivery([1, 2], stored=lambda: told.append(2)),
            Delivery([3], stored=lambda: told.append(3)),
        ]
    )
    assert list(feed.flux()) == [1, 2, 3]
    assert told == [2, 3]


async def _until(is_so: Callable[[], bool]) -> bool:
    async def look() -> None:
        while not is_so():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(look(), PATIENCE)
    return True


class TestConnectionsKeepTheRules(PublisherVerification):
    """The elements of connections, with a loss in between, are a Publisher like any other."""

    max_elements_from_publisher = 1000

    def create_publisher(self, elements: int) -> Any:
        half = elements // 2
        return ScriptedFeed(
            lambda: [*range(half), ConnectionLost("in between")], lambda: list(range(half, elements))
        )(0)

    def create_failed_publisher(self) -> None:
        """None: a connection fails when it is asked for something, and not before."""


def test_a_server_that_accepts_and_hangs_up_is_left_alone_for_longer_and_longer() -> None:
    pauses: list[float] = []

    class Noting(ScriptedFeed):
        def _disconnected(self, error: BaseException) -> float:
            pauses.append(super()._disconnected(error))
            return 0.0

    def hangs_up() -> list[Any]:
        return [ConnectionLost("closed at once")]

    def gives_one() -> list[Any]:
        return [1, ConnectionLost("closed later")]

    feed = Noting(hangs_up, hangs_up, hangs_up, gives_one, hangs_up, lambda: [2])
    feed.backoff = Backoff(first=1.0, longest=60.0, jitter=0.0)
    assert list(feed.flux()) == [1, 2]
    assert pauses == [1.0, 2.0, 4.0, 1.0, 2.0]
