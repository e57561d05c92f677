"""Queries whose parts do not keep pace: a source without records beside a busy one, and costs that change."""

from __future__ import annotations

import json
import threading
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.versions import has_admission_control
from penstock.streams import Flux
from tests.aquifer.faults.rigs import eventually

if TYPE_CHECKING:
    from tests.spark.conftest import Queries, Serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SOON = 400
"""Seconds."""
BATCHES, LIMIT = 40, 5
WAIT = 20
"""Seconds for which a source without records waits. For each batch, that would take twice as long as SOON."""


@pytest.mark.rare(15)
@pytest.mark.skipif(not has_admission_control(), reason="its progress says for how long a source waited")
def test_a_source_without_records_does_not_hold_up_another_one_of_the_query(
    queries: Queries, serve: Serve
) -> None:
    busy, idle = serve([b"%d" % n for n in range(BATCHES * LIMIT)]), serve(Flux.never())
    options = {"waitSeconds": WAIT, "maxRecordsPerTrigger": LIMIT}
    rows = queries.frame(busy, **options).union(queries.frame(idle, **options))
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(queries.folder / "state"))
    query = writer.start()
    try:
        eventually(
            lambda: _rows(query.recentProgress) == BATCHES * LIMIT, "one source waits for the other", SOON
        )
        reports = [each for each in query.recentProgress if each["numInputRows"]]
    finally:
        query.stop()
    assert [each["numInputRows"] for each in reports] == [LIMIT] * BATCHES
    waits = [
        json.loads(source["latestOffset"])["waitedSeconds"] for each in reports for source in each["sources"]
    ]
    # When the first batch is planned, no source knows that another one has records.
    assert len([seconds for seconds in waits if seconds > WAIT / 2]) <= 2


def _rows(reports: list[Any]) -> int:
    return sum(each["numInputRows"] for each in reports)


@pytest.mark.rare(20)
def test_batches_follow_a_cost_that_jumps_tenfold_and_back(queries: Queries, serve: Serve) -> None:
    gateway = serve(Flux.range(10**9).map(lambda n: {"n": n}), codec="json")
    sizes: list[int] = []
    costs = {"record": 0.001}

    def work(rows: list[Any]) -> None:
        threading.Event().wait(len(rows) * costs["record"])
        sizes.append(len(rows))

    queries.during = work
    queries.start(gateway, "n bigint", value="json", targetBatchSeconds=1, maxRecordsPerTrigger=20_000)

    def after(count: int, least: float, most: float) -> None:
        begun = len(sizes)
        eventually(
            lambda: len(sizes) >= begun + count and all(least <= n <= most for n in sizes[-count:]),
            "the batches do not follow the cost",
            SOON,
        )

    after(6, 1, 20_000)
    usual = median(sizes[-3:])
    costs["record"] *= 10
    after(2, 1, usual / 3)
    slow = median(sizes[-2:])
    costs["record"] /= 10
    after(2, min(3 * slow, usual / 2), 20_000)
