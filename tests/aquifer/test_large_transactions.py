"""Batches that are larger than the memory for them: they wait on the journal's disk, and leave nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from penstock.aquifer import (
    AquiferError,
    Gateway,
    Limits,
    MemoryJournal,
    SqliteJournal,
    StreamOptions,
    verify_journal,
)
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import ANYWHERE, eventually, free_endpoint, nameless_files
from tests.aquifer.writing import Connect, Courier, couriers, deliver, log_of, stage

if sys.platform == "win32":
    pytest.skip("an open file cannot be removed here", allow_module_level=True)

MIB = 1024 * 1024
SMALL = Limits(staged_bytes=4 * MIB)
"""A mebibyte of pieces stays in memory."""


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Couriers to a gateway, or to an endpoint."""
    with couriers() as open_courier:
        yield open_courier


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Future[None]]]:
    """Calls a function on another thread."""
    with ThreadPoolExecutor(2) as threads:
        yield threads.submit


def pieces(count: int, seed: int = 0, size: int = MIB) -> list[list[bytes]]:
    """Pieces of ten records each; they can be compressed, and no two are alike."""
    random = Random(seed)
    return [[random.randbytes(size // 20) + bytes(size // 20) for _ in range(10)] for _ in range(count)]


def flat(pieces: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Their records."""
    return [record for piece in pieces for record in piece]


# ---------------------------------------------------------------- published
@pytest.mark.parametrize("compress", [None, "zstd"])
def test_a_batch_that_is_larger_than_the_memory_for_it_is_published(
    connect: Connect, tmp_path: Path, compress: str | None
) -> None:
    journal = SqliteJournal(tmp_path / "log.db")
    batch = pieces(40)
    with Gateway(None, ANYWHERE, journal=journal, writable=True, limits=SMALL, compress=compress) as gateway:
        courier = connect(gateway)
        part = stage(courier, 0, *batch)
        assert sum(status.st_blocks * 512 for status in nameless_files(tmp_path).values()) > 38 * MIB
        assert log_of(gateway.endpoint) == []

        for _ in range(2):
            courier.publish("query", 0, [part])

        eventually(lambda: nameless_files(tmp_path) == {})
        assert log_of(gateway.endpoint) == flat(batch)
        deliver(courier, 1, [b"a small one"])
        assert (journal.held.nbytes < 25 * MIB) == (compress is not None)
    assert verify_journal(tmp_path / "log.db").is_sound
    with closing(SqliteJournal(tmp_path / "log.db")) as journal:
        assert journal.head == 401


@pytest.mark.slow
@pytest.mark.parametrize("compress", [None, "zstd"])
def test_the_gateway_never_has_the_whole_batch_in_memory(
    connect: Connect, tmp_path: Path, compress: str | None
) -> None:
    arguments = (
        f"None, {ANYWHERE!r}, writable=True, limits=Limits(staged_bytes={4 * MIB}), compress={compress!r}, "
        f"journal=SqliteJournal({str(tmp_path / 'log.db')!r}, cache_bytes={4 * MIB})"
    )
    with GatewayProcess(arguments) as process, process.watched() as most:
        courier = connect(process.endpoint)
        deliver(courier, 0, flat(pieces(1)))
        before = most()
        part = stage(courier, 1, *(piece for seed in range(10) for piece in pieces(10, seed)))
        courier.publish("query", 1, [part])

        assert most() - before < 25
        eventually(lambda: nameless_files(tmp_path, process.pid) == {})


def test_two_writers_at_a_time_do_not_see_each_other(
    connect: Connect, elsewhere: Callable[..., Future[None]], tmp_path: Path
) -> None:
    def write(courier: Courier, query: str, seed: int) -> None:
        for batch in range(3):
            part = stage(courier, batch, *pieces(6, 10 * seed + batch), query=query)
            courier.publish(query, batch, [part])

    journal = SqliteJournal(tmp_path / "log.db")
    with Gateway(None, ANYWHERE, journal=journal, writable=True, limits=SMALL) as gateway:
        writing = [elsewhere(write, connect(gateway), name, seed) for seed, name in enumerate("ab")]
        for each in writing:
            each.result(60)

        records = log_of(gateway.endpoint)
        assert len(records) == 2 * 3 * 60
        batches = [records[at : at + 60] for at in range(0, len(records), 60)]
        for seed in range(2):
            mine = [flat(pieces(6, 10 * seed + batch)) for batch in range(3)]
            assert [batch for batch in batches if batch in mine] == mine
        eventually(lambda: nameless_files(tmp_path) == {})


def test_a_piece_may_be_as_large_as_the_memory_for_all(connect: Connect, tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "log.db")
    limits = Limits(staged_bytes=33 * MIB)
    with Gateway(None, ANYWHERE, journal=journal, writable=True, limits=limits) as gateway:
        large = [bytes([number]) * (32 * MIB) for number in range(3)]
        courier = connect(gateway)

        courier.publish("query", 0, [stage(courier, 0, *([record] for record in large))])

        assert log_of(gateway.endpoint) == large


def test_attempts_that_do_not_count_give_their_space_back(connect: Connect, tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "log.db")
    with Gateway(None, ANYWHERE, journal=journal, writable=True, limits=SMALL) as gateway:
        courier = connect(gateway)
        for attempt in range(3):
            stage(courier, 0, *pieces(5, attempt), attempt=attempt)
        others = stage(courier, 0, *pieces(2, 7), query="another")

        courier.publish("query", 0, [(0, 1, 5)])
        courier.publish("another", 0, [others])

        assert log_of(gateway.endpoint) == flat([*pieces(5, 1), *pieces(2, 7)])
        eventually(lambda: nameless_files(tmp_path) == {})


def test_a_gateway_that_is_closed_gives_the_space_back(connect: Connect, tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "log.db")
    gateway = Gateway(None, ANYWHERE, journal=journal, writable=True, limits=SMALL).start()
    stage(connect(gateway), 0, *pieces(5))
    assert len(nameless_files(tmp_path)) == 1

    gateway.close()

    assert nameless_files(tmp_path) == {}
    assert {file.name for file in tmp_path.iterdir()} <= {"log.db", "log.db-lock"}


def test_each_stream_has_bounds_of_its_own(connect: Connect, tmp_path: Path) -> None:
    limits = Limits(staged_bytes=4 * MIB, staged_disk_bytes=4 * MIB)
    streams = {
        name: StreamOptions(journal=SqliteJournal(tmp_path / f"{name}.db"), writable=True) for name in "ab"
    }
    with Gateway(None, ANYWHERE, streams=streams, limits=limits) as gateway:
        for name in "ab":
            courier = connect(f"{gateway.endpoint}/{name}")
            with pytest.raises(AquiferError, match=r"no more than 4194304 bytes .*staged_disk_bytes"):
                stage(courier, 0, *pieces(6))
            courier.publish("query", 0, [(0, 0, 3)])
            assert log_of(f"{gateway.endpoint}/{name}") == flat(pieces(6)[:3])


# ---------------------------------------------------------------- refused
def test_a_journal_in_memory_has_no_disk_to_put_it_on(connect: Connect) -> None:
    with Gateway(None, ANYWHERE, journal=MemoryJournal(), writable=True, limits=SMALL) as gateway:
        courier = connect(gateway)
        with pytest.raises(AquiferError, match=r"start the gateway with a journal in a file"):
            stage(courier, 0, *pieces(5))

        deliver(courier, 0, flat(pieces(1)))
        assert log_of(gateway.endpoint) == flat(pieces(1))


def test_a_disk_that_gets_full_while_records_are_staged(connect: Connect, small_disk: Path) -> None:
    journal = SqliteJournal(small_disk / "log.db")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(MIB))
    limits = Limits(staged_bytes=MIB)
    with Gateway(None, ANYWHERE, journal=journal, writable=True, limits=limits) as gateway:
        courier, batch = connect(gateway), pieces(13, size=MIB // 10)
        with pytest.raises(AquiferError, match="free some space there"):
            stage(courier, 0, *batch)

        # The gateway goes on, because the journal has some space left.
        deliver(courier, 0, [b"small"], query="another")
        ballast.unlink()
        courier.publish("query", 0, [stage(courier, 0, *batch[:10], attempt=1)])

        assert log_of(gateway.endpoint) == [b"small", *flat(batch[:10])]
        eventually(lambda: nameless_files(small_disk) == {})


@pytest.mark.parametrize("compress", [None, "zstd"])
def test_a_disk_that_is_too_full_to_publish_is_waited_for(
    connect: Connect, elsewhere: Callable[..., Future[None]], small_disk: Path, compress: str | None
) -> None:
    journal = SqliteJournal(small_disk / "log.db")
    ballast = small_disk / "ballast"
    limits = Limits(staged_bytes=MIB)
    with Gateway(None, ANYWHERE, journal=journal, writable=True, limits=limits, compress=compress) as gateway:
        courier, batch = connect(gateway), pieces(10, size=MIB // 10)
        part = stage(courier, 0, *batch)
        ballast.write_bytes(bytes(3 * MIB // 2))
        publishing = elsewhere(courier.publish, "query", 0, [part])
        eventually(lambda: "no space on the disk" in (gateway.status()["stalled"] or ""))
        assert not publishing.done()

        ballast.unlink()
        publishing.result(60)

        assert log_of(gateway.endpoint) == flat(batch)
        eventually(lambda: nameless_files(small_disk) == {})


# ---------------------------------------------------------------- killed
@pytest.mark.slow
def test_a_gateway_that_is_killed_leaves_nothing_of_what_was_staged(connect: Connect, tmp_path: Path) -> None:
    endpoint, path = free_endpoint(), tmp_path / "log.db"
    arguments = (
        f"None, {endpoint!r}, writable=True, journal=SqliteJournal({str(path)!r}), "
        f"limits=Limits(staged_bytes={4 * MIB})"
    )
    courier, batch = connect(endpoint), pieces(20)
    with GatewayProcess(arguments) as process:
        part = stage(courier, 0, *batch)
        assert len(nameless_files(tmp_path, process.pid)) == 1
        process.kill()
    used = sum(file.stat().st_blocks * 512 for file in tmp_path.rglob("*"))
    assert used < MIB
    assert {file.name for file in tmp_path.iterdir()} <= {
        f"log.db{end}" for end in ("", "-wal", "-shm", "-lock")
    }

    with GatewayProcess(arguments):
        assert log_of(endpoint) == []
        with pytest.raises(AquiferError, match="run the batch again"):
            courier.publish("query", 0, [part])
        for attempt in (1, 2):
            courier.publish("query", 0, [stage(courier, 0, *batch, attempt=attempt)])

        assert log_of(endpoint) == flat(batch)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_gateway_that_is_killed_while_it_publishes_has_a_large_batch_once(
    connect: Connect, elsewhere: Callable[..., Future[None]], tmp_path: Path, when: str
) -> None:
    endpoint, path = free_endpoint(), str(tmp_path / "log.db")
    limits = f"limits=Limits(staged_bytes={4 * MIB})"
    dying = f"__import__('tests.aquifer.writing', fromlist=['x']).DyingJournal({path!r}, {when!r})"
    courier, batch = connect(endpoint), pieces(10)
    with GatewayProcess(f"None, {endpoint!r}, writable=True, {limits}, journal={dying}") as process:
        part = stage(courier, 0, *batch)
        publishing = elsewhere(courier.publish, "query", 0, [part])
        process._process.wait(60)
    with GatewayProcess(f"None, {endpoint!r}, writable=True, {limits}, journal=SqliteJournal({path!r})"):
        if when == "before":
            with pytest.raises(AquiferError, match="run the batch again"):
                publishing.result(60)
        else:
            publishing.result(60)
        courier.publish("query", 0, [stage(courier, 0, *batch, attempt=1)])

        assert log_of(endpoint) == flat(batch)
        assert not [name for name in os.listdir(tmp_path) if "spool" in name]
