"""A durable reader has received the end of the stream, and the gateway is restarted before it is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer import AquiferPublisher, Gateway, SqliteJournal
from penstock.streams import Flux
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import (
    ANYWHERE,
    UNBOUNDED,
    eventually,
    free_endpoint,
    our_threads,
    set_patience,
)
from tests.aquifer.test_redelivery import Worker

COUNT = 100


def whole(stored: int) -> Flux[bytes]:
    return Flux.from_iterable([b"x"] * (COUNT - stored))


def broken(stored: int) -> Flux[bytes]:
    return Flux.concat(whole(stored), Flux.error(OSError("unplugged")))


class Reader(Worker):
    """Settles nothing by itself, and writes down each end."""

    def __init__(self, first: int) -> None:
        super().__init__(lambda _: "", first)
        self.ends: list[BaseException | None] = []

    def on_error(self, error: BaseException, /) -> None:
        self.ends.append(error)
        super().on_error(error)

    def on_complete(self) -> None:
        self.ends.append(None)
        super().on_complete()


def read(endpoint: str, first: int = UNBOUNDED, **settings: Any) -> Reader:
    reader = Reader(first)
    AquiferPublisher(endpoint, **{"id": "r", "records": True, **settings}).subscribe(reader)
    return reader


def has_sent_the_end(gateway: Gateway) -> Callable[[], bool]:
    return lambda: [one.state for one in gateway.status().subscribers] == ["ended"]


def reached(gateway: Gateway, offset: int = COUNT) -> Callable[[], bool]:
    return lambda: [one.acknowledged for one in gateway.status().saved.values()] == [offset]


def finish(reader: Reader, acknowledge: str) -> None:
    """Take the rest, and settle all of it."""
    reader.subscription.request(UNBOUNDED)
    eventually(lambda: len(reader.got) == COUNT)
    if acknowledge == "manual":
        assert reader.over.wait(60)
        reader.subscription.acknowledge(COUNT)
    elif acknowledge == "each":
        for offset in range(COUNT):
            reader.subscription.ack(offset)
    assert reader.over.wait(60)
    assert reader.subscription.join(60)


@pytest.mark.parametrize("source", [whole, broken])
@pytest.mark.parametrize("acknowledge", ["auto", "manual", "each"])
def test_the_next_gateway_is_told_what_was_acknowledged_after_the_end(
    tmp_path: Path, acknowledge: str, source: Callable[[int], Flux[bytes]]
) -> None:
    endpoint, path = free_endpoint(), tmp_path / "log.db"
    with Gateway(source, endpoint, journal=SqliteJournal(path)) as gateway:
        reader = read(endpoint, 10, acknowledge=acknowledge)
        eventually(has_sent_the_end(gateway))
        eventually(lambda: len(reader.got) == 10)
    with Gateway(source, endpoint, journal=SqliteJournal(path)) as gateway:
        # Who says goodbye before it notices the loss says it to nobody, and gets records again the next time.
        eventually(lambda: len(gateway.status().subscribers) == 1)
        finish(reader, acknowledge)
        eventually(reached(gateway))
    assert reader.got == list(range(COUNT))
    assert len(reader.ends) == 1
    assert (reader.ends[0] is None) == (source is whole)


def test_it_is_told_after_a_gateway_was_killed_as_well(tmp_path: Path) -> None:
    endpoint, path = free_endpoint(), tmp_path / "log.db"
    arguments = f"lambda stored: Flux.from_iterable([b'x'] * ({COUNT} - stored)), {endpoint!r}, journal="
    with GatewayProcess(f"{arguments}SqliteJournal({str(path)!r})") as first:
        reader = read(endpoint, acknowledge="manual")
        assert reader.over.wait(60)
        reader.subscription.acknowledge(30)
        first.kill()
    with Gateway(whole, endpoint, journal=SqliteJournal(path)) as gateway:
        eventually(lambda: [one.acknowledged for one in gateway.status().subscribers] == [30])
        reader.subscription.acknowledge(COUNT)
        assert reader.subscription.join(60)
        eventually(reached(gateway))


def test_what_is_acknowledged_after_the_end_is_told_at_once() -> None:
    with Gateway(whole(0), ANYWHERE) as gateway:
        reader = read(gateway.endpoint, acknowledge="manual")
        assert reader.over.wait(60)
        reader.subscription.acknowledge(40)
        eventually(lambda: [one.acknowledged for one in gateway.status().subscribers] == [40])
        reader.subscription.cancel()
        assert reader.subscription.join(60)


@pytest.mark.parametrize("acknowledge", ["auto", "manual"])
def test_a_gateway_that_never_comes_back_does_not_spoil_the_end(acknowledge: str) -> None:
    with Gateway(whole(0), ANYWHERE) as gateway:
        reader = read(gateway.endpoint, 10, acknowledge=acknowledge)
        eventually(has_sent_the_end(gateway))
        set_patience(reader.subscription, 0.2)
    finish(reader, acknowledge)
    assert reader.ends == [None]
    eventually(lambda: our_threads() == [], "a thread is left")


def test_a_log_that_began_anew_does_not_spoil_the_end(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = free_endpoint()
    with Gateway(whole(0), endpoint) as gateway:
        reader = read(endpoint, 10)
        eventually(has_sent_the_end(gateway))
    with Gateway(whole(0), endpoint):
        eventually(lambda: "was not told the last acknowledgements of r" in caplog.text)
        finish(reader, "auto")
    assert reader.ends == [None]
    assert reader.got == list(range(COUNT))
