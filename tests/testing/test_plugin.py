"""The pytest plugin: its fixtures, and the tests that it fails."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from penstock.streams import Flux, Mono, schedulers
from penstock.streams.spi import drop_error
from penstock.testing import verify

def test_clock(virtual_time):
    seen = []
    running = Flux.interval(60).subscribe(seen.append)
    virtual_time.advance_by(120)
    running.cancel()
    assert seen == [0, 1]

def test_dropped(dropped_signals):
    drop_error(ValueError("x"), "here")
    assert [str(error) for error in dropped_signals.errors] == ["x"]

def test_clean(no_leaks):
    assert Flux.range(5).publish_on(schedulers.shared_pool()).count().block() == 5
    assert Mono.timer(0.001).block() == 0
    verify(Flux.interval(60), virtual=True).wait(60).next(0).cancel()

def test_expected(no_leaks):
    verify(Flux.never()).then(lambda: drop_error(ValueError("x"), "here")).dropped_error().cancel()

def test_known(no_leaks, dropped_signals):
    drop_error(ValueError("x"), "here")

def test_leaking(no_leaks):
    Flux.interval(60).map(str).subscribe(print)

def test_losing(no_leaks):
    Flux.error(ValueError("lost one")).subscribe(print)
"""
WITHOUT = """
from penstock.streams import Flux

def test_leaking():
    Flux.never().subscribe(print)
"""


def run(pytester: pytest.Pytester, text: str, ini: str = "") -> pytest.RunResult:
    installed = any(entry.value == "penstock.testing.plugin" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "penstock.testing.plugin"]
    pytester.makepyfile(test_streams=text)
    pytester.makeini(f"[pytest]\naddopts = -p no:cacheprovider\n{ini}")
    return pytester.runpytest(*plugin)


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    result = run(pytester, TESTS)

    result.assert_outcomes(passed=7, errors=2)
    result.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_leaking*", "*leaves streams running*", "*interval(60.0)*", "*0 emitted*"]
    )
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_losing*", "*loses errors*", "*lost one*"])


@pytest.mark.parametrize(("ini", "errors"), [("", 0), ("penstock_no_leaks = true", 1)])
def test_leaks_are_looked_for_where_the_configuration_says_so(
    pytester: pytest.Pytester, ini: str, errors: int
) -> None:
    run(pytester, WITHOUT, ini).assert_outcomes(passed=1, errors=errors)
