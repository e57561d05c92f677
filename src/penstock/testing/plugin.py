"""The pytest plugin: fixtures for virtual time and dropped signals, and a check for leaks.

::

    def test_a_reminder(virtual_time):              # a clock; streams follow it
        ...

    def test_late_errors(dropped_signals):          # what streams drop meanwhile
        ...

    def test_my_service(no_leaks):                  # fails if a stream still runs, or an error was lost
        ...

``penstock_no_leaks = true`` in the configuration of pytest is ``no_leaks`` for every test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.streams import listening
from penstock.streams.schedulers import VirtualTimeScheduler
from penstock.testing.dropped import DroppedSignals
from penstock.testing.leaks import OpenStreams
from penstock.testing.virtual_time import virtual_time as virtual_time_block

PATIENCE = 2.0
"""Seconds that streams have after a test to end on other threads."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting."""
    parser.addini(
        "penstock_no_leaks",
        "fail each test that leaves a stream running or loses an error of one",
        type="bool",
        default=False,
    )


@pytest.fixture
def virtual_time() -> Iterator[VirtualTimeScheduler]:
    """Run the test in virtual time; the value is the clock."""
    with virtual_time_block() as clock:
        yield clock


@pytest.fixture
def dropped_signals() -> Iterator[DroppedSignals]:
    """What streams drop during the test: ``errors`` and ``elements``. Such errors are then not lost."""
    with DroppedSignals() as dropped:
        yield dropped


@pytest.fixture
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test if it leaves a stream running, or loses an error of one."""
    open_streams = OpenStreams()
    with DroppedSignals() as dropped, listening(open_streams):
        yield
        left = open_streams.names(PATIENCE)
    lost = [] if "dropped_signals" in request.fixturenames else dropped.lost()
    failures = []
    if left:
        failures.append("the test leaves streams running; cancel them:\n  " + "\n  ".join(left))
    if lost:
        said = "\n  ".join(repr(error) for error in lost)
        failures.append(f"the test loses errors of streams, which nobody could receive:\n  {said}")
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


@pytest.fixture(autouse=True)
def _penstock_no_leaks(request: pytest.FixtureRequest) -> None:
    if request.config.getini("penstock_no_leaks"):
        request.getfixturevalue("no_leaks")
