"""The verifications of a Subscriber: from outside, and with its help."""

from __future__ import annotations

from penstock.tck.subscriber.blackbox import SubscriberBlackboxVerification
from penstock.tck.subscriber.whitebox import SubscriberWhiteboxVerification

__all__ = ["SubscriberBlackboxVerification", "SubscriberWhiteboxVerification"]
