"""The demand of a trigger: how many records a batch should have to take about as long as requested.

A micro-batch has a fixed cost and a cost for each record: ``a + b * n`` seconds. :class:`AdaptiveDemand`
learns both from the batches that have run. A controller that only scales by the last duration would shrink
batches for ever if ``a`` alone is longer than the target; this one stops where half of the time is work.

:class:`BatchTimes` supplies the durations. The planner of a stream sees when a batch begins, and when Spark
asks for the next one. With a trigger of three seconds, that is three seconds later, however short the batch
was, and nothing tells the planner when the batch ended. The driver knows, afterwards. So the planner leaves
a file for its query in a folder of this user, and a listener in the driver writes there how long each batch
took.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AdaptiveDemand", "BatchTimes", "report_batch_times"]

_MEMORY: Final = 0.7
"""The weight of earlier batches when a new batch has run."""
_SURPRISE: Final = 2.0
"""If a batch takes this many times longer, or shorter, than expected, what was learned is outdated."""

_REMEMBERED: Final = 20
"""Among so many recent batches, the shortest counts."""


class AdaptiveDemand:
    """Learns what a batch costs, and suggests the size of the next one."""

    def __init__(self, target: float, *, start: int, least: int = 1, most: int = 2**63 - 1) -> None:
        if not target > 0:
            raise ValueError(f"the target of a batch needs more than 0 seconds, not {target!r}")
        self.target = target
        self.least = least
        self.most = most
        self.size = self._bounded(start)
        """The number of records for the next batch."""
        self.fixed = 0.0
        """Seconds for an empty batch (a)."""
        self.per_record = 0.0
        """Seconds for each record (b)."""
        self._weight = self._n = self._t = self._nn = self._nt = 0.0
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)

    def observed(self, records: int, seconds: float) -> None:
        """Learn from a batch."""
        if records <= 0 or seconds <= 0:
            return
        seconds = max(seconds, 1e-6)
        expected = self.fixed + self.per_record * records
        surprised = bool(self._durations) and _far_from(expected, seconds)
        # If the batch before took as long, with more or fewer records, then both together tell something.
        forget = surprised and _far_from(self._durations[-1], seconds)
        self._learn(records, seconds, 0.0 if forget else _MEMORY)
        told_apart = self._fit(records, seconds)
        wanted = max((self.target - self.fixed) / self.per_record, self.fixed / self.per_record)
        if not told_apart and abs(self._bounded(wanted) - records) < max(1, 0.1 * records):
            wanted = 1.2 * records + 1  # A batch of another size shows what the records cost.
        # No batch is shorter than an empty one, and the shortest so far is our best guess at that.
        acceptable = max(self.target, 2 * min(self._durations, default=0.0))
        self._durations.append(seconds)
        # After a batch that took far too long, shrink at once.
        least = self.size * (0.05 if seconds > _SURPRISE * acceptable else 0.5)
        # A batch may have been smaller than requested because there were no more records. Then the size stays
        # as it is: we have not seen yet what a batch of that size costs.
        most = self.size if seconds > acceptable else max(self.size, 2 * records)
        self.size = self._bounded(min(max(wanted, least), most))

    def _learn(self, n: float, t: float, memory: float) -> None:
        self._weight = self._weight * memory + 1
        self._n = self._n * memory + n
        self._t = self._t * memory + t
        self._nn = self._nn * memory + n * n
        self._nt = self._nt * memory + n * t

    def _fit(self, n: float, t: float) -> bool:
        """Fit a line through the batches; False if they were all of one size."""
        spread = self._weight * self._nn - self._n * self._n
        if spread > 1e-3 * self._weight * self._nn:
            slope = (self._weight * self._nt - self._n * self._t) / spread
            # If larger batches take no longer, something else takes the time, perhaps the wait for the next
            # trigger. Then records cost next to nothing; larger batches will show how little.
            mean = self._t / self._weight
            if slope * self._n < -0.2 * self._t:
                # If smaller batches take longer, what was learned is outdated.
                self._learn(n, t, 0.0)
                return self._fit(n, t)
            self.per_record = max(slope, 0.1 * mean * self._weight / self._n)
            self.fixed = max(mean - self.per_record * self._n / self._weight, 0.0)
            if self.fixed == 0.0:
                self.per_record = self._t / self._n
            return True
        # We cannot separate the two costs, so all but the known fixed cost counts for the records.
        self.fixed = min(self.fixed, t / 2)
        self.per_record = (t - self.fixed) / n
        return False

    def _bounded(self, size: float) -> int:
        return int(max(self.least, min(size, self.most)))


def _far_from(expected: float, seconds: float) -> bool:
    return not expected / _SURPRISE < seconds < expected * _SURPRISE


_log = logging.getLogger("penstock.spark")

_A_DAY: Final = 24 * 3600.0
_reporting: Final[set[str]] = set()
"""The sessions that have a listener."""


def _folder() -> Path:
    """A folder that only this user can write to."""
    folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}-batches"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} belongs to another user, or others can write to it")
    return folder


def _file(folder: Path, name: str) -> Path:
    return folder / hashlib.sha256(name.encode()).hexdigest()[:32]


class BatchTimes:
    """The planner's side: the reports about the batches of one query."""

    def __init__(self) -> None:
        self._file: Path | None = None

    def request(self, name: str) -> None:
        """Request reports from now on; without effect if the folder cannot be used."""
        if self._file is not None:
            return
        with suppress(OSError):
            folder = _folder()
            for left_behind in folder.iterdir():
                if left_behind.stat().st_mtime < time.time() - _A_DAY:
                    left_behind.unlink(missing_ok=True)  # Spark often kills a planner.
            self._file = _file(folder, name)
            self._file.touch(mode=0o600)

    def seconds(self, offsets: Mapping[str, int]) -> float | None:
        """How long the batch that ended at these offsets took; None if there is no report (yet)."""
        if self._file is None:
            return None
        try:
            report: Any = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return None
        return float(report["seconds"]) if report["offsets"] == dict(offsets) else None

    def close(self) -> None:
        """Stop the reports."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def report_batch_times(spark: SparkSession) -> None:
    """The driver's side: add a listener that writes the requested reports; idempotent."""
    try:
        from pyspark.java_gateway import ensure_callback_server_started

        key = f"{spark.sparkContext.applicationId} {spark._jsparkSession.sessionUUID()}"
        if key in _reporting:
            return
        context = spark.sparkContext
        assert context._gateway is not None
        assert context._jvm is not None
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        streaming = context._jvm.org.apache.spark.sql.streaming
        listener = streaming.PythonStreamingQueryListenerWrapper(_ProgressListener())
        spark._jsparkSession.streams().addListener(listener)
        _reporting.add(key)
    except Exception as error:  # This is not part of Spark's public interface.
        _log.info("the driver cannot report how long batches take: %s", error)


