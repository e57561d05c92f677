"""How long a batch really took, from the driver to the process that plans the next one.

The planner of a stream sees when a batch begins and when it is asked for the next one. With a trigger of
three seconds that is three seconds later, however short the batch was, and nothing tells it when the batch
ended. The driver knows, after the fact. So a planner that wants to know leaves a file for its query in a
folder of this user, and a listener in the driver writes there how long each batch took.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BatchTimes", "report_batch_times"]

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
