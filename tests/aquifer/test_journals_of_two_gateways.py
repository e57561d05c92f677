"""One journal for two streams: the second is refused, and the first does not notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aquifer import (
    AquiferPublisher,
    Gateway,
    Journal,
    JournalInUse,
    MemoryJournal,
    SqliteJournal,
    StreamOptions,
)
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, eventually

Make = Callable[[], Journal]


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    return MemoryJournal if request.param == "memory" else lambda: SqliteJournal(tmp_path / "journal")


def test_a_journal_that_a_running_gateway_has_is_refused(make: Make) -> None:
    journal, source = make(), ByHand()
    with Gateway(source, ANYWHERE, journal=journal) as gateway:
        source.give(b"1")
        eventually(lambda: gateway.status().head == 1)
        second = Gateway(Flux.just(b"2"), ANYWHERE, journal=journal)
        with pytest.raises(JournalInUse, match="a journal of its own"):
            second.start()
        second.close()
        source.give(b"3")
        source.complete()
        assert list(AquiferPublisher(gateway.endpoint).flux()) == [b"1", b"3"]
        assert gateway.status().failure is None


def test_a_journal_for_two_streams_of_a_gateway_is_refused(make: Make) -> None:
    journal = make()
    streams = {name: StreamOptions(Flux.just(b"1"), journal=journal) for name in "ab"}
    with pytest.raises(JournalInUse, match="'b' belongs to the stream 'a'"):
        Gateway(None, ANYWHERE, streams=streams).start()


def test_a_journal_is_free_when_its_gateway_is_closed(tmp_path: Path) -> None:
    for number in range(3):
        journal = SqliteJournal(tmp_path / "journal")
        with Gateway(Flux.just(b"1"), ANYWHERE, journal=journal) as gateway:
            eventually(lambda: gateway.status().head == number + 1)  # noqa: B023 - it is called here
