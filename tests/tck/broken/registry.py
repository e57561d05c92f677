"""All broken subjects by name, with the rules that they break and what the kit of the JVM says of them.

``rules`` are the rules that count as the right answer if the kit names one of them, the main one first.
``jvm_finds`` says whether a test of the JVM's kit fails, for a Subscriber in one of its boxes; a skip is no
failure. ``tests/conformance/test_differential.py`` measures it. ``profile`` is the kit's word for where
a subject does its work: ``"sync"`` or ``"threads"``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.spec import Processor, Publisher, Subscriber
from tests.tck.broken import (
    processors,
    publishers_cancel,
    publishers_demand,
    publishers_failed,
    publishers_interfering,
    publishers_lifecycle,
    subscribers,
)
from tests.tck.legal.publishers import MulticastShares
from tests.tck.legal.serving import FailedPublisher, RangePublisher


@dataclass(frozen=True)
class PublisherCase:
    """A broken Publisher; ``create(n)`` makes one of n elements, ``create_failed()`` one that fails at once.

    If the failing one is the broken one then ``create`` makes the reference. ``fanout`` is what the kit is to
    be told that several Subscribers get: ``"unicast"``, each a stream of its own, or ``"multicast"``.
    ``optional`` says that the rule is a SHOULD, so the kit's answer is a skip (``OptionalNotMet``).
    """

    name: str
    rules: tuple[str, ...]
    create: Callable[[int], Publisher[Any]]
    create_failed: Callable[[], Publisher[Any]] | None
    jvm_finds: bool | None
    fanout: str = "unicast"
    profile: str = "sync"
    optional: bool = False


@dataclass(frozen=True)
class SubscriberCase:
    """A broken Subscriber, alone and with a probe; None where it cannot be told from a correct one."""

    name: str
    rules: tuple[str, ...]
    create_blackbox: Callable[[], Subscriber[Any]] | None
    create_whitebox: Callable[[Any], Subscriber[Any]] | None
    jvm_finds: bool | None
    profile: str = "sync"


@dataclass(frozen=True)
class ProcessorCase:
    """A broken identity Processor."""

    name: str
    rules: tuple[str, ...]
    create: Callable[[int], Processor[Any, Any]]
    jvm_finds: bool | None


def _publisher(
    kind: Any,
    *rules: str,
    jvm: bool | None = None,
    fanout: str = "unicast",
    profile: str = "sync",
    optional: bool = False,
) -> PublisherCase:
    return PublisherCase(kind.__name__, rules, kind, FailedPublisher, jvm, fanout, profile, optional)


def _failed(kind: Any, *rules: str, jvm: bool | None = None) -> PublisherCase:
    return PublisherCase(kind.__name__, rules, RangePublisher, kind, jvm)


def _subscriber(
    kind: Any,
    *rules: str,
    jvm: bool | None = None,
    black: bool = True,
    white: bool = True,
    profile: str = "sync",
) -> SubscriberCase:
    alone, probed = kind if black else None, kind if white else None
    return SubscriberCase(kind.__name__, rules, alone, probed, jvm, profile)


def _processor(kind: Any, *rules: str, jvm: bool | None = None) -> ProcessorCase:
    return ProcessorCase(kind.__name__, rules, kind, jvm)


_demand = publishers_demand
_life = publishers_lifecycle
_cancel = publishers_cancel
_fail = publishers_failed
_interfering = publishers_interfering

BROKEN_PUBLISHERS: dict[str, PublisherCase] = {
    case.name: case
    for case in (
        # What is sent, and how much.
        _publisher(_demand.IgnoresDemand, "1.1", jvm=True),
        _publisher(_demand.OneExtra, "1.1", jvm=True),
        _publisher(_demand.ShortByOne, "1.2", "1.5", "1.1", jvm=True),
        _publisher(_demand.DuplicateFirst, "1.5", "1.2", "1.1", jvm=True),
        _publisher(_demand.EmitsNone, "2.13", jvm=True),
        _publisher(_demand.DemandReplaced, "3.8", jvm=False),
        _publisher(_demand.OverflowIsError, "3.17", jvm=True),
        _publisher(_demand.WrapsDemand, "3.17", jvm=False),
        _publisher(_demand.WrapsAt64, "3.17", jvm=False),
        _publisher(_demand.CountsInInt64, "3.17", "3.16", jvm=False),
        _publisher(_demand.RequestInOnSubscribeLost, "3.2", "3.8", jvm=True),
        _publisher(_demand.RequestInOnNextLost, "3.2", "3.8", jvm=True),
        _publisher(_demand.GeneratorReentered, "3.16", "3.2", jvm=True),
        _publisher(_demand.Recursive, "3.3", jvm=True),
        _publisher(_demand.Concurrent, "1.3", jvm=True, profile="threads"),
        _publisher(_demand.CompletesDuringOnNext, "1.3", jvm=True, profile="threads"),
        _publisher(_demand.SlowRequest, "3.4", jvm=False, optional=True),
        _publisher(_demand.MulticastReorders, "1.11", "1.12", jvm=False, fanout="multicast"),
        _publisher(_demand.MulticastSkips, "1.11", "1.12", jvm=False, fanout="multicast"),
        # Legal as it stands, so the JVM's kit only skips; but not what it is declared to be here.
        _publisher(MulticastShares, "1.11", "1.12", jvm=False, fanout="multicast"),
        # How a stream begins and ends.
        _publisher(_life.NeverCompletes, "1.5", "1.2", jvm=True),
        _publisher(_life.CompletesTwice, "1.7", jvm=True),
        _publisher(_life.NextAfterComplete, "1.7", jvm=True),
        _publisher(_life.ErrorAfterComplete, "1.7", jvm=True),
        _publisher(_life.ContinuesAfterError, "1.7", jvm=False),
        _publisher(_life.EndRaises, "1.5", "3.16", "1.2", jvm=True),
        _publisher(_life.KeepsReferenceAfterComplete, "1.6", "3.13", jvm=False),
        _publisher(_life.RequestAfterCompleteRaises, "1.6", "3.6", "3.16", jvm=True),
        _publisher(_life.CancelAfterCompleteRaises, "1.6", "3.7", "3.15", jvm=True),
        _publisher(_life.BadRequestAfterCompleteSignals, "1.7", "1.6", "3.6", jvm=False),
        _publisher(_life.NextBeforeSubscribe, "1.9", jvm=True),
        _publisher(_life.OnSubscribeTwice, "2.12", "1.9", jvm=True),
        _publisher(_life.NoOnSubscribe, "1.9", jvm=True),
        _publisher(_life.EmptyWithoutOnSubscribe, "1.9", jvm=True),
        _publisher(_life.OnSubscribeNone, "2.13", "1.9", jvm=True),
        _publisher(_life.NullAccepted, "1.9", jvm=True),
        _publisher(_life.NullWrongError, "1.9", jvm=True),
        _publisher(_life.SubscribeRaises, "1.9", jvm=True),
        _publisher(_life.SubscribeRaisesAfterwards, "1.9", jvm=True),
        _publisher(_life.SecondSubscriberIgnored, "1.9", "1.11", jvm=False),
        _publisher(_life.SecondSubscriberRaises, "1.9", "1.11", jvm=False),
        _publisher(_life.SecondSubscriberRejectedTooEarly, "1.9", "1.11", jvm=False),
        _publisher(_life.SecondSubscriberReplacesFirst, "1.11", jvm=False),
        _failed(_fail.FailedThrows, "1.9", "1.4", jvm=True),
        _failed(_fail.FailedNoOnSubscribe, "1.9", jvm=True),
        _failed(_fail.FailedSilent, "1.4", "1.9", jvm=True),
        _failed(_fail.FailedTwice, "1.7", "1.4", jvm=True),
        _failed(_fail.FailedCompletes, "1.4", "1.9", jvm=True),
        _failed(_fail.FailedThenCompletes, "1.7", "1.4", jvm=True),
        _failed(_fail.FailedWithNone, "2.13", "1.4", jvm=False),
        _failed(_fail.FailedWithText, "2.13", "1.4", jvm=True),
        # Bad requests and cancellation.
        _publisher(_cancel.BadRequestIgnored, "3.9", jvm=True),
        _publisher(_cancel.BadRequestRaises, "3.9", "3.16", jvm=True),
        # The JVM's kit makes a skip of it: a test of a SHOULD never fails there.
        _publisher(_cancel.BadRequestPoorMessage, "3.9", jvm=False, optional=True),
        _publisher(_cancel.BadRequestWrongType, "3.9", jvm=True),
        _publisher(_cancel.BadRequestCompletes, "3.9", jvm=True),
        _publisher(_cancel.NegativeRequestIgnored, "3.9", jvm=True),
        _publisher(_cancel.NegativeRequestSubtracts, "3.9", jvm=True),
        _publisher(_cancel.BadRequestAfterCancelSignals, "3.6", "1.8", jvm=True),
        _publisher(_cancel.RequestAfterCancelRaises, "3.6", "3.16", jvm=True),
        _publisher(_cancel.CancelOnlyResetsDemand, "3.6", jvm=True),
        _publisher(_cancel.CancelIgnored, "3.12", "1.8", "3.6", jvm=True),
        _publisher(_cancel.CancelSeenLate, "3.12", "1.8", jvm=False),
        _publisher(_cancel.CancelTwiceRaises, "3.7", "3.15", jvm=True),
        _publisher(_cancel.CancelRaises, "3.15", jvm=True),
        _publisher(_cancel.CancelSignalsError, "1.8", "3.12", "3.6", "3.7", jvm=True),
        _publisher(_cancel.CancelSignalsComplete, "1.8", "3.12", "3.6", "3.7", jvm=True),
        _publisher(
            _cancel.CompletesLongAfterCancel, "1.8", "3.12", "3.6", "3.7", jvm=True, profile="threads"
        ),
        _publisher(_cancel.SlowCancel, "3.5", jvm=False),
        _publisher(_cancel.CancelWaitsForTheSignal, "3.5", jvm=False),
        _publisher(_cancel.CancelFromAnotherThreadRaises, "3.5", "3.15", jvm=False),
        _publisher(_cancel.KeepsReference, "3.13", jvm=True),
        _publisher(_cancel.KeepsReferenceInSubscription, "3.13", jvm=True),
        # Inside a signal, beside one, and when a Subscriber raises.
        _publisher(_interfering.CancelUnheardWhenUnbounded, "3.12", "1.8", jvm=False),
        _publisher(_interfering.TickerIgnoresCancel, "3.12", "1.8", jvm=False, profile="threads"),
        _publisher(_interfering.CancelInOnSubscribeLost, "1.8", "3.6", jvm=False),
        _publisher(_interfering.BadRequestInOnSubscribeLost, "3.9", jvm=False),
        _publisher(_interfering.BadRequestInOnNextIgnored, "3.9", jvm=False),
        _publisher(_interfering.BadRequestAfterUnboundedIgnored, "3.9", jvm=False),
        _publisher(_interfering.ServesEveryThreadByItself, "1.3", jvm=False),
        _publisher(_interfering.ForgetsRequestsOfOtherThreads, "3.8", jvm=False),
        _publisher(_interfering.AddsWithoutTheLock, "1.1", "3.8", jvm=False),
        _publisher(_interfering.AddsConvertedWithoutTheLock, "1.1", "3.8", jvm=False),
        _publisher(_interfering.SubtractsWithoutTheLock, "3.8", "1.1", jvm=False),
        _publisher(_interfering.LooksAwayBeforeItRests, "3.8", jvm=False),
        _publisher(_interfering.LocksWhileItSignals, "3.5", jvm=False),
        _publisher(_interfering.GoesOnWhenOnNextRaises, "2.13", jvm=False),
        _publisher(_interfering.FailsTheSubscriberThatRaised, "2.13", jvm=False),
        _publisher(_interfering.KeepsReferenceAfterError, "1.6", "3.13", jvm=False),
        _publisher(_interfering.SilentAfterTheEnd, "1.9", jvm=False),
        _publisher(_interfering.StarvesOthersWhenOneLeaves, "1.11", jvm=False),
    )
}

BROKEN_SUBSCRIBERS: dict[str, SubscriberCase] = {
    case.name: case
    for case in (
        _subscriber(subscribers.NeverRequests, "2.1", jvm=True),
        _subscriber(subscribers.RequestsNothing, "2.1", "3.9", jvm=True),
        _subscriber(subscribers.RequestsOneOfMany, "2.1", "3.8", jvm=True, black=False),
        _subscriber(subscribers.CancelsInOnComplete, "2.3", jvm=True),
        _subscriber(subscribers.CancelsInOnError, "2.3", jvm=True),
        _subscriber(subscribers.RequestsInOnComplete, "2.3", jvm=True),
        _subscriber(subscribers.RequestsInOnError, "2.3", jvm=True),
        _subscriber(subscribers.RequestsAfterComplete, "2.4", jvm=False, profile="threads"),
        _subscriber(subscribers.CancelsAfterError, "2.4", jvm=False, profile="threads"),
        _subscriber(subscribers.SecondSubscriptionIgnored, "2.5", jvm=True),
        _subscriber(subscribers.SecondSubscriptionUsed, "2.5", jvm=True),
        _subscriber(subscribers.FirstSubscriptionCancelled, "2.5", jvm=True),
        _subscriber(subscribers.RequestsConcurrently, "2.7", jvm=False, profile="threads"),
        _subscriber(subscribers.CancelsBesideARequest, "2.7", jvm=False, white=False, profile="threads"),
        _subscriber(subscribers.OnNextAfterCancelRaises, "2.8", "2.13", jvm=True),
        _subscriber(subscribers.CompleteRaises, "2.9", "2.13", jvm=True),
        _subscriber(subscribers.CompleteWithoutElementRaises, "2.9", "2.13", jvm=True),
        _subscriber(subscribers.CompleteNotReported, "2.9", jvm=True, black=False),
        _subscriber(subscribers.ErrorRaises, "2.10", "2.13", jvm=True),
        _subscriber(subscribers.ErrorWithoutElementRaises, "2.10", "2.13", jvm=True),
        _subscriber(subscribers.ErrorReplaced, "2.10", jvm=True, black=False),
        _subscriber(subscribers.OnSubscribeRaises, "2.13", jvm=True),
        # Only the white box of the JVM finds it: its black box never sends an element.
        _subscriber(subscribers.OnNextRaises, "2.13", jvm=True),
        _subscriber(subscribers.FalsyElementRaises, "2.13", jvm=True),
        _subscriber(subscribers.FalsyElementIgnored, "2.13", jvm=True, black=False),
        _subscriber(subscribers.BoundToItsThread, "2.13", jvm=False),
        _subscriber(subscribers.RequestsBeforeKeeping, "2.13", "3.10", jvm=False, white=False),
        _subscriber(subscribers.NullSubscriptionAccepted, "2.13", jvm=True),
        _subscriber(subscribers.NullElementAccepted, "2.13", jvm=True),
        _subscriber(subscribers.NullErrorAccepted, "2.13", jvm=True),
        _subscriber(subscribers.NullWrongError, "2.13", jvm=True),
    )
}

BROKEN_PROCESSORS: dict[str, ProcessorCase] = {
    case.name: case
    for case in (
        _processor(processors.SwallowsError, "4.2", "1.4", jvm=True),
        _processor(processors.ErrorBecomesComplete, "4.2", "1.4", jvm=True),
        _processor(processors.WrapsError, "4.2", "2.10", "1.4", jvm=True),
        _processor(processors.ErrorWaitsForDemand, "4.2", "1.4", jvm=True),
        _processor(processors.ErrorNeedsDemand, "4.2", "1.4", "1.9", "2.10", jvm=True),
        _processor(processors.ErrorReachesFirstOnly, "1.4", "4.2", jvm=True),
        _processor(processors.SwallowsComplete, "1.5", "2.9", "1.2", "4.1", jvm=True),
        _processor(processors.NeverCancelsUpstream, "2.6", "2.8", "4.1", "3.12", jvm=True),
        _processor(processors.KeepsSubscriber, "3.13", "4.1", jvm=True),
        _processor(processors.DropsElements, "3.8", "1.1", "1.2", "1.5", "4.1", jvm=True),
        _processor(processors.ReordersElements, "1.12", "1.11", "4.1", jvm=False),
        _processor(processors.SwapsElements, "4.1", "3.8", "2.1", jvm=True),
        _processor(processors.SecondUpstreamKept, "2.5", "4.1", jvm=True),
        _processor(processors.CancelsInOnComplete, "2.3", "4.1", jvm=True),
        _processor(processors.NullAccepted, "2.13", "4.1", jvm=True),
        _processor(processors.NullSubscriberAccepted, "1.9", "4.1", jvm=True),
        _processor(processors.NeverAsksUpstream, "2.1", "1.1", "4.1", jvm=True),
        _processor(processors.IgnoresDownstreamDemand, "1.1", "4.1", jvm=True),
        _processor(processors.OnNextAfterCancelRaises, "2.8", "2.13", "4.1", jvm=True),
        _processor(processors.ForgetsEarlyDemand, "4.1", "2.1", jvm=True),
        _processor(processors.LeavesWithTheFirst, "4.1", "1.11", jvm=False),
    )
}
