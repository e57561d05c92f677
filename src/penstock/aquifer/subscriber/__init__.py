"""The subscriber's side: a Publisher that reads the log of a gateway."""

from penstock.aquifer.subscriber.metrics import Deficit, Metrics
from penstock.aquifer.subscriber.publisher import AquiferPublisher
from penstock.aquifer.subscriber.subscription import AquiferSubscription

__all__ = ["AquiferPublisher", "AquiferSubscription", "Deficit", "Metrics"]
