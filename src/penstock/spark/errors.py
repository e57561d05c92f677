"""The errors of the layer, and the one line of a Spark error that matters."""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "BadCheckpoint",
    "BadOption",
    "BadSchema",
    "DataLoss",
    "NoJava",
    "QueryFailed",
    "QueryStopped",
    "SharedSubscription",
    "UnreadableRecord",
    "UnwritableRow",
    "is_from_spark",
    "reason_of",
]

_TRACEBACK: Final = "Traceback (most recent call last):"
_PYTHON_ERROR: Final = re.compile(r"(?:\w+\.)*(\w+)(: .*)?")
_CALLING: Final = re.compile(r"An error occurred while calling \S+\.$")
_JAVA_CLASS: Final = re.compile(r"^(?:: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (?=\S)")
_SQLSTATE: Final = re.compile(r" SQLSTATE: \w+(?:; line \d+ pos \d+)?;?$")
_TOO_LATE: Final = "Python worker failed to connect back"
_BUSY: Final = (
    "a Python process of Spark did not connect back within 10 seconds: it failed to start, or the machine is "
    "too busy. Start the query again when the machine is less busy. In a session of "
    "penstock.spark.session(), with unix domain sockets and without PYSPARK_PYTHON set, these processes "
    "connect at once"
)


_SHOWN: Final = 200
"""Characters of an option's value: some are whole schemas."""


class BadOption(ValueError):
    """An option of ``format("aquifer")`` has a bad value; the message names the option and the remedy."""

    def __init__(self, name: str, value: object, remedy: str) -> None:
        super().__init__(name, value, remedy)  # Unformatted, so that it can be pickled between processes.

    def __str__(self) -> str:
        name, value, remedy = self.args
        given = repr(value)
        shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"
        return f'option "{name}" is {shown}: {remedy}'


class BadSchema(ValueError):
    """The schema does not fit the records or the option ``value``; the message says which schema does."""


class BadCheckpoint(RuntimeError):
    """Files of a query's checkpoint were deleted, or it is an older copy: batches would get lost."""


class UnreadableRecord(ValueError):
    """A record cannot be read as what the option ``value`` says, or does not fit the schema."""

    index: int | None = None
    """Which record of its batch it is, if that is known."""

    def __init__(self, reason: object, index: int | None = None) -> None:
        super().__init__(str(reason))
        self.index = index


class UnwritableRow(ValueError):
    """The format cannot represent a value of a row; the message names the column."""


class DataLoss(RuntimeError):
    """The gateway no longer has records that the query needs, or that it has written."""


class SharedSubscription(RuntimeError):
    """Another query moves the cursor that this query relies on."""


class QueryStopped(RuntimeError):
    """A query was stopped while a batch waited to be published; the next run publishes it."""


class NoJava(RuntimeError):
    """No Java runtime was found that Spark can run on."""


class QueryFailed(RuntimeError):
    """A Spark query has failed; the message is Spark's reason in one line."""


def reason_of(error: BaseException | str) -> str:
    """Return the one line that matters of a Spark error, which may have a hundred.

    For an error of Python code, ours or the user's, that is the last line of the last traceback. Otherwise
    it is the first line, which has Spark's error class. An error that does not come from Spark is named by
    its type.
    """
    text = str(error)
    if _TOO_LATE in text:
        return _BUSY
    lines = [line for line in text.splitlines() if line.strip()]
    if any(_TRACEBACK in line for line in lines):
        return _last_of_traceback(lines)
    while len(lines) > 1 and _CALLING.search(lines[0]):
        del lines[0]
    if not lines:
        return type(error).__name__
    first = _SQLSTATE.sub("", _JAVA_CLASS.sub("", lines[0].strip()))
    if isinstance(error, BaseException) and not is_from_spark(error):
        return f"{type(error).__name__}: {first}"
    return first


def is_from_spark(error: BaseException) -> bool:
    """Whether the error comes from Spark, or is our own report of one."""
    return isinstance(error, QueryFailed) or type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _last_of_traceback(lines: list[str]) -> str:
    """The error follows the indented lines of the last traceback."""
    last = max(number for number, line in enumerate(lines) if _TRACEBACK in line)
    for line in lines[last + 1 :]:
        if not line[0].isspace():
            found = _PYTHON_ERROR.match(line)
            return _SQLSTATE.sub("", f"{found[1]}{found[2] or ''}" if found is not None else line)
    return lines[0].strip()
