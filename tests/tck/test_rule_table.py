"""The catalogue of rules and the kit agree on what the kit checks."""

from __future__ import annotations

import pytest

from penstock.spec import RULES, Check, Level, Rule
from penstock.tck import NOT_CHECKED, kind_of, names_of_tests, rule_of
from tests.tck.test_kills import BROKEN
from tests.tck.test_names import CLASSES

EVERY_RULE = list(RULES.values())

TESTED = {
    rule_of(name) for kind in CLASSES.values() for name in names_of_tests(kind) if kind_of(name) != "untested"
} - {"setup"}
"""The rules in the names of tests that do something."""

WATCHED = {"2.6", "2.12"}
"""Rules that have no test of their own, but tests that notice when they are broken."""


def every_rule(test: object) -> object:
    return pytest.mark.parametrize("entry", EVERY_RULE, ids=lambda entry: entry.id)(test)


@every_rule
def test_what_the_catalogue_says_of_the_kit_is_so(entry: Rule) -> None:
    claimed = Check.KIT in entry.checks

    assert claimed == (entry.id in TESTED | WATCHED)
    assert claimed == (entry.id not in NOT_CHECKED)
    assert claimed == ("kit" in entry.checked_how.lower())


@every_rule
def test_a_claim_is_proved_by_a_broken_subject(entry: Rule) -> None:
    proved = any(entry.id in broken.rules for broken in BROKEN)

    assert proved == (Check.KIT in entry.checks)


@pytest.mark.parametrize("id", sorted(WATCHED))
def test_a_rule_without_a_test_of_its_own_is_the_main_fault_of_a_broken_subject(id: str) -> None:
    assert id not in TESTED
    assert [broken.id for broken in BROKEN if broken.rules[0] == id]


@pytest.mark.parametrize("id", NOT_CHECKED)
def test_a_rule_that_the_kit_leaves_out_has_another_check_or_is_a_permission(id: str) -> None:
    entry = RULES[id]

    if Check.NOTHING in entry.checks:
        assert entry.level is Level.MAY
    else:
        assert set(entry.checks) & {Check.GUARD, Check.REVIEW}


def test_only_what_is_a_should_or_a_may_is_checked_by_optional_tests_alone() -> None:
    required = {
        rule_of(name)
        for kind in CLASSES.values()
        for name in names_of_tests(kind)
        if kind_of(name) in ("required", "stochastic")
    }
    optional = TESTED - required

    assert optional == {"1.11", "3.4"}
    assert all(RULES[id].level in (Level.SHOULD, Level.MAY) for id in optional)
