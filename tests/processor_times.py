"""Which test files use the processors most: a run of all tests says so at its end.

How long a test takes says little on a machine with two processors and seven runs. What the processes of a
test have used is counted if the test waits for them. Spark's Java is not: it outlives the tests.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

__all__ = ["costs", "measured"]

_SHOWN = 12
_WORTH_A_LINE = 4.0
"""Seconds."""

_used: Counter[str] = Counter()


def measured(item: pytest.Item) -> Generator[None, object, object]:
    """Around a test: add what it uses to its file."""
    before = _so_far()
    try:
        return (yield)
    finally:
        _used[item.nodeid.partition("::")[0]] += round(1000 * (_so_far() - before))


def costs() -> list[str]:
    """A line for each of the files that have used most, in the order of what they used."""
    most = [(name, used / 1000) for name, used in _used.most_common(_SHOWN)]
    return [f"{seconds:5.0f} s {name}" for name, seconds in most if seconds >= _WORTH_A_LINE]


def _so_far() -> float:
    return sum(os.times()[:4])
