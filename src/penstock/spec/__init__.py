"""The Reactive Streams specification as code: four interfaces, 44 rules, one guard.

A Publisher sends elements to a Subscriber, but only as many as the Subscriber has asked for through its
Subscription. A Processor is both. That is all; everything else in Penstock is built on it::

    class Printer:                                  # a Subscriber: it has the four methods
        def on_subscribe(self, subscription):
            self.subscription = subscription
            subscription.request(1)                 # nothing comes before this

        def on_next(self, element):
            print(element)
            self.subscription.request(1)            # ready for one more

        def on_error(self, error):
            print("failed:", error)

        def on_complete(self):
            print("done")

    publisher.subscribe(Printer())

Put ``strict`` around a Publisher or a Subscriber that you write by hand: it reports every broken rule by
number and protects the other side. ``rule("3.9")`` looks a number up.
"""

from penstock.spec.guard import strict
from penstock.spec.interfaces import UNBOUNDED, Processor, Publisher, Subscriber, Subscription
from penstock.spec.rule_model import LANGUAGES, Change, Check, Level, Origin, Rule, Subject, Term
from penstock.spec.rule_table import VERSIONS
from penstock.spec.rules import GLOSSARY, RULES, UnknownRule, rule
from penstock.spec.violations import (
    NoneViolation,
    RuleViolation,
    check_publisher,
    check_subscriber,
    check_subscription,
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
)

__all__ = [
    "GLOSSARY",
    "LANGUAGES",
    "RULES",
    "UNBOUNDED",
    "VERSIONS",
    "Change",
    "Check",
    "Level",
    "NoneViolation",
    "Origin",
    "Processor",
    "Publisher",
    "Rule",
    "RuleViolation",
    "Subject",
    "Subscriber",
    "Subscription",
    "Term",
    "UnknownRule",
    "check_publisher",
    "check_subscriber",
    "check_subscription",
    "non_positive_request",
    "none_element",
    "none_error",
    "none_publisher",
    "none_subscriber",
    "none_subscription",
    "not_a_publisher",
    "not_a_subscriber",
    "not_a_subscription",
    "not_an_error",
    "rule",
    "strict",
]
