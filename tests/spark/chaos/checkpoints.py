"""What Spark leaves on the disk: how far a query has come, and which files of its sink count.

Both are read from the outside, while the query runs or after it was killed. Spark gives a file its name when
it is complete, so none of those that are looked at here is half written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["committed", "sink_files", "stop_after"]


def committed(checkpoint: Path) -> int:
    """How many records of its one gateway a query has dealt with, for good."""
    batch = max(_batches(checkpoint / "commits"), default=None)
    if batch is None:
        return 0
    # A version, what Spark metadata about the batch, and where each source was at its end.
    position = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])
    (offset,) = position["offsets"].values()
    return int(offset)


def stop_after(total: int, queries: Mapping[Path, StreamingQuery]) -> None:
    """Stop queries, given by their checkpoints, when each has dealt with so many records; raise its error."""
    while any(committed(checkpoint) < total for checkpoint in queries):
        for query in queries.values():
            error = query.exception()
            if error is not None:
                raise error
        time.sleep(0.05)
    for query in queries.values():
        query.stop()


def sink_files(folder: Path) -> list[Path]:
    """The files of a file sink that count.

    There may be others beside them, of tasks that were killed: a reader has to go by the list, as Spark does.
    From time to time a list has all the files of those before it.
    """
    log = folder / "_spark_metadata"
    compact = max((int(path.stem) for path in log.glob("*.compact")), default=-1)
    lists = [log / f"{compact}.compact"] if compact >= 0 else []
    lists += [log / str(batch) for batch in sorted(_batches(log)) if batch > compact]
    entries = [json.loads(line) for path in lists for line in path.read_text().splitlines()[1:]]
    return [Path(unquote(urlparse(entry["path"]).path)) for entry in entries if entry["action"] == "add"]


def _batches(folder: Path) -> list[int]:
    try:
        return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return []
