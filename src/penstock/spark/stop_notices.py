"""Tells a sink that waits that its query is being stopped.

The sink commits a batch in a process beside the driver, and waits there while the log is full or its gateway
is gone. When a query is stopped, Spark waits for that process, and has no way to tell it. So a sink that
waits leaves a file in a folder of this user, and a thread of the driver, which knows the state of its
queries, writes there if the query has been stopped.

An error that names the cancelled job group of the query is what Spark itself raises for a query that is
stopped. So Spark takes :class:`~penstock.spark.QueryStopped` for a part of stopping, not for a failure.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from penstock.spark.errors import QueryStopped
from penstock.spark.source.batch_times import reports_folder, write_report

__all__ = ["QueryRun", "StopNotice", "StopWatch"]

_log = logging.getLogger("penstock.spark")

_PREFIX: Final = "waits-"
_LOOK: Final = 0.5
"""Seconds between two looks of either side."""
_GIVEN_UP: Final = 30.0
"""Seconds after which a file that nobody has touched is that of a process that was killed."""


@dataclass(frozen=True)
class QueryRun:
    """A run of a streaming query, as the tasks of its jobs know it."""

    query: str
    run: str
    """Also the name of the group of its jobs."""

    @property
    def file(self) -> Path:
        """Where the sink and the driver meet."""
        return reports_folder() / f"{_PREFIX}{sha256(self.run.encode()).hexdigest()[:32]}"


class StopNotice:
    """The sink's side, around a wait; without effect for a write that belongs to no query."""

    def __init__(self, run: QueryRun | None, waits_for: str) -> None:
        self._run = run
        self._waits_for = waits_for
        self._file: Path | None = None
        self._next = time.monotonic() + _LOOK

    def check(self) -> None:
        """Raise :class:`~penstock.spark.QueryStopped` if the query has been stopped."""
        if self._run is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK
        try:
            self._ask(self._run)
        except (OSError, ValueError) as error:  # A folder that cannot be used: then the wait goes on.
            _log.info("cannot find out whether the query is being stopped: %s", error)

    def _ask(self, run: QueryRun) -> None:
        self._file = file = run.file
        try:
            if json.loads(file.read_text()).get("stopped"):
                raise QueryStopped(
                    f"the query was stopped while {self._waits_for}: its next run publishes the batch "
                    f"(the job group {run.run} was cancelled)"
                )
            os.utime(file)
        except FileNotFoundError:
            write_report(file, {**asdict(run), "stopped": False})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)


class StopWatch:
    """The driver's side: a thread that runs as long as there are queries.

    ``queries`` is Spark's manager of the queries of a session, in Java.
    """

    def __init__(self, queries: Any) -> None:
        self._queries = queries
        self._runs: set[str] = set()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self, run: str) -> None:
        """A run of a query begins."""
        with self._change:
            self._runs.add(run)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="penstock-stop-watch", daemon=True)
                self._thread.start()

    def end(self, run: str) -> None:
        """A run of a query has ended."""
        with self._change:
            self._runs.discard(run)
            self._change.notify()

    def _watch(self) -> None:
        while True:
            with self._change:
                if self._runs:
                    self._change.wait(_LOOK)
                if not self._runs:
                    self._thread = None
                    return
            try:
                for file in reports_folder().glob(f"{_PREFIX}*"):
                    self._answer(file)
            except Exception as error:  # Java may have ended.
                _log.info("cannot tell the sinks which queries are being stopped: %s", error)

    def _answer(self, file: Path) -> None:
        try:
            if file.stat().st_mtime < time.time() - _GIVEN_UP:
                return
            asked = json.loads(file.read_text())
            run = QueryRun(str(asked["query"]), str(asked["run"]))
        except (FileNotFoundError, ValueError, KeyError):
            return  # The wait is over, or has just begun.
        if asked.get("stopped") or run.run not in self._runs:
            return  # It is told already, or is a query of another driver.
        query = self._queries.get(run.query)
        if query is not None and str(query.runId()) == run.run and not query.isActive():
            write_report(file, {**asdict(run), "stopped": True})
