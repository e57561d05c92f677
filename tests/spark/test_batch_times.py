"""How long a batch took: as the driver says, also when a trigger has an interval."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.source.batch_times import BatchTimes, reports_folder, write_reports
from penstock.streams import Flux
from tests.aquifer.faults.rigs import eventually

if TYPE_CHECKING:
    from tests.spark.conftest import Queries, Serve

HERE = "tcp://127.0.0.1:5556"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return reports_folder()


def progress(offset: int, seconds: float, waited: float = 0.0, name: str = "query") -> dict[str, Any]:
    spent = {"triggerExecution": (seconds + waited) * 1000, "latestOffset": waited * 1000}
    ours = {"endOffset": {"name": name, "offsets": {HERE: offset}}}
    return {"durationMs": spent, "sources": [{"endOffset": 17}, {"endOffset": None}, ours]}


def test_what_was_asked_for_is_reported_for_the_batch_that_it_was(folder: Path) -> None:
    times = BatchTimes()
    write_reports(folder, progress(5, 1.0))
    assert times.seconds({HERE: 5}) is None, "nobody had asked"
    times.request("query")
    assert times.seconds({HERE: 5}) is None
    write_reports(folder, progress(5, 1.5, waited=0.75))
    write_reports(folder, progress(5, 9.0, name="another"))
    assert times.seconds({HERE: 5}) == 1.5
    assert times.seconds({HERE: 6}) is None
    times.close()
    write_reports(folder, progress(6, 1.0))
    assert list(folder.iterdir()) == []


def test_a_gateway_is_told_which_of_its_records_a_batch_has_read(folder: Path) -> None:
    there = "tcp://127.0.0.1:5557"
    times = BatchTimes()
    times.request("query")
    told = progress(20, 1.0) | {
        "id": "q",
        "batchId": 3,
        "numInputRows": 27,
        "timestamp": "2026-01-31T12:00:00Z",
    }
    (ours,) = (source for source in told["sources"] if isinstance(source["endOffset"], dict))
    ours["endOffset"] |= {"initial": {HERE: 5, there: 100}, "offsets": {HERE: 20, there: 112}}
    write_reports(folder, told)
    assert {endpoint: (one.first, one.end) for endpoint, one in times.reports([HERE, there]).items()} == {
        HERE: (5, 20),
        there: (100, 112),
    }, "the first batch begins where the query did"
    ours["startOffset"] = {"offsets": {HERE: 12}}
    write_reports(folder, told)
    reports = times.reports([HERE, there, "tcp://127.0.0.1:1"])
    assert [(one.first, one.end) for one in reports.values()] == [(12, 20), (100, 112), (-1, -1)]
    assert {(one.batch, one.rows) for one in reports.values()} == {(3, 27)}


def test_names_may_be_anything_and_what_was_left_behind_goes(folder: Path) -> None:
    old, new = BatchTimes(), BatchTimes()
    old.request("../../gone")
    (left,) = folder.iterdir()
    os.utime(left, (time.time() - 10**6,) * 2)
    new.request("a/b\0c")
    (file,) = folder.iterdir()
    assert file != left
    write_reports(folder, progress(1, 2.0, name="a/b\0c"))
    assert new.seconds({HERE: 1}) == 2.0
    assert old.seconds({HERE: 1}) is None


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    folder.chmod(0o777)
    times = BatchTimes()
    times.request("query")
    assert times.seconds({HERE: 1}) is None
    assert list(folder.iterdir()) == []


@pytest.mark.rare(20)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_batches_come_to_their_target_though_the_trigger_waits_between_them(
    queries: Queries, serve: Serve
) -> None:
    """Each record costs 1 ms, so that 1 s is a thousand of them, whatever happens between the batches."""
    gateway = serve(Flux.range(10**9).map(lambda n: {"n": n}), codec="json")
    sizes: list[int] = []

    def work(rows: list[Any]) -> None:
        sizes.append(len(rows))
        threading.Event().wait(len(rows) / 1000)

    queries.during = work
    queries.start(
        gateway,
        "n bigint",
        trigger={"processingTime": "4 seconds"},
        value="json",
        targetBatchSeconds=1,
        maxRecordsPerTrigger=3000,
    )

    def settled() -> bool:
        if len(sizes) < 8 or len(done := queries.durations()) < 8:
            return False
        # A busy machine makes the rest of a batch longer, and so the batches shorter; unless the rest alone
        # takes longer than the target: then half of the time is work.
        rest = median(seconds - rows / 1000 for rows, seconds in done[-4:])
        return all(20 <= size <= 1500 * max(1.0, rest) for size in sizes[-4:])

    eventually(settled, "the batches do not come to what takes a second", 240)
