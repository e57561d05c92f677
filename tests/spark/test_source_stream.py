"""``spark.readStream.format("aquifer")``: how much a trigger takes, and where a query begins and goes on."""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import pytest

from penstock.spark.source.demand import FIRST_BATCH
from penstock.spark.versions import has_admission_control
from tests.aquifer.faults.rigs import ByHand, eventually, stays
from tests.spark.conftest import failure_of

if TYPE_CHECKING:
    from tests.spark.conftest import Queries, Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOON = 400
"""Seconds; a first batch on a machine with other things to do."""


def numbers(count: int, first: int = 0, width: int = 0) -> list[bytes]:
    return [str(number).encode().rjust(width, b"0") for number in range(first, first + count)]


# ---------------------------------------------------------------- how much
def test_a_trigger_takes_no_more_records_than_it_may(queries: Queries, serve: Serve) -> None:
    batches = queries.run(serve(numbers(25)), maxRecordsPerTrigger=10)
    assert [[row.offset for row in batch] for batch in batches] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 25)),
    ]


def test_a_trigger_takes_about_as_many_bytes_as_it_may(queries: Queries, serve: Serve) -> None:
    batches = queries.run(serve(numbers(100, width=100)), maxBytesPerTrigger=4000)
    assert queries.offsets == list(range(100))
    sizes = [len(batch) for batch in batches]
    assert all(30 <= size <= 40 for size in sizes[:-1]), sizes


def test_batches_become_as_large_as_the_query_can_take_in_the_target_time(
    queries: Queries, serve: Serve
) -> None:
    cost, target = 1e-4, 0.5
    queries.during = lambda rows: time.sleep(cost * len(rows))  # A query with this much to do.
    batches = queries.run(serve(numbers(40_000)), targetBatchSeconds=target, maxRecordsPerTrigger=10_000)
    assert queries.offsets == list(range(40_000))
    sizes = [len(batch) for batch in batches]
    assert sizes[0] == FIRST_BATCH
    # Most of them: a machine that is busy with something else makes the odd one look cheap or dear. And if
    # an empty batch alone takes longer than the target there, half of the time is work.
    empty = median(seconds - cost * rows for rows, seconds in queries.durations()[2:])
    assert 100 <= median(sizes[2:]) <= 1.2 * max(target, empty) / cost, (sizes, empty)


def test_the_trigger_once_takes_everything_at_once(queries: Queries, serve: Serve) -> None:
    limits = {"maxRecordsPerTrigger": 10, "maxBytesPerTrigger": 100, "targetBatchSeconds": 0.1}
    query = queries.start(serve(numbers(25_000)), trigger={"once": True}, **limits)
    assert query.awaitTermination(SOON)
    assert [len(batch) for batch in queries.batches] == [25_000]


def test_several_gateways_share_a_trigger(queries: Queries, serve: Serve) -> None:
    few, many = serve(numbers(3)), serve(numbers(30))
    batches = queries.run(f"{few.endpoint},{many.endpoint}", maxRecordsPerTrigger=10)
    assert [len(batch) for batch in batches] == [10, 10, 10, 3]
    counts = [sum(row.endpoint == few.endpoint for row in batch) for batch in batches]
    assert counts == [3, 0, 0, 0]
    assert [r.offset for r in queries.rows if r.endpoint == many.endpoint] == list(range(30))


@pytest.mark.parametrize("trigger", [None, {"processingTime": "0.1 seconds"}], ids=["default", "interval"])
def test_records_are_read_as_they_come(
    queries: Queries, serve: Serve, trigger: dict[str, str] | None
) -> None:
    source = ByHand()
    gateway = serve(source)
    query = queries.start(gateway, trigger=trigger)
    for done, count in pairwise((0, 5, 6, 9)):
        source.give(*numbers(count - done, first=done))
        eventually(lambda count=count: queries.offsets == list(range(count)), "not read", SOON)
    assert query.isActive


def test_news_of_any_of_several_gateways_is_news(queries: Queries, serve: Serve) -> None:
    one, other = ByHand(), ByHand()
    gateways = serve(one), serve(other)
    one.give(b"first")
    queries.start(",".join(gateway.endpoint for gateway in gateways), waitSeconds=10 * SOON)
    eventually(lambda: len(queries.rows) == 1, "not read", SOON)
    other.give(b"second")
    eventually(lambda: len(queries.rows) == 2, "it waits for the other gateway", SOON)


# ---------------------------------------------------------------- when there is nothing to do
def test_an_idle_query_has_no_batches_and_stops_at_once(queries: Queries, serve: Serve) -> None:
    source = ByHand()
    gateway = serve(source)
    source.give(*numbers(5))
    query = queries.start(gateway, waitSeconds=10 * SOON)
    eventually(lambda: len(queries.rows) == 5, "not read", SOON)
    stays(lambda: queries.ids == [0], "an idle query has batches", 1.5)
    assert query.isActive
    begun = time.monotonic()
    query.stop()
    assert time.monotonic() - begun < SOON, "a query that waits for records cannot be stopped"


