"""The four interfaces are recognised by their methods."""

import pytest

import penstock
from penstock.spec import (
    UNBOUNDED,
    Processor,
    Publisher,
    Subscriber,
    Subscription,
    check_publisher,
    check_subscriber,
    check_subscription,
)
from tests.spec.rigs import Probe, Puppet, Wire


class Stage(Probe, Puppet):
    """Has all five methods, and inherits no interface."""


def test_whatever_has_the_methods_takes_part():
    assert isinstance(Puppet(), Publisher)
    assert isinstance(Probe(), Subscriber)
    assert isinstance(Wire(), Subscription)
    assert isinstance(Stage(), Processor)


def test_a_processor_is_both_and_a_half_is_none():
    assert isinstance(Stage(), Publisher)
    assert isinstance(Stage(), Subscriber)
    assert not isinstance(Probe(), Processor)
    assert not isinstance(Puppet(), Subscriber)
    assert not isinstance(Probe(), Subscription)


def test_unbounded_is_the_greatest_long():
    assert UNBOUNDED == 9223372036854775807


def test_the_interfaces_are_at_the_front_door():
    assert penstock.Publisher is Publisher
    assert {"Publisher", "Subscriber", "Subscription", "Processor"} <= set(penstock.__all__)


@pytest.mark.parametrize(
    ("check", "good"),
    [(check_subscriber, Probe()), (check_publisher, Puppet()), (check_subscription, Wire())],
)
def test_checks_let_the_right_thing_pass(check, good):
    check(good)


@pytest.mark.parametrize(
    ("check", "named"),
    [
        (check_subscriber, "on_subscribe, on_next, on_error and on_complete"),
        (check_publisher, "It lacks subscribe"),
        (check_subscription, "request and cancel"),
    ],
)
def test_checks_name_what_is_missing(check, named):
    with pytest.raises(TypeError, match=named):
        check(object())


@pytest.mark.parametrize("check", [check_subscriber, check_publisher, check_subscription])
def test_checks_refuse_none(check):
    with pytest.raises(TypeError, match="None"):
        check(None)


@pytest.mark.parametrize(
    ("check", "type_"), [(check_subscriber, Probe), (check_publisher, Puppet), (check_subscription, Wire)]
)
def test_checks_notice_forgotten_parentheses(check, type_):
    with pytest.raises(TypeError, match=rf"write {type_.__name__}\(\.\.\.\)"):
        check(type_)


def test_one_missing_method_is_enough():
    class Deaf:
        def on_subscribe(self, subscription): ...
        def on_next(self, element): ...
        def on_complete(self): ...

    with pytest.raises(TypeError, match="It lacks on_error"):
        check_subscriber(Deaf())
