"""What holds for every test run."""

import gc

import pytest

from tests.required_tools import skipped_part_lines


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage only in what the tests make.

    Thousands of collected tests would be searched again and again, by Python and by each test that asks
    whether something is let go of: a sixth of the time of all tests.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once, at the very end, which parts did not run for want of a tool."""
    for line in skipped_part_lines():
        terminalreporter.write_line(line, yellow=True, bold=True)
