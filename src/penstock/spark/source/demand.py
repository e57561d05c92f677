"""How many records a trigger should ask for, so that a batch takes about as long as it was told to.

A micro-batch costs something even when it is empty, and then something for each record: ``a + b * n``
seconds. Both are learned from the batches that have run. A controller that only scales by the last duration
shrinks for ever when ``a`` alone is longer than the target; this one stops where half of the time is work.
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
"""How much of what was learned before counts when a new batch has run."""
_SURPRISE: Final = 2.0
"""A batch that takes so many times as long, or as short, as expected: what was learned is about the past."""

_REMEMBERED: Final = 20
"""Batches among which the shortest is looked for."""


class AdaptiveDemand:
    """Learns what a batch costs, and says how large the next one should be."""

    def __init__(self, target: float, *, start: int, least: int = 1, most: int = 2**63 - 1) -> None:
        if not target > 0:
            raise ValueError(f"the target of a batch has to be longer than 0 seconds, not {target!r}")
        self.target = target
        self.least = least
        self.most = most
        self.size = self._bounded(start)
        """How many records the next batch should have."""
        self.fixed = 0.0
        """Seconds that an empty batch takes (a)."""
        self.per_record = 0.0
        """Seconds for each record (b)."""
        self._weight = self._n = self._t = self._nn = self._nt = 0.0
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)

    def observed(self, records: int, seconds: float) -> None:
        """A batch of so many records took so many seconds."""
        if records <= 0 or seconds <= 0:
            return
        seconds = max(seconds, 1e-6)
        expected = self.fixed + self.per_record * records
        surprised = bool(self._durations) and _far_from(expected, seconds)
        # If the one before took as long, with more records or with fewer, that is something to learn from.
        forget = surprised and _far_from(self._durations[-1], seconds)
        self._learn(records, seconds, 0.0 if forget else _MEMORY)
        told_apart = self._fit(records, seconds)
        wanted = max((self.target - self.fixed) / self.per_record, self.fixed / self.per_record)
        if not told_apart and abs(self._bounded(wanted) - records) < max(1, 0.1 * records):
            wanted = 1.2 * records + 1  # A batch of another size will tell what the records cost.
        # No batch can be shorter than an empty one, and the shortest that was seen is the best guess at that.
        acceptable = max(self.target, 2 * min(self._durations, default=0.0))
        self._durations.append(seconds)
        # What took far too long is a reason not to wait for the next to see how much less it should be.
        least = self.size * (0.05 if seconds > _SURPRISE * acceptable else 0.5)
        # A batch may have been smaller than allowed, for want of records. That is no reason to ask for less,
        # nor for more: nobody has seen yet what a batch of that size costs.
        most = self.size if seconds > acceptable else max(self.size, 2 * records)
        self.size = self._bounded(min(max(wanted, least), most))

    def _learn(self, n: float, t: float, memory: float) -> None:
        self._weight = self._weight * memory + 1
        self._n = self._n * memory + n
        self._t = self._t * memory + t
        self._nn = self._nn * memory + n * n
        self._nt = self._nt * memory + n * t

    def _fit(self, n: float, t: float) -> bool:
        """The line through what is remembered; False if all batches were alike, and there is none."""
        spread = self._weight * self._nn - self._n * self._n
        if spread > 1e-3 * self._weight * self._nn:
            slope = (self._weight * self._nt - self._n * self._t) / spread
            # Larger batches that take no longer: something else takes the time, the wait for the next
            # trigger perhaps. Then records cost next to nothing; how little, larger ones will show.
            mean = self._t / self._weight
            if slope * self._n < -0.2 * self._t:
                # Smaller ones that take longer, though: what was remembered holds no more.
                self._learn(n, t, 0.0)
                return self._fit(n, t)
            self.per_record = max(slope, 0.1 * mean * self._weight / self._n)
            self.fixed = max(mean - self.per_record * self._n / self._weight, 0.0)
            if self.fixed == 0.0:
                self.per_record = self._t / self._n
            return True
        # What cannot be told apart is put on the records, less what is known of the rest.
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
"""Sessions that have a listener."""


def _folder() -> Path:
    """A folder in which nobody but this user can write."""
    folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}-batches"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} belongs to somebody else")
    return folder


def _file(folder: Path, name: str) -> Path:
    return folder / hashlib.sha256(name.encode()).hexdigest()[:32]


class BatchTimes:
    """The planner's side: what was reported about the batches of one query."""

    def __init__(self) -> None:
        self._file: Path | None = None

    def ask(self, name: str) -> None:
        """Have batches reported from now on; if that cannot be, nothing will be."""
        if self._file is not None:
            return
        with suppress(OSError):
            folder = _folder()
            for left_behind in folder.iterdir():
                if left_behind.stat().st_mtime < time.time() - _A_DAY:
                    left_behind.unlink(missing_ok=True)  # Spark often ends a planner without a word.
            self._file = _file(folder, name)
            self._file.touch(mode=0o600)

    def seconds(self, offsets: Mapping[str, int]) -> float | None:
        """How long the batch took that ended at these offsets; None if that is not known, or not yet."""
        if self._file is None:
            return None
        try:
            report: Any = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return None
        return float(report["seconds"]) if report["offsets"] == dict(offsets) else None

    def close(self) -> None:
        """No more reports are wanted."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def report_batch_times(spark: SparkSession) -> None:
    """The driver's side: a listener that reports what was asked for. May be called again."""
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
        listener = streaming.PythonStreamingQueryListenerWrapper(_Listener())
        spark._jsparkSession.streams().addListener(listener)
        _reporting.add(key)
    except Exception as error:  # It is not a part of Spark's public interface.
        _log.info("batches are timed without the driver's help: %s", error)


class _Listener:
    """Called by Spark. PySpark's own listener asks for some sixty figures each time, whoever wants them."""

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch has ended."""
        try:
            folder = _folder()
            if any(folder.iterdir()):
                write_reports(folder, json.loads(event.progress().json()))
        except Exception as error:
            _log.info("a batch was not reported: %s", error)

    class Java:
        """For py4j."""

        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


def write_reports(folder: Path, progress: Mapping[str, Any]) -> None:
    """Tell those who have asked: without the wait for records, which is none of the batch's work."""
    spent = progress["durationMs"]
    seconds = (spent["triggerExecution"] - spent.get("latestOffset", 0)) / 1000
    for source in progress["sources"]:
        end = source.get("endOffset")
        if not isinstance(end, dict) or "name" not in end or "offsets" not in end:
            continue  # Another source than ours.
        file = _file(folder, str(end["name"]))
        if file.exists():
            draft = file.with_name(f"{file.name}.{os.getpid()}")
            draft.write_text(json.dumps({"offsets": end["offsets"], "seconds": seconds}))
            draft.replace(file)
