"""A violation names its rule, says what happened and what to do, and survives a journey."""

import copy
import pickle

import pytest

from penstock.spec import (
    NoneViolation,
    RuleViolation,
    UnknownRule,
    non_positive_request,
    none_element,
    none_error,
    none_publisher,
    none_subscriber,
    none_subscription,
    not_a_publisher,
    not_a_subscriber,
    not_a_subscription,
    not_an_error,
    rule,
)

FROM_FACTORIES = [
    none_element("map"),
    none_error(),
    none_publisher(),
    none_subscriber(),
    none_subscription(),
    not_a_publisher(3),
    not_a_subscriber(object()),
    not_a_subscription("x"),
    not_an_error("boom"),
    non_positive_request(0),
]


def test_the_message_has_rule_event_and_remedy():
    violation = RuleViolation("3.9", "request(0) was called", "Ask for at least one element")
    assert str(violation) == "§3.9 violated: request(0) was called. Ask for at least one element."
    assert (violation.rule, violation.happened, violation.remedy) == (
        "3.9",
        "request(0) was called",
        "Ask for at least one element",
    )


def test_full_stops_are_not_doubled():
    assert (
        str(RuleViolation("§3.9", "This happened.", "Do that.")) == "§3.9 violated: This happened. Do that."
    )


def test_without_a_remedy_the_rule_itself_is_quoted():
    assert RuleViolation("3.6", "request went through").remedy == rule("3.6").statement().rstrip(".")


def test_a_rule_that_does_not_exist_cannot_be_cited():
    with pytest.raises(UnknownRule, match=r"3\.1 to 3\.17"):
        RuleViolation("3.18", "this happened")


def test_it_is_the_illegal_argument_error_of_python():
    assert isinstance(non_positive_request(0), ValueError)
    assert not isinstance(non_positive_request(0), TypeError)


@pytest.mark.parametrize("violation", FROM_FACTORIES[:-1], ids=str)
def test_none_and_the_wrong_kind_are_type_errors(violation):
    assert isinstance(violation, NoneViolation)
    assert isinstance(violation, TypeError)
    assert isinstance(violation, RuleViolation)


@pytest.mark.parametrize(
    ("n", "shown"),
    [
        (0, "request(0) was called."),
        (-7, "request(-7) was called."),
        (1.5, "request(1.5) was called with a float."),
        ("ten", "request('ten') was called with a str."),
        (None, "request(None) was called with a NoneType."),
        (False, "request(False) was called with a bool."),
    ],
)
def test_a_request_below_one_cites_3_9(n, shown):
    violation = non_positive_request(n)
    assert violation.rule == "3.9"
    assert str(violation).startswith(f"§3.9 violated: {shown} A request must ask for at least one element")


def test_messages_name_the_place_and_the_kind():
    assert "given to map" in str(none_element("map"))
    assert "an int was given as a Publisher" in str(not_a_publisher(3))
    assert "on_error was given a str" in str(not_an_error("boom"))


@pytest.mark.parametrize("violation", FROM_FACTORIES, ids=str)
@pytest.mark.parametrize("send", [lambda v: pickle.loads(pickle.dumps(v)), copy.copy, copy.deepcopy])
def test_violations_survive_a_journey(violation, send):
    arrived = send(violation)
    assert type(arrived) is type(violation)
    assert str(arrived) == str(violation)
    assert (arrived.rule, arrived.happened, arrived.remedy) == (
        violation.rule,
        violation.happened,
        violation.remedy,
    )
