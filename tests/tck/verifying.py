"""Test classes for the subjects of ``tests.tck.broken`` and ``tests.tck.legal``."""

from __future__ import annotations

from typing import Any

from penstock.spec import UNBOUNDED
from penstock.tck import (
    Environment,
    IdentityProcessorVerification,
    PublisherVerification,
    SubscriberBlackboxVerification,
    SubscriberWhiteboxVerification,
    Verification,
)

IMPATIENT = Environment(timeout=0.25, gc=0.25)
"""For broken subjects: what they do not do, they never do."""


def _class(base: type[Verification], case: Any, settings: dict[str, Any]) -> type[Any]:
    profile = getattr(case, "profile", "threads")
    return type(f"Test{case.name}", (base,), {"subject": case.name, "profile": profile, **settings})


def publisher_verification(case: Any, environment: Environment | None = None) -> type[PublisherVerification]:
    """The verification of a ``PublisherCase`` or a ``LegalPublisher``."""
    most, subscribers = getattr(case, "max_elements", None), getattr(case, "max_subscribers", None)
    return _class(
        PublisherVerification,
        case,
        {
            "environment": environment or Environment(),
            "fanout": case.fanout,
            "max_elements_from_publisher": UNBOUNDED - 1 if most is None else most,
            "max_supported_subscribers": UNBOUNDED if subscribers is None else subscribers,
            "create_publisher": lambda self, elements: case.create(elements),
            "create_failed_publisher": lambda self: case.create_failed() if case.create_failed else None,
        },
    )


def whitebox_verification(
    case: Any, environment: Environment | None = None
) -> type[SubscriberWhiteboxVerification]:
    """The verification of a ``SubscriberCase`` or a ``LegalSubscriber`` with a probe."""
    return _class(
        SubscriberWhiteboxVerification,
        case,
        {
            "environment": environment or Environment(),
            "create_subscriber": lambda self, probe: case.create_whitebox(probe),
        },
    )


def blackbox_verification(
    case: Any, environment: Environment | None = None
) -> type[SubscriberBlackboxVerification]:
    """The verification of a ``SubscriberCase`` or a ``LegalSubscriber`` that works alone."""
    return _class(
        SubscriberBlackboxVerification,
        case,
        {
            "environment": environment or Environment(),
            "create_subscriber": lambda self: case.create_blackbox(),
            # More demand than it has by itself, so that elements are on their way when it leaves (§2.8).
            "trigger_request": lambda self, subscriber: subscriber.trigger_request(2),
        },
    )


def processor_verification(
    case: Any, environment: Environment | None = None
) -> type[IdentityProcessorVerification]:
    """The verification of a ``ProcessorCase`` or a ``LegalProcessor``."""
    subscribers = getattr(case, "max_subscribers", None)
    return _class(
        IdentityProcessorVerification,
        case,
        {
            "environment": environment or Environment(),
            "max_supported_subscribers": UNBOUNDED if subscribers is None else subscribers,
            "does_coordinated_emission": getattr(case, "coordinated", False),
            "create_identity_processor": lambda self, buffer_size: case.create(buffer_size),
        },
    )
