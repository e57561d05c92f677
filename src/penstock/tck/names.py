"""How the names of tests say which rule they check, and how they join with the names of the JVM kit.

The JVM kit calls a test ``required_spec101_subscriptionRequestMustResultIn…``; here it is
``test_required_spec101_subscription_request_must_result_in_…``. Where that kit has only a placeholder
(``untested_…``) and this one has a test, ``JVM_NAMES`` says which belongs to which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Kind = Literal["required", "optional", "stochastic", "untested"]

KINDS: Final[tuple[Kind, ...]] = ("required", "optional", "stochastic", "untested")
"""The first word of a test's name: MUST; MAY or SHOULD; MUST, but found by chance; nothing is done."""

SETUP: Final[str] = "setup"
"""Stands for a rule with tests of what the test class declares; if they fail, the others mean nothing."""

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBERED = re.compile(r"test_(?P<kind>[a-z]+)_spec(?P<chapter>\d)(?P<number>\d\d)_")

# Tests of the JVM kit whose names have no number.
_UNNUMBERED: Final[Mapping[str, str]] = {
    "test_required_create_publisher1_must_produce_a_stream_of_exactly1_element": SETUP,
    "test_required_create_publisher3_must_produce_a_stream_of_exactly3_elements": SETUP,
    "test_required_validate_max_elements_from_publisher": SETUP,
    "test_required_validate_bounded_depth_of_on_next_and_request_recursion": SETUP,
    "test_required_exercise_whitebox_happy_path": SETUP,
    "test_must_immediately_pass_on_on_error_events_received_from_its_upstream_to_its_downstream": "4.2",
    "test_required_must_request_from_upstream_for_elements_that_have_been_requested_long_ago": "2.1",
}

# The word before "_spec" that this kit has instead of "untested", by number and first words.
_NOW_TESTED: Final[tuple[tuple[str, Kind], ...]] = (
    ("spec106_mustConsiderSubscriptionCancelledAfterOnErrorOrOnCompleteHasBeenCalled", "required"),
    ("spec107_mustNotEmitFurtherSignalsOnceOnErrorHasBeenSignalled", "required"),
    ("spec108_possiblyCanceledSubscriptionShouldNotReceiveOnErrorOrOnCompleteSignals", "required"),
    ("spec109_subscribeShouldNotThrowNonFatalThrowable", "required"),
    ("spec304_requestShouldNotPerformHeavyComputations", "optional"),
    ("spec305_cancelMustNotSynchronouslyPerformHeavyComputation", "required"),
    ("spec204_mustConsiderTheSubscriptionAsCancelledInAfterRecievingOnCompleteOrOnError", "required"),
    (
        "spec207_mustEnsureAllCallsOnItsSubscriptionTakePlaceFromTheSameThreadOrTakeCareOfSynchronization",
        "required",
    ),
    ("spec213_failingOnSignalInvocation", "required"),
    ("spec310_requestMaySynchronouslyCallOnNextOnSubscriber", "required"),
    ("spec311_requestMaySynchronouslyCallOnCompleteOrOnError", "required"),
    (
        "spec204_blackbox_mustConsiderTheSubscriptionAsCancelledInAfterRecievingOnCompleteOrOnError",
        "required",
    ),
    (
        "spec207_blackbox_"
        "mustEnsureAllCallsOnItsSubscriptionTakePlaceFromTheSameThreadOrTakeCareOfSynchronization",
        "required",
    ),
    (
        "spec208_blackbox_mustBePreparedToReceiveOnNextSignalsAfterHavingCalledSubscriptionCancel",
        "required",
    ),
    ("spec213_blackbox_failingOnSignalInvocation", "required"),
    ("spec308_blackbox_requestMustRegisterGivenNumberElementsToBeProduced", "required"),
    ("spec310_blackbox_requestMaySynchronouslyCallOnNextOnSubscriber", "required"),
    ("spec311_blackbox_requestMaySynchronouslyCallOnCompleteOrOnError", "required"),
)


def snake_case(name: str) -> str:
    """``subscribeThrowNPEOnNullSubscriber`` as ``subscribe_throw_npe_on_null_subscriber``."""
    return _WORD_START.sub("_", name).lower()


JVM_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {f"test_{kind}_{snake_case(name)}": f"untested_{name}" for name, kind in _NOW_TESTED}
)
"""The tests of this kit that are placeholders in the JVM kit, with their names there."""

_BY_JVM_NAME = {jvm: ours for ours, jvm in JVM_NAMES.items()}


def python_name(jvm_name: str) -> str:
    """The test of this kit that checks what ``jvm_name`` checks, or leaves unchecked, in the JVM kit."""
    return _BY_JVM_NAME.get(jvm_name) or f"test_{snake_case(jvm_name)}"


def rule_of(test_name: str) -> str | None:
    """The number of the rule that a test checks (``"1.1"``), ``"setup"``, or ``None`` for a foreign name."""
    match = _NUMBERED.match(test_name)
    if match is not None:
        return f"{match['chapter']}.{int(match['number'])}"
    return _UNNUMBERED.get(test_name)


def kind_of(test_name: str) -> Kind:
    """Whether a test is ``required``, ``optional``, ``stochastic`` or ``untested``, by its name."""
    first = test_name.removeprefix("test_").partition("_")[0]
    return next((kind for kind in KINDS if kind == first), "required")


NOT_CHECKED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "1.10": "binds the caller of subscribe, and does not say what happens if it is broken",
        "2.2": "is advice: how slow is too slow depends on the Publisher",
        "2.11": "an unsafe hand-over between threads shows only by chance",
        "3.1": "it cannot be seen on whose behalf a request is made",
        "3.14": "is a permission: a Publisher may also stay open",
    }
)
"""Why a rule is not checked, by its number; every other rule has a test that a broken subject fails."""
