"""The tests of the kit join with those of the JVM kit by name, and say which rule they check."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spec import RULES, rule
from penstock.tck import (
    JVM_NAMES,
    NOT_CHECKED,
    IdentityProcessorVerification,
    PublisherVerification,
    SubscriberBlackboxVerification,
    SubscriberWhiteboxVerification,
    Verification,
    kind_of,
    names_of_tests,
    python_name,
    rule_of,
)

CLASSES: dict[str, type[Verification]] = {
    kind.__name__: kind
    for kind in (
        PublisherVerification,
        SubscriberWhiteboxVerification,
        SubscriberBlackboxVerification,
        IdentityProcessorVerification,
    )
}


def names_of_the_jvm_kit() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "jvm_names.txt").read_text().splitlines():
        if line.startswith("["):
            listed = names.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            listed.append(line)
    for delegated in ("PublisherVerification", "SubscriberWhiteboxVerification"):
        names["IdentityProcessorVerification"] += names[delegated]
    return names


def test_the_list_of_the_jvm_kit_is_complete() -> None:
    assert {kind: len(names) for kind, names in names_of_the_jvm_kit().items()} == {
        "PublisherVerification": 38,
        "SubscriberWhiteboxVerification": 27,
        "SubscriberBlackboxVerification": 26,
        "IdentityProcessorVerification": 68,
    }


@pytest.mark.parametrize("kind", CLASSES)
def test_every_test_of_the_jvm_kit_is_here(kind: str) -> None:
    ours = set(names_of_tests(CLASSES[kind]))

    assert [name for name in names_of_the_jvm_kit()[kind] if python_name(name) not in ours] == []


def test_a_placeholder_of_the_jvm_kit_becomes_a_test_of_the_same_rule() -> None:
    theirs = {name for names in names_of_the_jvm_kit().values() for name in names}

    for ours, jvm in JVM_NAMES.items():
        assert jvm in theirs
        assert jvm.startswith("untested_")
        assert kind_of(ours) in ("required", "optional")
        assert jvm.partition("_")[2].partition("_")[0] == ours.split("_")[2]


def test_names_with_abbreviations_and_numbers() -> None:
    assert python_name("required_spec109_subscribeThrowNPEOnNullSubscriber") == (
        "test_required_spec109_subscribe_throw_npe_on_null_subscriber"
    )
    assert python_name("required_createPublisher1MustProduceAStreamOfExactly1Element") == (
        "test_required_create_publisher1_must_produce_a_stream_of_exactly1_element"
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_every_test_says_which_rule_it_checks(kind: str) -> None:
    for name in names_of_tests(CLASSES[kind]):
        number = rule_of(name)
        assert number == "setup" or (number is not None and rule(number))


def test_a_foreign_name_has_no_rule() -> None:
    assert rule_of("test_something_else") is None


def test_every_rule_has_a_test_or_a_reason() -> None:
    tested = {
        rule_of(name)
        for kind in CLASSES.values()
        for name in names_of_tests(kind)
        if not name.startswith("test_untested_")
    }
    # A probe watches these in every test, and a test that must cancel in the Subscriber's place the third.
    watched = {"2.12", "2.6"}

    assert set(RULES) - tested - watched == set(NOT_CHECKED)
    assert tested & set(NOT_CHECKED) == set()
