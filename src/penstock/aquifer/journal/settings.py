"""Checks on what the user sets for a journal, made when it is opened."""

from __future__ import annotations

import math
import os
from typing import Any

from penstock.aquifer.errors import JournalError
from penstock.aquifer.journal.interface import Journal

__all__ = ["a_bound", "a_path", "a_switch", "an_age", "check_codec"]


def a_bound(value: Any, setting: str) -> int:
    """A whole number of at least one, or an error that names the setting."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{setting} must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"{setting} must be at least 1, not {value}")
    return value


def an_age(value: Any, setting: str) -> float | None:
    """A number of seconds greater than zero, or None for no limit."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{setting} must be a number of seconds, or None for no limit, not {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(f"{setting} must be greater than 0 seconds, or None for no limit, not {value!r}")
    return float(value)


def a_switch(value: Any, setting: str) -> bool:
    """True or False and nothing that only looks like it."""
    if not isinstance(value, bool):
        raise TypeError(f"{setting} must be True or False, not {value!r}")
    return value


def a_path(value: Any, setting: str) -> str:
    """The one true name of a file, so that two ways to write it are seen to be the same file."""
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{setting} must be a str or a pathlib.Path, not {value!r}")
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError(f"{setting} must be a path in str, not in bytes: {value!r}")
    if not path:
        raise ValueError(f"{setting} must name a file, and it is empty")
    return os.path.realpath(path)


def check_codec(journal: Journal, recorded: str, codec: str) -> None:
    """JournalError if the records of the journal are of another codec than this gateway's."""
    if recorded and codec != recorded and journal.head > journal.first:
        name = getattr(journal, "path", "that was given")
        raise JournalError(
            f"the journal {name} has records of the codec {recorded!r}, and this gateway would add others of "
            f"{codec!r}: no reader could read both. Use the codec {recorded!r}, or another journal"
        )
