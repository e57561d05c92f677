"""The figures of a pipeline, from the reports that Spark makes of its query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.spark.pipeline_progress import ReportReader


@dataclass
class Report:
    """What one look at a query gives."""

    batchId: int
    numInputRows: int
    processedRowsPerSecond: float = 0.0
    batchDuration: int = 0
    json: str = '{"sources": []}'


class Query:
    """A query that has made these reports; Spark keeps the last hundred."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self.looks_at_all = 0

    def report(self, *reports: tuple[int, int]) -> None:
        self._reports += [Report(*each) for each in reports]

    @property
    def recentProgress(self) -> list[Report]:
        self.looks_at_all += 1
        return self._reports[-100:]

    @property
    def lastProgress(self) -> Report | None:
        return self._reports[-1] if self._reports else None


def records(reader: ReportReader) -> int:
    progress = reader.read()
    assert progress is not None
    return progress.records


def reading() -> tuple[Query, ReportReader]:
    query: Any = Query()
    return query, ReportReader(query)


def test_before_the_first_report_there_are_no_figures() -> None:
    _, reader = reading()
    assert reader.read() is None


def test_a_batch_after_idle_time_is_counted() -> None:
    """Spark reports a batch that is to come under its number, without rows."""
    query, reader = reading()
    for number in range(3):
        query.report((number, 0))
        assert records(reader) == 10 * number
        query.report((number, 0), (number, 10))
        assert records(reader) == 10 * (number + 1)


def test_each_batch_is_counted_once_however_many_end_between_two_looks() -> None:
    query, reader = reading()
    query.report((0, 1))
    assert records(reader) == records(reader) == 1
    query.report((1, 10), (2, 100), (3, 0), (4, 1000), (5, 0))
    assert records(reader) == records(reader) == 1111
    query.report((5, 10_000))
    assert records(reader) == 11_111


def test_a_run_that_continues_counts_from_its_own_first_batch() -> None:
    query, reader = reading()
    query.report((57, 5), (58, 7))
    assert records(reader) == 12


def test_all_reports_are_read_only_if_there_may_be_more_than_one_new_batch() -> None:
    query, reader = reading()
    for number in range(10):
        query.report((number, 5))
        assert records(reader) == records(reader) == 5 * (number + 1)
    query.report((10, 0))
    assert records(reader) == 50
    assert query.looks_at_all == 0
