"""The kit is tested itself: broken subjects fail with the rule that they break, legal ones pass.

For each rule there is a subject that breaks it, or a reason why nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from penstock.spec import RULES
from penstock.tck import NOT_CHECKED, Environment, Result, Verification, kind_of, names_of_tests, rule_of, run
from tests.tck.broken.registry import BROKEN_PROCESSORS, BROKEN_PUBLISHERS, BROKEN_SUBSCRIBERS, SubscriberCase
from tests.tck.legal.registry import LEGAL_PROCESSORS, LEGAL_PUBLISHERS, LEGAL_SUBSCRIBERS
from tests.tck.subjects import LocksWhileAsking
from tests.tck.verifying import (
    IMPATIENT,
    blackbox_verification,
    processor_verification,
    publisher_verification,
    whitebox_verification,
)


class Broken(NamedTuple):
    """A broken subject in one of the four verifications."""

    id: str
    rules: tuple[str, ...]
    verification: type[Verification]


def _broken() -> Iterator[Broken]:
    for case in BROKEN_PUBLISHERS.values():
        yield Broken(case.name, case.rules, publisher_verification(case, IMPATIENT))
    locks = SubscriberCase(
        "LocksWhileAsking", ("3.10", "3.11"), LocksWhileAsking, LocksWhileAsking, jvm_finds=None
    )
    for subscriber in (*BROKEN_SUBSCRIBERS.values(), locks):
        if subscriber.create_blackbox is not None:
            yield Broken(
                f"{subscriber.name}-black", subscriber.rules, blackbox_verification(subscriber, IMPATIENT)
            )
        if subscriber.create_whitebox is not None:
            yield Broken(
                f"{subscriber.name}-white", subscriber.rules, whitebox_verification(subscriber, IMPATIENT)
            )
    for processor in BROKEN_PROCESSORS.values():
        yield Broken(
            f"{processor.name}-processor", processor.rules, processor_verification(processor, IMPATIENT)
        )


BROKEN = list(_broken())

LEGAL: dict[str, type[Verification]] = {
    **{name: publisher_verification(case) for name, case in LEGAL_PUBLISHERS.items()},
    **{f"{name}-black": blackbox_verification(case) for name, case in LEGAL_SUBSCRIBERS.items()},
    **{f"{name}-white": whitebox_verification(case) for name, case in LEGAL_SUBSCRIBERS.items()},
    **{f"{name}-processor": processor_verification(case) for name, case in LEGAL_PROCESSORS.items()},
}


def names_a_rule(result: Result, rules: tuple[str, ...]) -> bool:
    """Whether a test did not pass, for the right reason; what is only a SHOULD is told by a skip."""
    found = result.verdict == "fail" or result.message.startswith("optional: ")
    return found and any(f"§{rule} violated: " in result.message for rule in rules)


def quickest_first(broken: Broken) -> Iterator[Result]:
    """The results of the tests of the broken rules, then of all others, and then of the first with patience.

    On a busy machine a call may take longer than the impatient wait, and hide what the test is about.
    """
    about: Callable[[str], bool] = lambda name: rule_of(name) in broken.rules  # noqa: E731
    yield from run(broken.verification, about)
    yield from run(broken.verification, lambda name: not about(name))
    yield from run(type(broken.id, (broken.verification,), {"environment": Environment()}), about)


@pytest.mark.parametrize("broken", BROKEN, ids=[broken.id for broken in BROKEN])
def test_a_broken_subject_fails_with_the_rule_that_it_breaks(broken: Broken) -> None:
    said = []
    for result in quickest_first(broken):
        if names_a_rule(result, broken.rules):
            return
        if result.verdict != "pass":
            said.append(f"{result.test}: {result.headline}")

    pytest.fail(f"nobody said {broken.rules}, only\n" + "\n".join(said))


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_subject_passes(name: str) -> None:
    failed = [f"{r.test}: {r.message}" for r in run(LEGAL[name]) if r.verdict == "fail"]

    assert "\n\n".join(failed) == ""


def test_every_rule_has_a_broken_subject_or_a_reason() -> None:
    broken = {rule for case in BROKEN for rule in case.rules}

    assert set(RULES) - broken == set(NOT_CHECKED)


# What a test class declares wrongly is no broken subject; see test_settings.
TESTS = sorted(
    name
    for name in {name for broken in BROKEN for name in names_of_tests(broken.verification)}
    if kind_of(name) != "untested" and not name.startswith("test_required_validate_")
)


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTS)
def test_every_test_of_the_kit_is_failed_by_a_broken_subject(name: str) -> None:
    subjects = [broken for broken in BROKEN if hasattr(broken.verification, name)]
    subjects.sort(key=lambda broken: rule_of(name) not in broken.rules)

    for broken in subjects:
        for result in run(broken.verification, lambda test: test == name):
            if result.verdict == "fail" or result.message.startswith("optional: "):
                return

    pytest.fail("no broken subject fails this test: what is it good for?")