class _ProgressListener:
    """Called by Spark. PySpark's own listener would fetch some sixty figures each time."""

    def onQueryStarted(self, event: Any) -> None:
        """Spark requires this method."""

    def onQueryIdle(self, event: Any) -> None:
        """Spark requires this method."""

    def onQueryTerminated(self, event: Any) -> None:
        """Spark requires this method."""

    def onQueryProgress(self, event: Any) -> None:
        """Write the reports of a batch that has ended."""
        try:
            folder = _folder()
            if any(folder.iterdir()):
                write_reports(folder, json.loads(event.progress().json()))
        except Exception as error:
            _log.info("could not report how long a batch took: %s", error)

    class Java:
        """Tells py4j which Java interface this is."""

        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def write_reports(folder: Path, progress: Mapping[str, Any]) -> None:
    """Write how long a batch took, without its wait for records, if a planner has requested it."""
    spent = progress["durationMs"]
    seconds = (spent["triggerExecution"] - spent.get("latestOffset", 0)) / 1000
    for source in progress["sources"]:
        end = source.get("endOffset")
        if not isinstance(end, dict) or "name" not in end or "offsets" not in end:
            continue  # The source is not ours.
        file = _file(folder, str(end["name"]))
        if file.exists():
            draft = file.with_name(f"{file.name}.{os.getpid()}")
            draft.write_text(json.dumps({"offsets": end["offsets"], "seconds": seconds}))
            draft.replace(file)
