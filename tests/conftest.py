"""What holds for every test run."""

import pytest

from tests.required_tools import skipped_part_lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once, at the very end, which parts did not run for want of a tool."""
    for line in skipped_part_lines():
        terminalreporter.write_line(line, yellow=True, bold=True)
