"""What is written to a gateway is there once: over restarts, lost messages, and a gateway that is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer import AquiferError, Gateway, SqliteJournal
from penstock.aquifer.client import connection
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.proxy import ControlProxy
from tests.aquifer.faults.rigs import ANYWHERE, eventually, free_endpoint
from tests.aquifer.writing import Connect, couriers, deliver, log_of, numbered, stage


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Couriers to a gateway, or to an endpoint."""
    with couriers() as open_courier:
        yield open_courier


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Future[Any]]]:
    """Calls a function on another thread."""
    with ThreadPoolExecutor(1) as threads:
        yield threads.submit


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Couriers that ask again soon."""
    monkeypatch.setattr(connection, "_REPEAT", 0.3)


def test_marks_are_kept_over_a_restart(connect: Connect, tmp_path: Path) -> None:
    for _ in range(2):
        journal = SqliteJournal(tmp_path / "log.db")
        with Gateway(None, ANYWHERE, journal=journal, writable=True) as gateway:
            courier = connect(gateway)
            deliver(courier, 0, numbered(0, 3))
            courier.publish("query", 1, [])
            deliver(courier, 2, numbered(2, 3))
            assert log_of(gateway.endpoint) == [*numbered(0, 3), *numbered(2, 3)]


def test_a_line_that_loses_messages_makes_no_difference(connect: Connect, impatient: None) -> None:
    with (
        Gateway(None, ANYWHERE, writable=True) as gateway,
        ControlProxy(gateway.endpoint, seed=3, drop=0.15, repeat=0.0) as line,
    ):
        courier = connect(line.endpoint)
        for batch in range(10):
            parts = [stage(courier, batch, [b"%d" % batch], [b"%d again" % batch])]
            courier.publish("query", batch, parts)
        assert line.dropped > 0

        assert log_of(gateway.endpoint) == [b"%d%s" % (n, s) for n in range(10) for s in (b"", b" again")]


@pytest.mark.slow
def test_a_gateway_that_is_killed_before_the_commit_wants_the_batch_again(
    connect: Connect, tmp_path: Path
) -> None:
    endpoint = free_endpoint()
    arguments = f"None, {endpoint!r}, writable=True, journal=SqliteJournal({str(tmp_path / 'log.db')!r})"
    courier = connect(endpoint)
    with GatewayProcess(arguments) as process:
        deliver(courier, 0, numbered(0, 3))
        parts = [stage(courier, 1, numbered(1, 3))]
        process.kill()
    with GatewayProcess(arguments):
        with pytest.raises(AquiferError, match="run the batch again"):
            courier.publish("query", 1, parts)
        for batch in range(2):
            deliver(courier, batch, numbered(batch, 3))

        assert log_of(endpoint) == [*numbered(0, 3), *numbered(1, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_gateway_that_is_killed_while_it_publishes_has_the_batch_once(
    connect: Connect, elsewhere: Any, impatient: None, tmp_path: Path, when: str
) -> None:
    endpoint, path = free_endpoint(), str(tmp_path / "log.db")
    dying = f"__import__('tests.aquifer.writing', fromlist=['x']).DyingJournal({path!r}, {when!r})"
    courier = connect(endpoint)
    with GatewayProcess(f"None, {endpoint!r}, writable=True, journal={dying}") as process:
        publishing = elsewhere(deliver, courier, 0, numbered(0, 3))
        process._process.wait(60)
    with GatewayProcess(f"None, {endpoint!r}, writable=True, journal=SqliteJournal({path!r})"):
        if when == "before":
            # It was not written, and what was staged is gone with the process.
            with pytest.raises(AquiferError, match="run the batch again"):
                publishing.result(60)
            deliver(courier, 0, numbered(0, 3))
        else:
            # It was written, and only the answer is missing: the courier asks again.
            publishing.result(60)

        assert log_of(endpoint) == numbered(0, 3)
        deliver(courier, 1, numbered(1, 2))
        assert log_of(endpoint) == [*numbered(0, 3), *numbered(1, 2)]


@pytest.mark.slow
def test_a_gateway_that_is_killed_again_and_again_has_every_batch_once(
    connect: Connect, elsewhere: Any, impatient: None, tmp_path: Path
) -> None:
    endpoint, batches = free_endpoint(), 60
    arguments = f"None, {endpoint!r}, writable=True, journal=SqliteJournal({str(tmp_path / 'log.db')!r})"
    courier = connect(endpoint)
    begun: list[int] = []

    def write() -> None:
        for batch in range(batches):
            begun.append(batch)
            for attempt in count():
                pieces = [numbered(batch, 20)[at : at + 5] for at in range(0, 20, 5)]
                try:
                    courier.publish("query", batch, [stage(courier, batch, *pieces, attempt=attempt)])
                    break
                except AquiferError as error:
                    if "run the batch again" not in str(error):
                        raise

    writing: Future[None] | None = None
    for kill in range(1, 7):
        with GatewayProcess(arguments) as process:
            writing = writing or elsewhere(write)
            eventually(partial(lambda enough: len(begun) > enough, 9 * kill))
            process.kill()
    assert writing is not None
    with GatewayProcess(arguments):
        writing.result(60)

        assert log_of(endpoint) == [record for batch in range(batches) for record in numbered(batch, 20)]
