"""How a command fails: one line that names the remedy, and an exit code.

A command raises a :class:`CommandError`, and :func:`report_errors` prints it::

    def run(arguments: argparse.Namespace) -> int:
        return report_errors("gateway", lambda: _run(arguments))

Code 2 means that the command line has to change, code 1 that something else has: a port is taken, a server is
not there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final

from penstock.cli.screen import say

__all__ = ["CommandError", "ScreenLog", "report_errors"]

_EXTRAS: Final = {
    "zmq": "aquifer",
    "msgspec": "aquifer",
    "pyspark": "spark",
    "py4j": "spark",
    "pyarrow": "spark",
    "httpx2": "http",
    "cryptography": "net",
}
"""Which extra installs a package."""


class CommandError(Exception):
    """Ends a command with a message for its user, and an exit code."""

    def __init__(self, text: str, code: int = 2) -> None:
        super().__init__(text)
        self.code = code


def report_errors(command: str, run: Callable[[], int]) -> int:
    """Run a command, and print an error that its user can do something about in one line."""
    try:
        return run()
    except CommandError as error:
        text, code = str(error), error.code
    except ImportError as error:
        # Our own ImportError has a complete message, and no name.
        package = (error.name or "").partition(".")[0]
        if package and package not in _EXTRAS:
            raise
        extra = f"{package} is missing: pip install 'penstock-streams[{_EXTRAS.get(package)}]'"
        text, code = extra if package else str(error), 1
    say(f"penstock {command}: {text}")
    return code


class ScreenLog(logging.Handler):
    """While it is open, shows the log messages of a layer to the user, each in one line."""

    def __init__(
        self, show: Callable[[str], object], level: int = logging.WARNING, layer: str = "penstock.aquifer"
    ) -> None:
        super().__init__(level)
        self._show = show
        self._logger = logging.getLogger(layer)
        self._before = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        """Show the message alone, without the place in the code."""
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]}"
        self._show(text)

    def __enter__(self) -> ScreenLog:
        self._before = self._logger.level
        self._logger.setLevel(self.level)
        self._logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before)
