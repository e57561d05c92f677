"""One pytest test for each test of the kit, and tests of our own that run where Java is."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.jvm.subject import Subject, load, methods
from tests.conformance.jvm.verdict import Verdict
from tests.conformance.jvm.workers import Worker


def each_test_of_the_kit(module: str, registry: str, subjects: dict[str, Subject]) -> Any:
    """Parametrize a test with `place` and `method`: every subject, every test of the kit for it."""
    return pytest.mark.parametrize(
        ("place", "method"),
        [
            pytest.param(f"{module}:{registry}.{name}", method, id=f"{name}-{method}")
            for name, subject in subjects.items()
            for method in methods(subject.kind)
        ],
    )


def assert_as_expected(place: str, method: str, verdict: Verdict) -> None:
    """Fail on a failure, and on a skip that was not foreseen: the kit skips optional tests that fail."""
    expected = "skipped" if load(place).may_skip(method) else "passed"
    if verdict.outcome != expected:
        pytest.fail(f"{verdict.outcome}, not {expected}: {verdict.why}", pytrace=False)
    if expected == "skipped":
        pytest.skip(verdict.why or "the kit does not test this")


def in_jvm(test: Callable[[], None]) -> Callable[[Worker], None]:
    """Decorate a test that needs Java: its body runs in the process of the fixture `jvm`."""

    @functools.wraps(test)
    def run(jvm: Worker) -> None:
        verdict = jvm.call(f"{test.__module__}:{test.__name__}.body")
        if verdict.outcome != "passed":
            pytest.fail(verdict.why, pytrace=False)

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would look there for the fixtures it needs
    run.body = test  # type: ignore[attr-defined]
    return run
