"""What the driver does for the stream readers of its queries, which run in processes beside it.

It reports how long a batch took, which only the driver knows, and that a query is being stopped, and notes
where a query is when it starts. With Spark 4.0 and 4.1 it also notes the trigger of a query, because these
versions do not tell a reader about it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.checkpoints import note_planned
from penstock.spark.source.batch_times import reports_folder, write_reports
from penstock.spark.stop_notices import StopWatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StartingTriggers", "listen_to_queries"]

_log = logging.getLogger("penstock.spark")

_listening: Final[set[str]] = set()
"""The sessions that have a listener."""


_LONGEST_START: Final = 120_000
"""Milliseconds that a query may take to start the processes that plan it."""


def listen_to_queries(spark: SparkSession, note_trigger: Callable[[str], object] | None = None) -> None:
    """Add a listener to a session, unless it has one.

    ``note_trigger`` is called with the name of the trigger of each query before that query plans anything.
    """
    try:
        from pyspark.java_gateway import ensure_callback_server_started

        key = f"{spark.sparkContext.applicationId} {spark._jsparkSession.sessionUUID()}"
        if key in _listening:
            return
        context = spark.sparkContext
        assert context._gateway is not None
        assert context._jvm is not None
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        streaming = context._jvm.org.apache.spark.sql.streaming
        queries = spark._jsparkSession.streams()
        heard = _QueryListener(queries, context._jsc, note_trigger)
        listener = streaming.PythonStreamingQueryListenerWrapper(heard)
        queries.addListener(listener)
        _listening.add(key)
    except Exception as error:  # This is not part of Spark's public interface.
        _log.info("the driver cannot report how long batches take: %s", error)


class StartingTriggers:
    """The triggers of queries that start. There is one note for all queries of a format.

    The processes that plan a query read the note when they start, which is after the query has. So a query
    with another trigger waits until those of all queries before it have started.
    """

    def __init__(self) -> None:
        self._starting: dict[str, tuple[str, Any]] = {}
        """The queries whose processes may not have read their note yet, by run."""
        self._turn = threading.Lock()

    def begin(self, run: str, execution: Any, note: Callable[[str], object]) -> None:
        """A query starts; runs on its thread. ``execution`` is the query in Java."""
        trigger = str(execution.trigger().getClass().getSimpleName()).rstrip("$")
        with self._turn:
            for other, (noted, started) in list(self._starting.items()):
                if noted != trigger:
                    self._wait_for(started)
                    self.end(other)
            note(trigger)
            self._starting[run] = trigger, execution

    @staticmethod
    def _wait_for(execution: Any) -> None:
        try:
            execution.awaitInitialization(_LONGEST_START)
        except Exception as error:
            _log.debug("a query that started before this one has failed: %s", error)

    def end(self, run: str) -> None:
        """The processes of a query have started, or never will."""
        self._starting.pop(run, None)


_triggers: Final = StartingTriggers()


class _QueryListener:
    """Called by Spark. PySpark's own listener would fetch some sixty figures each time."""

    def __init__(self, queries: Any, context: Any, note_trigger: Callable[[str], object] | None) -> None:
        self._queries = queries
        self._context = context
        self._note_trigger = note_trigger
        self._stop_watch = StopWatch(queries)

    def onQueryStarted(self, event: Any) -> None:
        """Note a query, its trigger and its checkpoint; Spark waits for that before it plans anything.

        It calls this on the thread of the query, and what is called in Java from here runs on that thread.
        """
        try:
            self._stop_watch.begin(str(event.runId()))
            execution = self._queries.get(event.id()).streamingQuery()
            if self._note_trigger is not None:
                _triggers.begin(str(event.runId()), execution, self._note_trigger)
            note_planned(execution, self._context)
        except Exception as error:
            _log.info("could not note the start of a query: %s", error)

    def onQueryIdle(self, event: Any) -> None:
        """Note that the query has been planned."""
        self._end_start(event.runId)

    def onQueryTerminated(self, event: Any) -> None:
        """Note that the query can no longer be stopped."""
        try:
            self._stop_watch.end(str(event.runId()))
        except Exception as error:
            _log.info("could not note the end of a query: %s", error)
        self._end_start(event.runId)

    def _end_start(self, run: Callable[[], object]) -> None:
        """The query has been planned, or will not be; ``run`` asks Java for its run."""
        if self._note_trigger is not None:
            try:
                _triggers.end(str(run()))
            except Exception as error:
                _log.info("could not note that a query has started: %s", error)

    def onQueryProgress(self, event: Any) -> None:
        """Write the reports of a batch that has ended."""
        try:
            folder = reports_folder()
            if any(folder.iterdir()):
                write_reports(folder, json.loads(event.progress().json()))
        except Exception as error:
            _log.info("could not report how long a batch took: %s", error)
        self._end_start(lambda: event.progress().runId())

    class Java:
        """Tells py4j which Java interface this is."""

        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
