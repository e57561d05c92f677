"""How long servers are under load in the tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.net.load import Report

__all__ = ["DURATIONS", "long_enough"]

DURATIONS = (0.05, 0.5, 5.0, 25.0)
"""Seconds under load: the figures are of no interest here. The first is long enough, as a rule."""


def long_enough(load: Callable[[float], Report], enough: Callable[[Report], bool]) -> Report:
    """The report of a load under which enough has happened.

    On a busy machine a server may not get a turn for longer than the first of the times.
    """
    reports = []
    for seconds in DURATIONS:
        reports.append(load(seconds))
        if enough(reports[-1]):
            return reports[-1]
    pytest.fail(f"too little has happened, however long it took: {reports}")
