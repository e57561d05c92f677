"""The verification of a Processor: everything that holds for its two sides, and what connects them."""

from __future__ import annotations

from penstock.tck.processor.connecting import ConnectingTests

__all__ = ["IdentityProcessorVerification"]


class IdentityProcessorVerification(ConnectingTests):
    """Verifies a Processor that passes on what it receives, as a Publisher and as a Subscriber (§4.1).

    ::

        class TestRelay(IdentityProcessorVerification):
            max_supported_subscribers = 1

            def create_identity_processor(self, buffer_size):
                return Relay(buffer_size)

    It has to keep elements until its first Subscriber comes, to accept a Subscriber before it has an upstream
    itself, and to cancel upstream when its last Subscriber leaves.
    """
