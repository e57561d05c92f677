"""What a check of ``penstock doctor`` is, and what it finds.

A check has a name, a time limit, and a function that returns a :class:`Finding`. Three verdicts are enough::

    ok        it was tried, and it works
    missing   it is not installed; that is an error only for those who need it
    bad       it is there and does not work

A finding that is not ok names a remedy: one command, which can be copied to a shell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["DoctorCheck", "Finding", "Health"]


class Health(StrEnum):
    """How it is with what was checked."""

    OK = "ok"
    MISSING = "missing"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check has found out."""

    name: str
    verdict: Health
    detail: str
    """One line: what is there, or what is wrong."""
    remedy: str | None = None
    """The command that mends it."""


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """Something to try out."""

    name: str
    run: Callable[[float], Finding]
    """Is called with the seconds that it may take."""
    limit: float = 10.0
    remedy: str | None = None
    """What to try if it raises an error, or does not answer."""
    estimate: str = ""
    """What is known about how long it takes, to stand behind the name."""