def test_a_stream_that_has_ended_is_not_asked_over_and_over(queries: Queries, serve: Serve) -> None:
    gateway = serve(numbers(5))
    queries.start(gateway)
    eventually(lambda: len(queries.rows) == 5, "not read", SOON)
    asked: list[float] = []
    bookmarks = gateway._server.streams.default._probes
    ask = bookmarks.ask
    bookmarks.ask = lambda *question: asked.append(time.monotonic()) or ask(*question)  # type: ignore[func-returns-value]
    eventually(lambda: len(asked) >= 8, "nobody asks any more", SOON)
    assert asked[7] - asked[0] > 1.5, "more than a few questions in a second"
    assert queries.ids == [0]


# ---------------------------------------------------------------- where it begins and goes on
def test_a_restart_from_the_checkpoint_loses_nothing_and_repeats_nothing(
    queries: Queries, serve: Serve
) -> None:
    source = ByHand()
    gateway = serve(source)
    for done, count in pairwise((0, 30, 50, 50, 51)):
        source.give(*numbers(count - done, first=done))
        eventually(lambda count=count: gateway.status()["head"] == count)
        queries.run(gateway, maxRecordsPerTrigger=20, partitions=count % 3 + 1)
        assert queries.offsets == list(range(count))
    assert queries.ids == [0, 1, 2, 3]  # Of 20, 10, 20 and 1; with nothing new there is none.


@pytest.mark.parametrize(("start", "first"), [("latest", 10), (4, 4), ("earliest", 0)])
def test_a_query_begins_where_it_is_told_to(
    queries: Queries, serve: Serve, start: str | int, first: int
) -> None:
    source = ByHand()
    gateway = serve(source)
    source.give(*numbers(10))
    eventually(lambda: gateway.status()["head"] == 10)
    queries.start(gateway, startingOffsets=start)
    eventually(lambda: gateway.status()["absent"], "the query does not begin", SOON)
    source.give(*numbers(3, first=10))
    eventually(lambda: queries.offsets == list(range(first, 13)), "not read", SOON)


def test_a_subscription_goes_on_without_a_checkpoint(queries: Queries, serve: Serve) -> None:
    source = ByHand()
    gateway = serve(source)
    source.give(*numbers(20))
    eventually(lambda: gateway.status()["head"] == 20)
    queries.run(gateway, checkpoint="one", subscription="totals", maxRecordsPerTrigger=10)
    assert gateway.status()["absent"]["totals"]["acknowledged"] == 20
    source.give(*numbers(10))
    eventually(lambda: gateway.status()["head"] == 30)
    queries.run(gateway, checkpoint="another", subscription="totals")
    assert [[row.offset for row in batch] for batch in queries.batches][2:] == [list(range(20, 30))]


def test_typed_columns_stream_into_sparks_own_operators(queries: Queries, serve: Serve) -> None:
    gateway = serve([{"sensor": f"s{n % 2}", "celsius": n} for n in range(10)], codec="json")
    frame = queries.frame(gateway, "sensor string, celsius double", value="json")
    query = (
        frame.groupBy("sensor").sum("celsius").writeStream.format("memory").queryName("sums")
        .outputMode("complete").trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(SOON)
    assert sorted(map(tuple, queries.spark.table("sums").collect())) == [("s0", 20.0), ("s1", 25.0)]


@pytest.mark.skipif(not has_admission_control(), reason="Spark asks for the end of the log from 4.2 on")
def test_the_progress_of_a_query_says_how_far_the_log_goes(queries: Queries, serve: Serve) -> None:
    gateway = serve(numbers(25))
    query = queries.start(gateway, trigger={"availableNow": True}, maxRecordsPerTrigger=10)
    assert query.awaitTermination(SOON)
    sources = [progress.sources[0] for progress in query.recentProgress if progress.numInputRows]
    assert len(sources) == 3
    assert all(f'"{gateway.endpoint}": 25' in str(source.latestOffset) for source in sources)


# ---------------------------------------------------------------- what cannot work
def test_a_gateway_that_is_not_there_fails_the_query_in_time(
    queries: Queries, serve: Serve, nobody: str
) -> None:
    begun = time.monotonic()
    queries.run(serve(numbers(1)), checkpoint="usual")
    usual = time.monotonic() - begun  # A busy machine may take any time for a query.
    begun = time.monotonic()
    query = queries.start(nobody, patienceSeconds=1)
    assert "after 1 s; is it running there" in failure_of(query)
    assert time.monotonic() - begun < 30 + 10 * usual


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"endingOffsets": 3}, "a stream does not end"),
        ({"maxRecordPerTrigger": 3}, "did you mean maxRecordsPerTrigger?"),
        ({"startingOffsets": 9}, "has the offsets 0 to 4, and the next will be 5"),
        ({"value": "string"}, "x int is not one of them"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    queries: Queries, serve: Serve, options: dict[str, object], told: str
) -> None:
    query = queries.start(serve(numbers(5)), **({"schema": "x int", "value": "json"} | options))
    assert told in failure_of(query)
