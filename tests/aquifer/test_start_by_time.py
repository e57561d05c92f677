"""A subscriber can start at a time: it gets the first record of that time or later, and all after it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Self

import pyarrow as pa
import pytest

from penstock.aquifer import (
    AquiferPublisher,
    EpochChanged,
    Gateway,
    GatewayUnreachable,
    LogReader,
    LogState,
    MemoryJournal,
    Record,
)
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, eventually, free_endpoint, has, read

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOURS = [0, 0, 1, 3, 3, 4]


def at(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def records() -> list[Record]:
    return [
        Record(b"%d" % number, timestamp=round(at(hours).timestamp() * 1_000_000))
        for number, hours in enumerate(HOURS)
    ]


@pytest.mark.parametrize(
    ("hours", "first"), [(-1, 0), (0, 0), (0.5, 2), (1, 2), (2, 3), (3, 3), (3.5, 5), (4, 5), (5, 6)]
)
def test_it_starts_with_the_first_record_of_that_time_or_later(hours: float, first: int) -> None:
    with Gateway(Flux.from_iterable(records()), ANYWHERE) as gateway:
        assert gateway.join(60)
        found = AquiferPublisher(gateway.endpoint, start=at(hours)).flux()
        assert list(found) == [b"%d" % number for number in range(first, len(HOURS))]


def test_the_zone_of_the_time_counts() -> None:
    here = at(3).astimezone(timezone(timedelta(hours=-5)))
    with Gateway(Flux.from_iterable(records()), ANYWHERE) as gateway:
        assert gateway.join(60)
        assert list(AquiferPublisher(gateway.endpoint, start=here).flux()) == [b"3", b"4", b"5"]


def test_each_subscriber_looks_for_itself_and_arrow_batches_are_found_too() -> None:
    batches = [pa.record_batch({"n": [number]}) for number in range(3)]
    with Gateway(Flux.from_iterable(batches), ANYWHERE, codec="arrow") as gateway:
        assert gateway.join(60)
        publisher = AquiferPublisher(gateway.endpoint, codec="arrow", start=NOON - timedelta(days=1))
        for _ in range(2):
            rows = [row["n"] for batch in publisher.flux() for row in batch.to_pylist()]
            assert rows == [0, 1, 2]


def test_a_time_before_the_oldest_record_is_the_oldest_record() -> None:
    journal = MemoryJournal(max_records=100)
    source = Flux.range(1000).map(lambda number: Record(b"%d" % number, timestamp=number))
    with Gateway(source.concat_with(Flux.never()), ANYWHERE, journal=journal) as gateway:
        reader = read(gateway.endpoint)
        eventually(has(reader, 1000))
        first = gateway.status().first
        assert first > 0
        found = AquiferPublisher(gateway.endpoint, start=datetime(1970, 1, 1, tzinfo=UTC)).flux()
        assert list(found.take(1)) == [b"%d" % first]
        reader.cancel()


def test_a_gateway_that_is_not_there_is_an_error_of_the_stream() -> None:
    publisher = AquiferPublisher(free_endpoint(), start=NOON, patience=0.3)
    with pytest.raises(GatewayUnreachable):
        list(publisher.flux())


class RestartedGateway:
    """Serves a log of the hours, and then another one, at the same endpoint, that began ten hours earlier."""

    def __init__(self) -> None:
        self._gateway = self._started(free_endpoint(), 0)

    @staticmethod
    def _started(endpoint: str, first: int) -> Gateway:
        hours = Flux.range(first, 100).map(lambda n: Record(b"%d" % n, timestamp=n * 3_600_000_000))
        gateway = Gateway(hours, endpoint).start()
        assert gateway.join(60)
        return gateway

    @property
    def endpoint(self) -> str:
        return self._gateway.endpoint

    def restart(self) -> None:
        self._gateway.close()
        self._gateway = self._started(self.endpoint, -10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._gateway.close()


@pytest.fixture
def restarted() -> Iterator[RestartedGateway]:
    with RestartedGateway() as gateway:
        yield gateway


def test_another_log_that_comes_in_the_middle_of_the_search_is_searched(
    restarted: RestartedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_of = LogReader.state
    states: list[LogState] = []

    def state(log: LogReader, **about: Any) -> LogState:
        states.append(state_of(log, **about))
        if len(states) == 1:
            restarted.restart()
        return states[-1]

    monkeypatch.setattr(LogReader, "state", state)
    start = datetime(1970, 1, 1, 20, tzinfo=UTC)

    assert next(iter(AquiferPublisher(restarted.endpoint, start=start).flux())) == b"20"
    assert len({state.epoch for state in states}) == 2


def test_an_offset_that_was_found_means_nothing_in_another_log(
    restarted: RestartedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = LogReader.offset_at

    def offset_at(log: LogReader, timestamp: int, **about: Any) -> int:
        found = search(log, timestamp, **about)
        restarted.restart()
        return found

    monkeypatch.setattr(LogReader, "offset_at", offset_at)
    start = datetime(1970, 1, 1, 20, tzinfo=UTC)

    with pytest.raises(EpochChanged):
        list(AquiferPublisher(restarted.endpoint, start=start).flux())


class Silent:
    """A subscriber that keeps its subscription."""

    def __init__(self) -> None:
        self.subscription: Any = None
        self.signals: list[object] = []

    def on_subscribe(self, subscription: Any, /) -> None:
        self.subscription = subscription

    def on_next(self, element: Any, /) -> None:
        self.signals.append(element)

    def on_error(self, error: BaseException, /) -> None:
        self.signals.append(error)

    def on_complete(self) -> None:
        self.signals.append("complete")


def test_a_subscriber_that_cancels_while_it_is_looked_for_hears_nothing() -> None:
    silent = Silent()
    AquiferPublisher(free_endpoint(), start=NOON, patience=300).subscribe(silent)

    silent.subscription.cancel()

    assert silent.subscription.join(60), "it does not wait for its patience to end"
    assert silent.signals == []


def test_a_wrong_request_is_told_while_it_is_looked_for() -> None:
    silent = Silent()
    AquiferPublisher(free_endpoint(), start=NOON, patience=300).subscribe(silent)

    silent.subscription.request(0)

    assert silent.subscription.join(60)
    (error,) = silent.signals
    assert "3.9" in str(error)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"start": datetime(2026, 1, 31)}, "has no time zone; write datetime"),
        ({"start": NOON, "group": "g"}, r"LogReader\.offset_at\(\) finds"),
        ({"start": NOON, "dialect": "plain"}, "do not go together: it has no offsets"),
        ({"start": "noon"}, "give an offset, a datetime, 'earliest' or 'latest'"),
    ],
)
def test_what_cannot_be_found_is_refused_at_once(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        AquiferPublisher("tcp://127.0.0.1:5556", **given)
