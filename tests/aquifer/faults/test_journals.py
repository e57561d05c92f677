"""Gateways whose journal is locked, full, removed or of another kind: they wait, or say so."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import Flux
from penstock.aquifer import (
    AquiferPublisher,
    Gateway,
    JournalDamaged,
    JournalError,
    JournalFull,
    SqliteJournal,
)
from penstock.aquifer.log import Cursor, MemoryJournal
from penstock.aquifer.records.batch import Batch
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, Numbers, Peer, eventually, read, reading, stays


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal is."""
    return tmp_path / "journal.db"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program has a write lock on the journal."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield
        other.execute("rollback")


# ---------------------------------------------------------------- what passes
def test_a_foreign_lock_is_waited_for_and_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = ByHand()
    with (
        caplog.at_level(logging.WARNING, "penstock.aquifer"),
        Gateway(source, ANYWHERE, journal=SqliteJournal(path)) as gateway,
    ):
        source.give(b"before")
        eventually(lambda: gateway.status()["head"] == 1)
        with locked(path):
            source.give(b"meanwhile")
            eventually(lambda: "another program works on the journal" in (gateway.status()["stalled"] or ""))
            assert "the gateway and its source wait" in caplog.text
            stays(lambda: gateway.status()["end"] is None)
        source.give(b"after")
        eventually(lambda: gateway.status()["head"] == 3)
        eventually(lambda: gateway.status()["stalled"] is None)  # The records are there a moment earlier.
        assert "the gateway continues" in caplog.text
        source.complete()
        assert read(gateway.endpoint).wait().items == [b"before", b"meanwhile", b"after"]


def test_a_foreign_lock_while_the_gateway_starts_is_waited_for(path: Path) -> None:
    SqliteJournal(path).close()
    source = ByHand()
    with locked(path):
        gateway = Gateway(source, ANYWHERE, journal=SqliteJournal(path)).start()
        source.give(b"meanwhile")
        eventually(lambda: gateway.status()["stalled"])
    eventually(lambda: gateway.status()["head"] == 1)
    gateway.close()


@pytest.mark.slow
def test_a_gateway_can_be_closed_while_another_program_has_the_journal_locked(path: Path) -> None:
    source = ByHand()
    gateway = Gateway(source, ANYWHERE, journal=SqliteJournal(path)).start()
    source.give(b"before")
    eventually(lambda: gateway.status()["head"] == 1)
    with locked(path):
        source.give(b"never stored")
        eventually(lambda: gateway.status()["stalled"])
        gateway.close()

    journal = SqliteJournal(path)
    assert journal.head == 1
    journal.close()


class FullAtTimes(SqliteJournal):
    """Has no room for cursors while ``full`` is set."""

    full = False

    def flush(self) -> None:
        if self.full and self._unsaved:
            raise JournalFull("no room on the disk")
        super().flush()


def test_a_gateway_without_news_notices_that_its_disk_has_room_again(path: Path) -> None:
    journal = FullAtTimes(path)
    journal.full = True
    with Gateway(
        Flux.concat(Flux.range(10), Flux.never()), ANYWHERE, journal=journal, codec="json"
    ) as gateway:
        list(AquiferPublisher(gateway.endpoint, id="a", codec="json").flux().take(5))
        eventually(lambda: gateway.status()["stalled"])

        journal.full = False

        eventually(lambda: gateway.status()["stalled"] is None)


# ---------------------------------------------------------------- what does not
def test_a_journal_that_is_removed_ends_the_stream_and_closing_says_so(path: Path) -> None:
    source = ByHand()
    gateway = Gateway(source, ANYWHERE, journal=SqliteJournal(path)).start()
    source.give(b"before")
    eventually(lambda: gateway.status()["head"] == 1)
    with reading(gateway.endpoint) as reader:
        eventually(lambda: reader.items == [b"before"])
        path.unlink()  # Nothing is written at the moment: it is noticed all the same.

        assert gateway.join(60)
        assert f"{path} was removed or moved away" in (gateway.failure or "")
        assert source.cancelled.wait(60)
        assert reader.wait().items == [b"before"]
        assert "was removed" in str(reader.error)
    with pytest.raises(JournalDamaged, match="was removed or moved away while the journal was in use"):
        gateway.close()
    assert gateway.join(0)


def test_a_journal_of_another_codec_is_refused_and_closed(path: Path) -> None:
    with Gateway(Flux.just("a"), ANYWHERE, journal=SqliteJournal(path), codec="text") as gateway:
        gateway.join()

    other = Gateway(Flux.just({"a": 1}), ANYWHERE, journal=SqliteJournal(path), codec="json")
    with pytest.raises(JournalError, match=r"records of the codec 'text'.* Use the codec 'text', or another"):
        other.start()

    with Gateway(
        lambda stored: Flux.just("b"), ANYWHERE, journal=SqliteJournal(path), codec="text"
    ) as gateway:
        assert list(AquiferPublisher(gateway.endpoint, codec="text").flux()) == ["a", "b"]


