"""The conformance kit: does a Publisher, Subscriber or Processor keep the rules of Reactive Streams?

It tests objects of any library, on any thread. A test class says how to make a subject and inherits the
tests, which are named as in the kit for the JVM::

    from penstock.tck import PublisherVerification

    class TestRange(PublisherVerification):
        profile = "sync"

        def create_publisher(self, elements):
            return RangePublisher(0, elements)

There are four verifications: of a Publisher, of a Subscriber from outside (black box) and with its help
(white box), and of a Processor. pytest runs them, unittest does, and ``run`` does without either. A failure
names the rule, says what happened and shows the signals::

    §1.1 violated: element 3 came, 2 were requested [thread pool-1] (expected no element without demand)

In every test a probe also checks the order of signals, overlapping calls, demand, ``None`` and exceptions.
``NOT_CHECKED`` lists the rules that no test can check from outside, with the reason for each.
"""

from penstock.tck.caller import CallOutcome
from penstock.tck.environment import Environment
from penstock.tck.evidence import described, place_of
from penstock.tck.names import JVM_NAMES, NOT_CHECKED, Kind, kind_of, python_name, rule_of
from penstock.tck.probe import Probe
from penstock.tck.processor import HelperPublisher, IdentityProcessorVerification
from penstock.tck.publisher import PublisherVerification
from penstock.tck.report import About, Cell, Report
from penstock.tck.report_formats import FORMATS, format_for, jvm_results, write_report
from penstock.tck.runner import ProgressLine, Result, Verdict, run
from penstock.tck.spelling import CAMEL_CASE, RSOCKET, SNAKE_CASE, SPELLINGS, Spelling
from penstock.tck.subscriber import SubscriberBlackboxVerification, SubscriberWhiteboxVerification
from penstock.tck.subscriber.subject import ScriptedPublisher
from penstock.tck.subscriber.whitebox_probe import Probed, SubscriberPuppet, WhiteboxSubscriberProbe
from penstock.tck.trial import PROFILES, Profile, Trial
from penstock.tck.verdicts import (
    NotApplicable,
    NotCheckable,
    NotPromised,
    OptionalNotMet,
    SetupFailed,
    Violation,
)
from penstock.tck.verification import Verification, check, names_of_tests

__all__ = [
    "CAMEL_CASE",
    "FORMATS",
    "JVM_NAMES",
    "NOT_CHECKED",
    "PROFILES",
    "RSOCKET",
    "SNAKE_CASE",
    "SPELLINGS",
    "About",
    "CallOutcome",
    "Cell",
    "Environment",
    "HelperPublisher",
    "IdentityProcessorVerification",
    "Kind",
    "NotApplicable",
    "NotCheckable",
    "NotPromised",
    "OptionalNotMet",
    "Probe",
    "Probed",
    "Profile",
    "ProgressLine",
    "PublisherVerification",
    "Report",
    "Result",
    "ScriptedPublisher",
    "SetupFailed",
    "Spelling",
    "SubscriberBlackboxVerification",
    "SubscriberPuppet",
    "SubscriberWhiteboxVerification",
    "Trial",
    "Verdict",
    "Verification",
    "Violation",
    "WhiteboxSubscriberProbe",
    "check",
    "described",
    "format_for",
    "jvm_results",
    "kind_of",
    "names_of_tests",
    "place_of",
    "python_name",
    "rule_of",
    "run",
    "write_report",
]
