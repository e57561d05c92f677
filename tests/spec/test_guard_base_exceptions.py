"""Exits, interrupts and their kind: the guard names the side that raised one, once, and never the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import RuleViolation, strict
from tests.spec.rigs import Probe, Puppet, Wire, raising
from tests.tck.legal.serving import RangePublisher

SIGNALS = ("subscribe", "next", "complete")

OTHERS = [KeyboardInterrupt, SystemExit, GeneratorExit]
"""They go on to whoever runs the program, after they were reported."""

every_kind = pytest.mark.parametrize("kind", [asyncio.CancelledError, *OTHERS])
around_either = pytest.mark.parametrize("around", ["publisher", "subscriber", "both"])


class Told:
    """A guard between a Publisher and a Subscriber, and what it has reported."""

    def __init__(self, around: str) -> None:
        self.violations: list[RuleViolation] = []
        self._around = around

    def connect(self, publisher: Any, subscriber: Any) -> None:
        if self._around in ("publisher", "both"):
            publisher = strict(publisher, self.violations.append)
        if self._around in ("subscriber", "both"):
            subscriber = strict(subscriber, self.violations.append)
        publisher.subscribe(subscriber)

    @property
    def rules(self) -> set[str]:
        return {violation.rule for violation in self.violations}


def outcome(call: Callable[[], object]) -> type[BaseException] | None:
    """What kind of exception comes out of a call."""
    try:
        call()
    except BaseException as error:
        return type(error)
    return None


def left(kind: type[BaseException]) -> type[BaseException] | None:
    """What has to come out of a guard in which somebody raises ``kind``."""
    return kind if kind in OTHERS else None


@every_kind
@around_either
@pytest.mark.parametrize("signal", SIGNALS)
def test_a_subscriber_that_raises_is_to_blame_and_its_publisher_is_not(
    kind: type[BaseException], around: str, signal: str
) -> None:
    def act(probe: Probe, happening: str) -> None:
        if happening == signal:
            raise kind()

    told = Told(around)

    # The Publisher sends inside request and inside subscribe, so the exception goes through both.
    came = outcome(lambda: told.connect(RangePublisher(1), Probe(request=9, then=act)))

    assert told.rules == {"2.13"}
    assert all("Probe" in violation.happened for violation in told.violations)
    assert came is left(kind)


@every_kind
@around_either
def test_a_cancel_that_raises_inside_on_next_is_held_against_the_publisher(
    kind: type[BaseException], around: str
) -> None:
    def leave(probe: Probe, happening: str) -> None:
        if happening == "next":
            probe.subscription.cancel()

    told, puppet = Told(around), Puppet(Wire(on_cancel=raising(kind())))
    told.connect(puppet, Probe(request=9, then=leave))

    came = outcome(lambda: puppet.to.on_next("a"))

    assert told.rules == {"3.15"}
    assert came is left(kind)


@every_kind
@around_either
@pytest.mark.parametrize("inside", [True, False])
def test_a_request_that_raises_is_held_against_the_publisher_and_the_subscriber_is_told(
    kind: type[BaseException], around: str, inside: bool
) -> None:
    told, puppet = Told(around), Puppet(Wire(on_request=raising(kind())))
    probe = Probe(request=1 if inside else 0)

    came = outcome(lambda: told.connect(puppet, probe))
    if not inside:
        came = outcome(lambda: probe.subscription.request(1))

    assert told.rules == {"3.16"}
    assert probe.shape == ["subscribe", "§3.16"]
    assert came is left(kind)


@every_kind
@pytest.mark.parametrize("around", ["publisher", "both"])
def test_a_subscribe_that_raises_is_held_against_the_publisher_and_the_subscriber_is_told(
    kind: type[BaseException], around: str
) -> None:
    class Refuses:
        def subscribe(self, subscriber: Any) -> None:
            raise kind()

    told, probe = Told(around), Probe()

    came = outcome(lambda: told.connect(Refuses(), probe))

    assert told.rules == {"1.9"}
    assert probe.shape == ["subscribe", "§1.9"]
    assert came is left(kind)


@every_kind
def test_a_publisher_that_cannot_be_cancelled_does_not_hide_what_the_subscriber_did(
    kind: type[BaseException],
) -> None:
    def act(probe: Probe, happening: str) -> None:
        if happening == "next":
            raise LookupError("lost")

    told, puppet = Told("publisher"), Puppet(Wire(on_cancel=raising(kind())))
    told.connect(puppet, Probe(request=9, then=act))

    outcome(lambda: puppet.to.on_next("a"))

    assert [violation.rule for violation in told.violations] == ["2.13", "3.15"]


@every_kind
def test_a_report_function_that_raises_leaves_the_violation_in_the_log(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    probe, puppet = Probe(), Puppet()
    strict(puppet, raising(kind())).subscribe(probe)

    came = outcome(lambda: puppet.to.on_next("a"))

    assert "§1.1 violated" in caplog.text
    assert probe.shape == ["subscribe", "§1.1"]
    assert came is left(kind)
