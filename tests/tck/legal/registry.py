"""The legal subjects by name, with what the kit has to be told about each; the kit must pass them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.spec import Processor, Publisher, Subscriber
from tests.tck.legal import counting, processors, publishers, subscribers
from tests.tck.legal.serving import EmptyPublisher, FailedPublisher, RangePublisher


@dataclass(frozen=True)
class LegalPublisher:
    """A correct Publisher: ``create(n)`` makes one of n elements, up to ``max_elements`` if there is a limit.

    ``fanout`` is what several Subscribers get, in the words of the kit: ``"unicast"``, each a stream of its
    own; ``"multicast"``, all the same one; None if that is not promised. ``profile`` is its word for where
    the Publisher does its work: ``"sync"``, ``"threads"`` or ``"asyncio"``.
    """

    name: str
    create: Callable[[int], Publisher[Any]]
    create_failed: Callable[[], Publisher[Any]] | None = FailedPublisher
    fanout: str | None = "unicast"
    max_elements: int | None = None
    max_subscribers: int | None = None
    profile: str = "sync"


@dataclass(frozen=True)
class LegalSubscriber:
    """A correct Subscriber, working alone or driven by a probe of the kit."""

    name: str
    create_blackbox: Callable[[], Subscriber[Any]]
    create_whitebox: Callable[[Any], Subscriber[Any]]
    profile: str = "sync"


@dataclass(frozen=True)
class LegalProcessor:
    """A correct identity Processor; ``coordinated`` if it sends only when all its Subscribers have asked."""

    name: str
    create: Callable[[int], Processor[Any, Any]]
    max_subscribers: int | None = None
    coordinated: bool = False


LEGAL_PUBLISHERS: dict[str, LegalPublisher] = {
    legal.name: legal
    for legal in (
        LegalPublisher("RangePublisher", RangePublisher),
        LegalPublisher("EmptyPublisher", lambda n: EmptyPublisher(), max_elements=0),
        LegalPublisher("ThreadedPublisher", publishers.ThreadedPublisher, profile="threads"),
        LegalPublisher("SubscribesOnAnotherThread", publishers.SubscribesOnAnotherThread, profile="threads"),
        LegalPublisher("AsyncioPublisher", publishers.AsyncioPublisher, profile="threads"),
        LegalPublisher("AsyncioTaskPublisher", publishers.AsyncioTaskPublisher, profile="asyncio"),
        LegalPublisher("MulticastPublisher", publishers.MulticastPublisher, fanout="multicast"),
        LegalPublisher("MulticastShares", publishers.MulticastShares, fanout=None),
        LegalPublisher("UnicastPublisher", publishers.UnicastPublisher, fanout=None, max_subscribers=1),
        LegalPublisher("CompletesWithTheLastElement", publishers.CompletesWithTheLastElement),
        LegalPublisher("CompletesOnlyWithDemand", publishers.CompletesOnlyWithDemand),
        LegalPublisher("EmptyNeedsDemand", publishers.EmptyNeedsDemand),
        LegalPublisher("RequestWaitsForTheSignal", publishers.RequestWaitsForTheSignal),
        LegalPublisher("CountsOnBothSides", counting.CountsOnBothSides),
        LegalPublisher("AddsUntilItFits", counting.AddsUntilItFits),
        LegalPublisher("PassesRequestsOn", counting.PassesRequestsOn),
        LegalPublisher("TakesPlainNumbersOnly", counting.TakesPlainNumbersOnly),
        LegalPublisher("RaisesUnlessPlain", counting.RaisesUnlessPlain),
        LegalPublisher("SendsItsBatchToTheEnd", publishers.SendsItsBatchToTheEnd),
        LegalPublisher("StopsWhenOnNextRaises", publishers.StopsWhenOnNextRaises),
        LegalPublisher("WrapsWhatOnNextRaises", publishers.WrapsWhatOnNextRaises),
        LegalPublisher("RefusesAfterTheEnd", publishers.RefusesAfterTheEnd, fanout=None, max_subscribers=1),
        LegalPublisher("FalsyElements", publishers.FalsyElements),
        LegalPublisher("EqualElements", publishers.EqualElements),
        LegalPublisher("ElementsWithoutTruth", publishers.ElementsWithoutTruth),
        LegalPublisher("ElementsThatAreErrors", publishers.ElementsThatAreErrors),
        LegalPublisher("SlowPublisher", publishers.SlowPublisher, max_elements=100, profile="threads"),
        LegalPublisher("WithoutFailure", RangePublisher, create_failed=None),
    )
}

LEGAL_SUBSCRIBERS: dict[str, LegalSubscriber] = {
    kind.__name__: LegalSubscriber(kind.__name__, kind, kind, profile)
    for kind, profile in (
        (subscribers.ReferenceSubscriber, "sync"),
        (subscribers.OneAtATime, "sync"),
        (subscribers.AsksForEverything, "sync"),
        (subscribers.AsksInBatches, "sync"),
        (subscribers.TakesThreeAndLeaves, "sync"),
        (subscribers.WorksOnAnotherThread, "threads"),
        (subscribers.AsksOnItsOwnThread, "threads"),
        (subscribers.CancelsSomethingElse, "sync"),
    )
}

LEGAL_PROCESSORS: dict[str, LegalProcessor] = {
    legal.name: legal
    for legal in (
        LegalProcessor("IdentityProcessor", processors.IdentityProcessor),
        LegalProcessor("LockStepProcessor", processors.LockStepProcessor, coordinated=True),
        LegalProcessor("SubscribesLazily", processors.SubscribesLazily),
        LegalProcessor("AsksOnlyWhenAsked", processors.AsksOnlyWhenAsked),
        LegalProcessor("AsksForEverything", processors.AsksForEverything),
        LegalProcessor("EagerUnicastProcessor", processors.EagerUnicastProcessor, max_subscribers=1),
    )
}
