"""What can be said about a running query, and about one that has failed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["QueryFailed", "activate", "is_sparks", "process_everything", "reason_of"]

_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_ERROR: Final = re.compile(r"(?:\w+\.)*(\w+)(: .*)?")
_CALLING: Final = re.compile(r"An error occurred while calling \S+\.$")
_JAVA_CLASS: Final = re.compile(r"^(?:: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (?=\S)")
_SQLSTATE: Final = re.compile(r" SQLSTATE: \w+$")
_TOO_LATE: Final = "Python worker failed to connect back"
_BUSY: Final = (
    "a Python process of Spark did not connect back within 10 seconds: it failed to start, or the machine is "
    "too busy. Start the query again when there is less to do. In a session of penstock.spark.session(), "
    "with unix domain sockets and without PYSPARK_PYTHON set, these processes connect at once"
)


class QueryFailed(RuntimeError):
    """A Spark query has failed; the text is Spark's reason in one line."""


def reason_of(error: BaseException | str) -> str:
    """The one line that matters of what Spark says, which may be a hundred.

    An error of Python code, ours or the user's, is what the last traceback in it ends with; otherwise it is
    the first line, which has Spark's error class. An error that never was in Spark says so itself.
    """
    text = str(error)
    if _TOO_LATE in text:
        return _BUSY
    lines = [line for line in text.splitlines() if line.strip()]
    if any(_TRACEBACK in line for line in lines):
        return _of_traceback(lines)
    while len(lines) > 1 and _CALLING.search(lines[0]):
        del lines[0]
    if not lines:
        return type(error).__name__
    first = _SQLSTATE.sub("", _JAVA_CLASS.sub("", lines[0].strip()))
    if isinstance(error, BaseException) and not is_sparks(error):
        return f"{type(error).__name__}: {first}"
    return first


def is_sparks(error: BaseException) -> bool:
    """Whether the text speaks for itself, as that of Spark's errors and of our own does."""
    return isinstance(error, QueryFailed) or type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _of_traceback(lines: list[str]) -> str:
    """After the last traceback come indented lines, and then the error."""
    last = max(number for number, line in enumerate(lines) if _TRACEBACK in line)
    for line in lines[last + 1 :]:
        if not line[0].isspace():
            found = _PYTHON_ERROR.match(line)
            return _SQLSTATE.sub("", f"{found[1]}{found[2] or ''}" if found is not None else line)
    return lines[0].strip()


def activate(spark: SparkSession) -> None:
    """Make this the session of the calling thread.

    Spark looks for data sources in Python in the session of the thread that starts a query, and a thread has
    none unless it has made one: ``format("aquifer")`` would be unknown on any thread but the first.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:  # Spark Connect has no JVM here, and its sessions belong to no thread.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def process_everything(query: StreamingQuery) -> None:
    """Wait until everything that the source has at this moment went through the query.

    Once is not enough: the first wait may be ended by a trigger that had asked the source just before the
    last record came. The trigger after it has asked later.
    """
    query.processAllAvailable()
    query.processAllAvailable()
