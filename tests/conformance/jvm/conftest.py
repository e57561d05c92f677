"""Runs the kit in processes of its own, two side by side, and hands each test of this folder its verdict."""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.jvm.needs import fetched_class_path
from tests.conformance.jvm.verdict import Verdict
from tests.conformance.jvm.workers import Worker, Workers

RESULTS_FILE = "PENSTOCK_JVM_RESULTS"
"""Names the file for the verdicts: {subject: {test of the kit: "passed" | "failed" | "skipped"}}."""


class Verdicts:
    """The verdicts of all tests that were selected; work on all subjects begins with this object."""

    def __init__(self, workers: Workers, selected: dict[str, list[str]]) -> None:
        """`selected` are the tests of the kit to run, by the place of the subject."""
        self._running = {place: workers.submit(place, methods) for place, methods in selected.items()}

    def of(self, place: str, method: str) -> Verdict:
        """Return one verdict, as soon as its subject is through."""
        return self._running[place].result()[method]

    def by_subject(self) -> dict[str, dict[str, str]]:
        """Return the outcomes that there are, by the subject's name."""
        finished = {place: run.result() for place, run in self._running.items() if run.done()}
        return {
            place.rpartition(".")[2]: {method: verdict.outcome for method, verdict in verdicts.items()}
            for place, verdicts in finished.items()
        }


@pytest.fixture(scope="session")
def class_path() -> list[Path]:
    return fetched_class_path()


@pytest.fixture(scope="session")
def verdicts(class_path: list[Path], request: pytest.FixtureRequest) -> Iterator[Verdicts]:
    selected: dict[str, list[str]] = defaultdict(list)
    for item in request.session.items:
        marker = item.get_closest_marker("parametrize")
        if marker is not None and {"place", "method"} <= item.callspec.params.keys():  # type: ignore[attr-defined]
            selected[item.callspec.params["place"]].append(item.callspec.params["method"])  # type: ignore[attr-defined]
    with Workers(class_path) as workers:
        running = Verdicts(workers, selected)
        yield running
        if results := os.environ.get(RESULTS_FILE):
            Path(results).write_text(json.dumps(running.by_subject(), indent=2) + "\n")


@pytest.fixture(scope="session")
def jvm(class_path: list[Path]) -> Iterator[Worker]:
    """A process with Java in it, for tests that are written in Python."""
    with Worker(class_path) as worker:
        yield worker
