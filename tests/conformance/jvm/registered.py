"""The registered subjects of `tests.tck`, broken and legal, as the JVM kit gets them.

Their names are those of the registries; what is of another kind than a Publisher says so: `NullAccepted` is a
Publisher, `NullAccepted-processor` a Processor, and a Subscriber is there twice, as `-black` and as `-white`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.conformance.jvm.subject import ENDLESS, Kind, Subject
from tests.tck.broken.registry import BROKEN_PROCESSORS, BROKEN_PUBLISHERS, BROKEN_SUBSCRIBERS
from tests.tck.legal.registry import LEGAL_PROCESSORS, LEGAL_PUBLISHERS, LEGAL_SUBSCRIBERS
from tests.tck.legal.serving import FailedPublisher

SUFFIXES = {
    Kind.PUBLISHER: "",
    Kind.BLACKBOX: "-black",
    Kind.WHITEBOX: "-white",
    Kind.PROCESSOR: "-processor",
}


class Registered(NamedTuple):
    """A case of a registry, and what the JVM kit gets to see of it."""

    case: Any
    subject: Subject


def publisher(case: Any) -> Subject:
    """A `PublisherCase` or a `LegalPublisher`."""
    most = getattr(case, "max_elements", None)
    return Subject(
        Kind.PUBLISHER, case.create, case.create_failed, max_elements=ENDLESS if most is None else most
    )


def subscribers(case: Any) -> Iterator[Subject]:
    """A `SubscriberCase` or a `LegalSubscriber`, in the boxes that it can be put in."""
    if case.create_blackbox is not None:
        yield Subject(
            Kind.BLACKBOX, case.create_blackbox, trigger=lambda subscriber: subscriber.trigger_request(2)
        )
    if case.create_whitebox is not None:
        yield Subject(Kind.WHITEBOX, case.create_whitebox, probed=True)


def processor(case: Any) -> Subject:
    """A `ProcessorCase` or a `LegalProcessor`. The failed Publisher is not its own: the kit needs one."""
    return Subject(
        Kind.PROCESSOR,
        case.create,
        FailedPublisher,
        max_subscribers=getattr(case, "max_subscribers", None) or ENDLESS,
        coordinated=getattr(case, "coordinated", False),
    )


def named(cases: Iterable[tuple[Any, Iterable[Subject]]]) -> dict[str, Registered]:
    """By name, each case in each of its kinds."""
    return {
        f"{case.name}{SUFFIXES[subject.kind]}": Registered(case, subject)
        for case, subjects in cases
        for subject in subjects
    }


def registered(publishers: Any, boxed: Any, processors: Any) -> dict[str, Registered]:
    """What is in three registries."""
    return {
        **named((case, [publisher(case)]) for case in publishers.values()),
        **named((case, subscribers(case)) for case in boxed.values()),
        **named((case, [processor(case)]) for case in processors.values()),
    }


BROKEN = registered(BROKEN_PUBLISHERS, BROKEN_SUBSCRIBERS, BROKEN_PROCESSORS)
LEGAL = registered(LEGAL_PUBLISHERS, LEGAL_SUBSCRIBERS, LEGAL_PROCESSORS)
