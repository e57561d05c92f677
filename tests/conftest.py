"""What holds for every test run."""

import gc
import os
import signal
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import processor_times, rare_tests
from tests.required_tools import skipped_part_lines

if TYPE_CHECKING:
    from tests.kafka.broker import KafkaBroker

# A run under nohup ignores SIGHUP, and so would every command that a test starts.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine may take any time for an example, and to think of one.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")


@pytest.fixture(scope="module", autouse=True)
def look_for_garbage_only_here() -> None:
    """What is there before a module's tests is not searched for garbage again.

    Thousands of tests and what pytest keeps of them would be, by Python and by each test that asks whether
    something is let go of: a sixth of the time of all tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator["KafkaBroker"]:
    """A real Kafka for all tests that do not kill it."""
    from tests.kafka.broker import KafkaBroker

    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose among the rare tests."""
    rare_tests.choose(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count what each file uses of the processors."""
    return (yield from processor_times.measured(item))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say at the very end what the run has cost, and which parts did not run for want of time or a tool."""
    if (line := rare_tests.chosen_line(config)) is not None:
        terminalreporter.write_line(line)
    here, there = time.process_time(), sum(os.times()[2:4])
    terminalreporter.write_line(f"{here:.0f} s of processor time, and {there:.0f} s of its processes")
    for line in processor_times.costs():
        terminalreporter.write_line(line)
    for line in skipped_part_lines():
        terminalreporter.write_line(line, yellow=True, bold=True)