def test_an_element_that_cannot_be_stored_does_not_keep_cursors_from_being_stored(path: Path) -> None:
    with Gateway(Flux.just(b"a", b"b", "no bytes"), ANYWHERE, journal=SqliteJournal(path)) as gateway:
        assert gateway.join(60)
        list(AquiferPublisher(gateway.endpoint, id="ann", patience=60).flux().take(1).to_iterable(prefetch=1))

        def stored() -> list[Any]:
            with contextlib.closing(sqlite3.connect(path)) as other:
                return other.execute("select name, acknowledged from cursors").fetchall()

        eventually(lambda: stored() == [("ann", 1)])


# ---------------------------------------------------------------- age
def test_what_is_too_old_goes_also_when_nobody_reads(path: Path) -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE, journal=SqliteJournal(path, max_age=0.2)) as gateway:
        source.give(b"old", b"old")
        eventually(lambda: gateway.status()["head"] == 2)
        eventually(lambda: gateway.status()["records"] == 0)
        source.complete()
        assert gateway.join(60)
        eventually(lambda: gateway.status()["first"] == gateway.status()["head"])
        assert read(gateway.endpoint).wait().items == []


def test_what_is_too_old_stays_for_a_reader_that_has_to_be_kept(path: Path) -> None:
    journal = SqliteJournal(path, max_age=0.2)
    journal.save_cursor("ann", Cursor(1, 60_000, 60.0))
    with Gateway(Numbers(5), ANYWHERE, journal=journal) as gateway:
        assert gateway.join(60)
        stays(lambda: gateway.status()["records"] == 5, seconds=1.0)


def test_what_gets_too_old_makes_room_in_a_full_log_that_nobody_reads(path: Path) -> None:
    source = Numbers(100)
    with Gateway(source, ANYWHERE, journal=SqliteJournal(path, max_records=10, max_age=0.2)) as gateway:
        eventually(lambda: gateway.status()["head"] == 100, timeout=60)


# ---------------------------------------------------------------- memory
class SlowJournal(MemoryJournal):
    """Stores when it is told to, and counts what it is given."""

    def __init__(self) -> None:
        super().__init__(max_records=10**9, max_bytes=10**12)
        self.go_on = threading.Event()
        self.waits = threading.Event()

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str | None] | None = None) -> None:
        if self.head >= 1000:  # From here on records are large.
            self.waits.set()
            assert self.go_on.wait(60)
        super().append(batches, marks)


def test_large_elements_after_small_ones_are_held_back_by_their_bytes() -> None:
    given: list[int] = []

    def element(number: int) -> bytes:
        given.append(number)
        return bytes(10 if number < 5000 else 100_000)

    journal = SlowJournal()
    with Gateway(
        Flux.range(20_000).map(element), ANYWHERE, journal=journal, prefetch_bytes=4_000_000
    ) as gateway:
        assert journal.waits.wait(60)
        stays(lambda: len(given) < 6500, seconds=1.0)
        journal.go_on.set()
        gateway.close()


@pytest.mark.slow
def test_memory_of_a_gateway_does_not_follow_the_size_of_its_records(tmp_path: Path) -> None:
    journal = f"SqliteJournal({str(tmp_path / 'journal.db')!r})"
    arguments = f"Flux.range(3000).map(lambda n: bytes(100_000)), {ANYWHERE!r}, journal={journal}"
    with GatewayProcess(arguments) as gateway, Peer(gateway.endpoint) as peer:
        most = 0.0

        def ended() -> bool:
            nonlocal most
            most = max(most, gateway.memory_mib())
            answer = peer.ask({"jsonClass": "Subscribe", "x": {"v": 1, "probe": True}}, timeout=60)
            return answer["x"]["status"]["end"] is not None

        eventually(ended, timeout=150)
    assert most < 250


@pytest.mark.parametrize(
    ("size", "error", "needs"),
    [
        (0, ValueError, "a number of at least 1, not 0"),
        (-1, ValueError, "a number of at least 1, not -1"),
        (True, TypeError, "a whole number, not True"),
        (1.5, TypeError, "a whole number, not 1.5"),
    ],
)
def test_the_bound_in_bytes_is_a_whole_number(size: Any, error: type[Exception], needs: str) -> None:
    with pytest.raises(error, match=rf"prefetch_bytes=…\) needs {needs}"):
        Gateway(Flux.empty(), ANYWHERE, prefetch_bytes=size)
