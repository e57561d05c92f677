"""How a command ends: its exit code, and for a failure one line that names the remedy.

A command raises a :class:`CommandError`, and :func:`report_errors` prints it::

    def run(arguments: argparse.Namespace) -> int:
        return report_errors("gateway", lambda: _run(arguments))

Code 2 means that the command line has to change, code 1 that something else has: a port is taken, a server is
not there. Whatever else is raised is a defect, of Penstock or of code that was given to it: it is told in one
line as well, and ``--debug`` shows the traceback.
"""

from __future__ import annotations

import errno
import logging
import traceback
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType
from typing import Final

from penstock.cli.screen import LINE_ENDS, Screen
from penstock.cli.table import printable

__all__ = ["CommandError", "ExitCode", "ScreenLog", "report_errors"]

_EXTRAS: Final = {
    "zmq": "aquifer",
    "msgspec": "aquifer",
    "pyspark": "spark",
    "py4j": "spark",
    "pyarrow": "spark",
    "httpx2": "http",
    "cryptography": "net",
    "rich": "cli",
    "shtab": "cli",
    "prometheus_client": "observe",
    "starlette": "observe",
    "uvicorn": "observe",
    "opentelemetry": "otel",
}
"""Which extra installs a package."""
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT}


class ExitCode(IntEnum):
    """The exit codes of all commands; ``docs/cli.md`` has them as a table."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> ExitCode:
        """Return a code with what it means."""
        made = int.__new__(cls, number)
        made._value_ = number
        made.meaning = meaning
        return made

    OK = (
        0,
        "all went well; also SIGTERM and SIGHUP, which stop a service, and a reader that leaves (`head`)",
    )
    FAILED = 1, "something failed: nobody answers, a file is damaged, a check is not passed, the answer is no"
    USAGE = 2, "the command line is wrong, or a confirmation is missing"
    LIMITED = 3, "`penstock why`: a hop limits the flow"
    DEFECT = (
        70,
        "an error that nobody expected, in Penstock or in code that it ran; `--debug` shows the traceback",
    )
    INTERRUPTED = 130, "Ctrl-C"


class CommandError(Exception):
    """Ends a command with a message for its user, and an exit code."""

    def __init__(self, text: str, code: int = ExitCode.USAGE) -> None:
        super().__init__(text)
        self.code = code


def report_errors(command: str, run: Callable[[], int], *, debug: bool = False, as_json: bool = False) -> int:
    """Run a command, and print an error in one line; with ``debug`` its traceback above it.

    With ``as_json`` the line is a JSON object, with the traceback in it.
    """
    try:
        return run()
    except BrokenPipeError:
        raise  # The reader of standard output has left: see ending_quietly.
    except Exception as error:
        text, code = _told(error, debug)
        if as_json:
            from penstock.cli.logs import tell_error

            tell_error(command, text, code, error if debug else None)
            return code
        if debug:
            Screen().write("".join(traceback.format_exception(error)))
    from penstock.cli.style import Tone, paint, toned

    screen = Screen()
    name = f"penstock {command}".rstrip()
    screen.write(f"{paint(toned(f'{name}:', Tone.BAD), screen)} {printable(text, keep=LINE_ENDS)}\n")
    return code


def _told(error: Exception, debug: bool) -> tuple[str, int]:
    """Return what to say of an error, and the exit code."""
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, ImportError):
        # Our own ImportError has a complete message, and no name.
        package = (error.name or "").partition(".")[0]
        if not package:
            return str(error), ExitCode.FAILED
        if package in _EXTRAS:
            extra = f"pip install 'penstock-streams[{_EXTRAS[package]}]'"
            return f"{package} is missing: {extra}", ExitCode.FAILED
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        where = error.filename if error.filename is not None else "the output"
        return f"cannot write {where}: {error.strerror}; free some space and try again", ExitCode.FAILED
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    remedy = "" if debug else "; this is a defect: run it again with --debug for the traceback"
    return f"{said}{remedy}", ExitCode.DEFECT


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
        self._show(printable(text, keep=LINE_ENDS))  # A server, or a sender, has put some of it together.

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
