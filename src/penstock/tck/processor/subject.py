"""What a test class says about its Processor, and how that becomes a Publisher and a Subscriber."""

from __future__ import annotations

from typing import Any

from penstock.tck.processor.helper_publisher import HelperPublisher
from penstock.tck.publisher import PublisherVerification
from penstock.tck.subscriber import SubscriberWhiteboxVerification
from penstock.tck.subscriber.whitebox_probe import WhiteboxSubscriberProbe


class ProcessorSubject(PublisherVerification, SubscriberWhiteboxVerification):
    """The hooks of a verification whose subject is a Processor."""

    processor_buffer_size: int = 16
    """The ``buffer_size`` that the kit asks for."""

    def create_identity_processor(self, buffer_size: int) -> Any:
        """Return a new Processor that passes on what it receives and holds at most ``buffer_size`` of it."""
        raise NotImplementedError(
            f"{type(self).__name__} must say how to create_identity_processor(buffer_size)"
        )

    def create_helper_publisher(self, elements: int) -> Any:
        """Return a Publisher of ``elements`` elements, in our spelling, to stand upstream."""
        return HelperPublisher(self.create_element(number) for number in range(elements))

    def create_publisher(self, elements: int) -> Any:
        """Return the Processor as a Publisher: it is subscribed to a helper that has the elements."""
        processor = self.create_identity_processor(self.processor_buffer_size)
        self.create_helper_publisher(elements).subscribe(self.spelling.subscriber_from(processor))
        return processor

    def create_subscriber(self, probe: WhiteboxSubscriberProbe) -> Any:
        """Return the Processor as a Subscriber: what it does upstream is brought about from downstream."""
        processor = self.create_identity_processor(self.processor_buffer_size)
        self.spelling.publisher_from(processor).subscribe(_Downstream(probe))
        return processor


class _Downstream:
    """The Subscriber of a Processor whose other side is tested: it passes everything on to the probe."""

    def __init__(self, probe: WhiteboxSubscriberProbe) -> None:
        self._probe = probe
        self._subscribed = False

    def on_subscribe(self, subscription: Any, /) -> None:
        if self._subscribed:
            subscription.cancel()
            return
        self._subscribed = True
        self._probe.register_on_subscribe(_Strings(subscription))

    def on_next(self, element: Any, /) -> None:
        self._probe.register_on_next(element)

    def on_error(self, error: Any, /) -> None:
        self._probe.register_on_error(error)

    def on_complete(self) -> None:
        self._probe.register_on_complete()


class _Strings:
    """The puppet: the Subscription from the Processor to its Subscriber."""

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription

    def trigger_request(self, n: int, /) -> None:
        self._subscription.request(n)

    def signal_cancel(self) -> None:
        self._subscription.cancel()
