"""What can be said about a running query, and about one that has failed."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["QueryFailed", "reason_of"]

_PYTHON_ERROR: Final = re.compile(
    r"^(?:[\w.]+\.)?([A-Z]\w*(?:Error|Exception|Loss|Option|Schema|Record|Gone|Changed)): (.+)$"
)


class QueryFailed(RuntimeError):
    """A Spark query has failed; the text is Spark's reason in one line."""


def reason_of(error: BaseException | str) -> str:
    """The one line that matters of what Spark says, which may be a hundred.

    An error of Python code, ours or the user's, is the last line of the last traceback in it; otherwise it is
    the first line, which has Spark's error class.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    for line in reversed(lines):
        if _PYTHON_ERROR.match(line):
            return line
    return lines[0]
