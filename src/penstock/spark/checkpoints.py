"""Checkpoints that have lost files, as far as the driver and the sink can notice it.

A checkpoint has a log of the batches that Spark has planned (``offsets``), and one of those that are done
(``commits``). A batch that is planned but not done is repeated after a restart, with the same records. If
files of ``offsets`` are deleted, or an older copy of the checkpoint is used, Spark plans batches anew under
numbers that it has used before. They have other records, and a sink that publishes each number once would
take them for published.

So the driver notes which batch was the last one planned when a run of a query begins, in a property that
Spark hands on to all tasks of that run. A batch with a higher number is not a repetition. If the sink finds
it published all the same, it fails.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.errors import BadCheckpoint

if TYPE_CHECKING:
    from pyspark import TaskContext

__all__ = ["BATCH_PROPERTY", "check_not_published", "check_whole", "is_repeated", "note_planned"]

_log = logging.getLogger("penstock.spark")

BATCH_PROPERTY: Final = "streaming.sql.batchId"
"""The property in which Spark tells a task its batch."""
_PLANNED: Final = "penstock.lastPlannedBatch"
"""The property in which the driver tells it the last batch that an earlier run has planned."""


# ---------------------------------------------------------------- the driver
def note_planned(execution: Any, context: Any) -> None:
    """Note the last planned batch, on the thread of a query that starts, and warn if files are missing.

    ``execution`` is the query, and ``context`` Spark's context, both in Java.
    """
    planned, done = _last(execution.offsetLog()), _last(execution.commitLog())
    context.setLocalProperty(_PLANNED, str(planned))
    if done > planned:
        # A listener cannot fail the query. Spark will, when it is to note that the batch is done.
        _log.warning("%s", _not_whole(str(execution.resolvedCheckpointRoot()), planned, done))


def _last(log: Any) -> int:
    latest = log.getLatestBatchId()
    return int(latest.get()) if latest.isDefined() else -1


def check_whole(checkpoint: Path) -> None:
    """Raise :class:`~penstock.spark.BadCheckpoint` if batches are done that were not planned."""
    planned, done = (_last_file(checkpoint / folder) for folder in ("offsets", "commits"))
    if done > planned:
        raise BadCheckpoint(_not_whole(str(checkpoint), planned, done))


def _last_file(folder: Path) -> int:
    numbers = (int(file.name) for file in folder.glob("*") if file.name.isdecimal())
    return max(numbers, default=-1)


def _not_whole(checkpoint: str, planned: int, done: int) -> str:
    last = f"batch {planned} is the last one" if planned >= 0 else "there is none"
    return (
        f"files of the checkpoint {checkpoint} were deleted: batch {done} is in its folder commits, and in "
        f"offsets {last}. Put them back; or start with a new checkpoint, and records that were processed "
        "before may take effect again"
    )


# ---------------------------------------------------------------- tasks and the sink
def is_repeated(task: TaskContext) -> bool | None:
    """Whether the batch of a task was planned by an earlier run; None if the driver does not say."""
    batch, planned = task.getLocalProperty(BATCH_PROPERTY), task.getLocalProperty(_PLANNED)
    return None if batch is None or planned is None else int(batch) <= int(planned)


def check_not_published(
    batch: int, published: int | None, repeated: bool | None, endpoint: str, writer: str | None
) -> None:
    """Raise :class:`~penstock.spark.BadCheckpoint` if the gateway has a batch that is not a repetition.

    ``published`` is the last batch that the gateway has, if that is this one or a later one. Without a word
    from the driver, only a later one is an error, because Spark repeats no batch but its last. ``writer`` is
    the ``writerId``, if there is one. Then a program may repeat a write itself, and the same holds.
    """
    may_be_same = repeated is None or writer is not None
    if published is None or repeated or (may_be_same and published == batch):
        return
    found = f"the gateway at {endpoint} has published batch {published}"
    if writer is None:
        raise BadCheckpoint(
            f"{found} of this query, and batch {batch} comes with new records: files of the checkpoint were "
            "deleted, or it is an older copy. Put the checkpoint back; or start with a new one, and records "
            "that were processed before may take effect again"
        )
    raise BadCheckpoint(
        f"{found} of the writerId {writer!r}, and batch {batch} comes with new records: the checkpoint was "
        "deleted or is an older copy, or another query or write has the same writerId. Put the checkpoint "
        "back, or use another writerId"
    )
