"""How long batches took, as the driver reports it to the process that plans them.

The planner of a stream sees when a batch begins, and when Spark asks for the next one. With a trigger of
three seconds, that is three seconds later, however short the batch was, and nothing tells the planner when
the batch ended. The driver knows, afterwards. So the planner leaves a file for its query in a folder of this
user, and a listener in the driver writes there how long each batch took.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.aquifer import QueryReport

__all__ = ["BatchTimes", "note_commit", "reports_folder", "write_report", "write_reports"]

_A_DAY: Final = 24 * 3600.0
_NOTE_EVERY: Final = 1.0
"""Seconds between two notes of a sink."""
_MOST_NOTED: Final = 1000
_noted: Final[dict[tuple[str, str], float]] = {}
"""When a query's commit to an endpoint was last noted by this process."""


def reports_folder() -> Path:
    """A folder that only this user can write to."""
    folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}-batches"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} belongs to another user, or others can write to it")
    return folder


def write_report(file: Path, facts: Mapping[str, Any]) -> None:
    """Put facts into a file at once: whoever reads it meanwhile gets the old ones or these."""
    draft = file.with_name(f"draft-{file.name}-{os.getpid()}")
    draft.write_text(json.dumps(facts))
    draft.replace(file)


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
            folder = reports_folder()
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

    def reports(self, endpoints: Iterable[str]) -> dict[str, QueryReport]:
        """What the driver says about the batch that has ended last, for each gateway; empty if nothing (yet).

        A gateway is told which of its own records the batch has read.
        """
        if self._file is None:
            return {}
        try:
            said: Any = json.loads(self._file.read_text())
            report, starts, ends = said["batch"], said["starts"], said["offsets"]
            return {
                endpoint: msgspec.convert(
                    {**report, "first": starts.get(endpoint, -1), "end": ends.get(endpoint, -1)}, QueryReport
                )
                for endpoint in endpoints
            }
        except (OSError, ValueError, KeyError):
            return {}  # An empty file, or one of an earlier version. (msgspec's error is a ValueError.)

    def close(self) -> None:
        """Stop the reports."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


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
            batch = _described(folder, progress, seconds).to_dict()
            start = source.get("startOffset")  # None before the first batch.
            starts = {**end.get("initial", {}), **(start["offsets"] if isinstance(start, dict) else {})}
            facts = {"offsets": end["offsets"], "starts": starts, "seconds": seconds, "batch": batch}
            write_report(file, facts)


def _described(folder: Path, progress: Mapping[str, Any], seconds: float) -> QueryReport:
    """What a gateway is told about a batch: how long it took, on what, and where it wrote to."""
    query = str(progress.get("id") or "")
    sink = _read(_file(folder, f"sink {query}"))
    written = progress.get("sink") or {}
    with suppress(ValueError):
        began = datetime.fromisoformat(str(progress.get("timestamp", ""))).timestamp()
        return QueryReport(
            name=str(progress.get("name") or ""),
            query=query,
            batch=int(progress.get("batchId", -1)),
            rows=int(progress.get("numInputRows", 0)),
            at=began,
            seconds=seconds,
            phases={phase: spent / 1000 for phase, spent in progress["durationMs"].items()},
            sink=str(sink.get("endpoint") or written.get("description") or ""),
            sink_seconds=float(sink.get("seconds", 0.0)),
            rows_out=int(written.get("numOutputRows", -1)),
        )
    return QueryReport(query=query, seconds=seconds)


def _read(file: Path) -> dict[str, Any]:
    try:
        read: Any = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def note_commit(query: str, endpoint: str, seconds: float) -> None:
    """The sink's side: where a query writes to, and how long the last commit took.

    The next batch waits for this. So what people look at is written once a second, not for each batch.
    """
    now = time.monotonic()
    if now - _noted.get((query, endpoint), float("-inf")) < _NOTE_EVERY:
        return
    if len(_noted) >= _MOST_NOTED:
        _noted.clear()
    _noted[query, endpoint] = now
    with suppress(OSError):  # Only a report is lost.
        file = _file(reports_folder(), f"sink {query}")
        write_report(file, {"endpoint": endpoint, "seconds": seconds})
