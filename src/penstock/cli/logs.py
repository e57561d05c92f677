"""What a command that goes on tells on standard error: lines for people, or JSON for a collector of logs.

A command has the options :class:`LogOptions`, opens a :class:`CommandLog`, and tells what happens with
:func:`tell`. With ``--log-format json``, what it tells and each log message is one JSON object in a line::

    {"time": "2026-01-31T12:00:00.000000Z", "level": "warning", "logger": "penstock.feeds", "message": "…"}

Whatever the code gives to the logger with ``extra`` is a field beside these: ``endpoint``, ``stream``,
``subscriber``. An exception is the field ``error``, with its ``traceback``; a warning of Python has its
``category``. A password in a URL and the value of an ``Authorization`` header do not get into the log.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self, TextIO

from penstock.cli.errors import ScreenLog
from penstock.cli.screen import Screen, say
from penstock.options import option

__all__ = ["CommandLog", "JsonLines", "LogOptions", "is_json", "tell", "tell_error", "without_secrets"]

LEVELS: Final = ("debug", "info", "warning", "error")
_LONGEST: Final = 16 * 1024
"""Characters of a text in the log; the rest of it is cut off."""
_STANDARD: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "fields", "taskName"}
"""What every record of :mod:`logging` has."""
_SECRETS: Final = (
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@'\"]+@"), r"\1***@"),
    (re.compile(r"(?i)\b(authorization|proxy-authorization)(['\"]?\s*[:=]\s*['\"]?)[^'\"\r\n]+"), r"\1\2***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}"), r"\1 ***"),
    (re.compile(r"(?i)([?&](?:token|password|secret|api[_-]?key|access[_-]?token)=)[^&\s'\"]+"), r"\1***"),
)


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """How a command tells what happens."""

    format: str = option(
        "text",
        flag="--log-format",
        choices=("text", "json"),
        help="how messages are written to standard error: for people, or one JSON object in a line",
    )
    level: str | None = option(
        None,
        flag="--log-level",
        choices=LEVELS,
        help="show log messages of this level and above; without it, those that a user should know",
    )


def without_secrets(text: str) -> str:
    """The text without passwords in URLs and tokens in headers, and not longer than a log can take."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


class JsonLines(logging.Handler):
    """Writes each log record as one JSON object in a line."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Write it; what cannot be shown is no reason to lose the message."""
        try:
            message = record.getMessage()
        except Exception as error:  # The arguments do not fit the message: a defect, but not a silent one.
            message = f"{record.msg} ({type(error).__name__} in its arguments)"
        given = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        fields = {**given, **getattr(record, "fields", {})}
        if record.exc_info is not None and record.exc_info[1] is not None:
            raised, shown = record.exc_info[1], traceback.format_exception(*record.exc_info)
            fields |= {"error": f"{type(raised).__name__}: {raised}", "traceback": "".join(shown)}
        self._screen.write(json_line(record.created, record.levelname, record.name, message, fields))


def json_line(at: float, level: str, logger: str, message: str, fields: Mapping[str, Any]) -> str:
    """One line of the log."""
    facts: dict[str, Any] = {
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "level": level.lower(),
        "logger": logger,
        "message": without_secrets(message),
    }
    for key, value in fields.items():
        facts[f"{key}_" if key in facts else key] = _shown(value)
    return json.dumps(facts) + "\n"


def _shown(value: object, depth: int = 0) -> object:
    """A value as JSON has it, without secrets."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping) and depth < 4:
        return {str(key): _shown(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < 4:
        return [_shown(each, depth + 1) for each in value]
    try:
        text = value if isinstance(value, str) else str(value)
    except Exception as error:
        text = f"<{type(value).__name__}: {type(error).__name__} in str()>"
    return without_secrets(text)


_open: list[CommandLog] = []
"""The logs that are open, the innermost last. A process runs one command."""


class CommandLog:
    """While it is open, shows what a command tells, and the log messages of a package.

    ``show`` shows a message to people: by default in a line that begins with the command. ``level`` is what
    they see of ``layer`` unless ``--log-level`` says otherwise. JSON has the messages of all packages.
    """

    def __init__(
        self,
        options: LogOptions,
        command: str,
        show: Callable[[str], object] | None = None,
        *,
        level: int = logging.WARNING,
        layer: str = "penstock",
    ) -> None:
        self._show = show if show is not None else lambda text: say(f"penstock {command}: {text}")
        self._level = level if options.level is None else getattr(logging, options.level.upper())
        self._layer = layer if options.level is None else "penstock"
        self.is_json = options.format == "json"
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        if self.is_json:
            self._open_json()
        else:
            shown = lambda text: self._show(without_secrets(text))  # noqa: E731
            self._opened.enter_context(ScreenLog(shown, self._level, self._layer))
            # Its exporters warn each time that they try again.
            self._opened.enter_context(ScreenLog(shown, logging.ERROR, "opentelemetry"))
            # It warns of every request that is not HTTP, and anybody can send one to a port.
            self._opened.enter_context(ScreenLog(shown, logging.ERROR, "uvicorn"))
        _open.append(self)
        self._opened.callback(_open.remove, self)
        return self

    def _open_json(self) -> None:
        handler, root = JsonLines(Screen()), logging.getLogger()
        root.addHandler(handler)
        self._opened.callback(root.removeHandler, handler)
        self._set_level("penstock", self._level)
        self._set_level("penstock.cli", min(self._level, logging.INFO))  # What the command itself tells.
        before = warnings.showwarning
        warnings.showwarning = _log_warning
        self._opened.callback(setattr, warnings, "showwarning", before)

    def _set_level(self, name: str, level: int) -> None:
        logger = logging.getLogger(name)
        self._opened.callback(logger.setLevel, logger.level)
        logger.setLevel(level)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Stands in for the function of :mod:`warnings`."""
    facts = {"category": category.__name__, "file": filename, "line": lineno}
    logging.getLogger("py.warnings").warning("%s", message, extra={"fields": facts})


def is_json() -> bool:
    """Whether the command that runs tells everything as JSON."""
    return bool(_open) and _open[-1].is_json


def tell(command: str, text: str, **fields: object) -> None:
    """Tell something that happened; the fields are for programs, and the text says it all."""
    if is_json():
        logging.getLogger(f"penstock.cli.{command}").info("%s", text, extra={"fields": fields})
    else:
        say(f"penstock {command}: {text}")


def tell_error(command: str, text: str, code: int, error: BaseException | None) -> None:
    """Write the error that ended a command as JSON; ``error`` if its traceback is wanted."""
    facts: dict[str, object] = {"exit_code": code}
    if error is not None:
        facts["traceback"] = "".join(traceback.format_exception(error))
    logger = f"penstock.cli.{command.replace(' ', '.')}"
    Screen(sys.stderr).write(json_line(time.time(), "error", logger, text, facts))
