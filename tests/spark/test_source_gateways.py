"""A query and its gateway: what is kept for it, how long, and what is told when something is gone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.aquifer import Gateway, MemoryJournal, SqliteJournal
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, Numbers, eventually, read_range, stays
from tests.spark.conftest import failure_of

if TYPE_CHECKING:
    from tests.spark.conftest import Queries, Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOON = 400


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(first, first + count)]


def places(gateway: Gateway) -> list[int]:
    """How far those have come for whom the gateway keeps records."""
    absent: dict[str, Any] = gateway.status()["absent"]
    return [place["acknowledged"] for place in absent.values()]


def full_of(count: int, source: Numbers | None = None, **more: Any) -> Gateway:
    """A gateway that can hold so many records, and has them in small batches."""
    journal = MemoryJournal(max_records=count)
    return Gateway(source or Numbers(), "tcp://127.0.0.1:0", journal=journal, prefetch=count // 10, **more)


# ---------------------------------------------------------------- what is kept
def test_a_batch_is_acknowledged_when_the_next_one_is_asked_for(queries: Queries, serve: Serve) -> None:
    gateway = serve(numbers(30))
    seen: list[list[int]] = []
    queries.during = lambda rows: seen.append(places(gateway))
    queries.run(gateway, maxRecordsPerTrigger=10)
    assert seen == [[0], [10], [20]]
    assert places(gateway) == [30], "Spark has asked whether there is more"


def test_a_query_that_stands_still_holds_the_source_back(queries: Queries) -> None:
    source, go_on = Numbers(), threading.Event()
    with full_of(1000, source) as gateway:
        queries.during = lambda rows: go_on.wait(SOON)
        queries.start(gateway, maxRecordsPerTrigger=300)
        eventually(lambda: gateway.status()["departed"]["records"] >= 300, "the batch is not read", SOON)
        eventually(lambda: source.given >= 1000, "the log does not fill up")
        stays(lambda: source.given <= 1100, "the source is asked for more than there is room for", 1.0)
        go_on.set()
        eventually(lambda: len(queries.rows) > 3000, "the query does not go on", SOON)
        queries.stop()
    assert queries.offsets == list(range(len(queries.rows)))


def test_until_the_first_batch_is_logged_the_lease_is_short(queries: Queries, serve: Serve) -> None:
    source = ByHand()
    gateway = serve(source)

    def leases() -> list[float]:
        return [place["lease_ms"] / 1000 for place in gateway.status()["absent"].values()]

    queries.start(gateway, leaseSeconds=900)
    eventually(lambda: leases() == [300], "there is no place for the query", SOON)
    source.give(b"x")
    eventually(lambda: leases() == [900], "the lease is not the one that was wished for", SOON)


def test_after_the_lease_nothing_is_kept_and_a_restart_tells_what_is_gone(queries: Queries) -> None:
    with full_of(1000) as gateway:
        limits = {"maxRecordsPerTrigger": 300, "leaseSeconds": 600}
        queries.start(gateway, **limits)
        eventually(lambda: len(queries.rows) >= 900, "the query does not read", SOON)
        queries.stop()
        end = len(queries.rows)
        assert places(gateway)[0] <= end
        _end_all_leases(gateway)
        eventually(lambda: not places(gateway), "the place is kept for ever")
        _pass_by(gateway, end + 2000)

        told = failure_of(queries.start(gateway, **limits))
        assert "are gone" in told
        assert 'option("leaseSeconds")' in told
        assert 'set option("failOnDataLoss", "false")' in told

        queries.start(gateway, failOnDataLoss=False, **limits)
        eventually(lambda: len(queries.rows) > end + 1000, "it does not go on without them", SOON)
        queries.stop()
    later = queries.offsets[end:]
    assert later[0] > end
    assert later == list(range(later[0], later[0] + len(later))), "more is missing than was gone"


def _end_all_leases(gateway: Gateway) -> None:
    """As if their time had passed."""
    absent = gateway._server.streams.default.cursors.saved
    for name, place in list(absent.items()):
        gateway._server.streams.default.cursors.leave(name, place._replace(remaining=-1.0))


def _pass_by(gateway: Gateway, offset: int) -> None:
    """Read on as somebody else, until the log no longer goes back to an offset."""

    while gateway.status()["first"] < offset:
        status = gateway.status()
        try:
            for _ in read_range(gateway.endpoint, start=status["first"], stop=status["head"]):
                pass
        except Exception:  # Overtaken: all the better.
            continue


# ---------------------------------------------------------------- another log, another place
def test_a_new_log_is_told_or_read_from_its_beginning(queries: Queries, nobody: str) -> None:
    endpoint = nobody
    with Gateway(Numbers(20), endpoint) as gateway:
        gateway.join(120)
        queries.run(endpoint)
    with Gateway(Numbers(50), endpoint) as gateway:
        gateway.join(120)
        told = failure_of(queries.start(endpoint, trigger={"availableNow": True}))
        assert "DataLoss" in told
        assert "has started a new log" in told
        assert "Start the query with a new checkpoint" in told
        queries.run(endpoint, failOnDataLoss=False, maxRecordsPerTrigger=30)
        assert queries.offsets == [*range(20), *range(50)]
        assert places(gateway) == [50]
        queries.run(endpoint)
        assert len(queries.rows) == 70


def test_a_gateway_that_is_started_again_elsewhere_is_the_same_by_its_journal(
    queries: Queries, tmp_path: Path
) -> None:
    for count in (20, 50):
        with Gateway(
            lambda done, count=count: Numbers(count - done), ANYWHERE,
            journal=SqliteJournal(tmp_path / "journal.db"),
        ) as gateway:  # fmt: skip
            gateway.join(120)
            queries.run(gateway)
            assert queries.offsets == list(range(count))
            assert {row.endpoint for row in queries.batches[-1]} == {gateway.endpoint}


def test_a_checkpoint_of_another_gateway_is_told(queries: Queries, serve: Serve) -> None:
    one, other = serve(numbers(5)), serve(numbers(5))
    queries.run(one)
    told = failure_of(queries.start(other))
    assert f"the query of this checkpoint reads from {one.endpoint}, and records that it has not" in told
    assert len(queries.rows) == 5


def test_a_gateway_is_added_to_a_checkpoint(queries: Queries, serve: Serve) -> None:
    one, other = serve(numbers(5)), serve(numbers(3))
    queries.run(one)
    queries.run(f"{one.endpoint},{other.endpoint}")
    assert {row.endpoint for row in queries.batches[-1]} == {other.endpoint}
    assert sorted(queries.offsets) == [0, 0, 1, 1, 2, 2, 3, 4]
