"""The verification of a Processor: everything that holds for its two sides, and what connects them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.arguments import whole
from penstock.spec import UNBOUNDED, check_subscriber, non_positive_request
from penstock.tck.evidence import same, shown
from penstock.tck.probe import Probe
from penstock.tck.publisher import PublisherVerification
from penstock.tck.subscriber import SubscriberWhiteboxVerification
from penstock.tck.subscriber.subject import ScriptedError, ScriptedPublisher
from penstock.tck.subscriber.whitebox_probe import WhiteboxSubscriberProbe
from penstock.tck.verdicts import NotPromised, Violation
from penstock.tck.verification import check


class HelperPublisher:
    """Sends the elements of an iterable to one Subscriber, on the thread that requests them."""

    def __init__(self, elements: Iterable[Any]) -> None:
        """Send ``elements``."""
        self._elements = iter(elements)

    def subscribe(self, subscriber: Any, /) -> None:
        """Serve ``subscriber``."""
        check_subscriber(subscriber)
        subscription = _Serving(subscriber, self._elements)
        subscriber.on_subscribe(subscription)
        subscription.send()


class _Serving:
    """Counts demand, and sends in one loop at a time: a request from inside it only adds (§3.3)."""

    def __init__(self, subscriber: Any, elements: Iterator[Any]) -> None:
        self._subscriber = subscriber
        self._elements = elements
        self._lock = threading.Lock()
        self._demand = 0
        self._error: BaseException | None = None
        self._over = False
        # Held from the start: nothing is sent before on_subscribe has returned.
        self._sending = True
        self._next = next(elements, _END)

    def request(self, n: int, /) -> None:
        number = whole(n) or 0
        with self._lock:
            if number < 1:
                self._error = non_positive_request(n)
            else:
                self._demand = min(UNBOUNDED, self._demand + number)
            if self._sending or self._over:
                return
            self._sending = True
        self.send()

    def cancel(self) -> None:
        with self._lock:
            self._over = True
            self._subscriber = None

    def send(self) -> None:
        while (signal := self._next_signal()) is not None:
            signal()

    def _next_signal(self) -> Any:
        with self._lock:
            subscriber = self._subscriber
            if self._over or (self._error is None and self._next is not _END and not self._demand):
                self._sending = False
                return None
            if self._error is None and self._next is not _END:
                element, self._next = self._next, next(self._elements, _END)
                self._demand -= self._demand < UNBOUNDED
                return lambda: subscriber.on_next(element)
            error, self._over, self._subscriber, self._sending = self._error, True, None, False
            return subscriber.on_complete if error is None else lambda: subscriber.on_error(error)


_END = object()


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


class ConnectingTests(ProcessorSubject):
    """§4.1, §4.2, and the tests of §1.4 and §2.1 that take both sides of a Processor."""

    @check
    def test_required_spec104_must_call_on_error_on_all_its_subscribers_if_it_encounters_a_non_recoverable_error(  # noqa: E501
        self,
    ) -> None:
        """A failure upstream reaches all Subscribers at once, though one has an element waiting."""
        self._require_two_subscribers()
        upstream, processor = self._connected()
        first, second = (self.subscribed(processor, f"subscriber {n}") for n in (1, 2))
        first.request(1)
        if self.does_coordinated_emission:
            second.request(1)
        self._pass_on(upstream, 1, first)
        if self.does_coordinated_emission:
            second.expect_elements(1, "1.1")
        first.request(1)
        error = ScriptedError("the stream fails, as the test says")
        upstream.fail(error)
        for probe in (first, second):
            self._expect_same_error(probe, error, "1.4")

    @check
    def test_must_immediately_pass_on_on_error_events_received_from_its_upstream_to_its_downstream(
        self,
    ) -> None:
        """A failure upstream reaches the Subscriber without any demand, as the same object."""
        upstream, processor = self._connected()
        probe, error = self.subscribed(processor), ScriptedError("the stream fails, as the test says")
        upstream.fail(error)
        self._expect_same_error(probe, error, "4.2")

    @check
    def test_required_spec402_must_pass_on_an_error_ahead_of_elements_that_nobody_has_asked_for(self) -> None:
        """A failure upstream does not wait until the elements before it are wanted."""
        upstream, processor = self._connected()
        probe, error = self.subscribed(processor), ScriptedError("the stream fails, as the test says")
        probe.request(1)
        self._pass_on(upstream, 1, probe)
        self.trial.settle()
        if upstream.demand:
            upstream.send(self.element(2))
        upstream.fail(error)
        self._expect_same_error(probe, error, "4.2")

    @check
    def test_required_must_request_from_upstream_for_elements_that_have_been_requested_long_ago(self) -> None:
        """Demand of the first Subscriber is still served after a second one has come without any."""
        self._require_two_subscribers()
        upstream, processor = self._connected()
        first = self.subscribed(processor, "subscriber 1")
        first.request(20)
        self._pass_on(upstream, 1, first)
        self._pass_on(upstream, 2, first)
        second = self.subscribed(processor, "subscriber 2")
        if self.does_coordinated_emission:
            second.request(1)
        third = self._pass_on(upstream, 3, first)
        if not self.does_coordinated_emission:
            self.trial.settle()
            second.expect_exactly(0, "1.1")
            second.request(1)
        (received,) = second.expect_elements(1, "2.1")
        if not same(received, third):
            raise Violation("2.1", f"subscriber 2 got {shown(received)}", shown(third))
        upstream.complete()
        first.expect_complete("1.5", elements=3)
        second.expect_complete("1.5", elements=1)

    @check
    def test_required_spec401_must_pass_on_the_same_elements_in_the_same_order(self) -> None:
        """More elements than the buffer holds, asked for one by one: what went in comes out."""
        elements = [self.element(number) for number in range(2 * self.processor_buffer_size + 3)]
        # Upstream sends as early as it may, so that elements have to wait in the Processor.
        _, processor = self._connected(elements)
        probe = self.subscribed(processor)
        for number, element in enumerate(elements, 1):
            probe.request(1)
            received = probe.expect_elements(number, "4.1")[-1]
            if not same(received, element):
                raise Violation("4.1", f"element {number} was {shown(received)}", shown(element))
        probe.request(1)
        probe.expect_complete("4.1", elements=len(elements))

    @check
    def test_required_spec401_must_keep_demand_that_came_before_its_upstream(self) -> None:
        """What a Subscriber asks for before the Processor has an upstream is asked for upstream later."""
        processor = self._processor()
        probe = Probe(self.trial)
        probe.subscribe_to(processor)
        self.trial.settle()
        # A Processor may as well let its Subscriber wait for the Subscription.
        early = probe.subscription is not None
        if early:
            probe.request(2)
        upstream = ScriptedPublisher(self.trial, processor)
        upstream.subscribe()
        if not early:
            probe.expect_subscription()
            probe.request(2)
        for number in (1, 2):
            (element,) = self.send(upstream, 1, "4.1", first=number)
            received = probe.expect_elements(number, "4.1")[-1]
            if not same(received, element):
                raise Violation("4.1", f"element {number} was {shown(received)}", shown(element))

    @check
    def test_required_spec401_must_stay_with_its_upstream_while_a_subscriber_is_left(self) -> None:
        """One of two Subscribers leaves: upstream is not cancelled, and the other one is served."""
        self._require_two_subscribers()
        upstream, processor = self._connected()
        leaving, staying = (self.subscribed(processor, f"subscriber {n}") for n in (1, 2))
        leaving.request(1)
        staying.request(3)
        self._pass_on(upstream, 1, staying)
        leaving.cancel()
        self.trial.settle()
        if upstream.cancelled:
            raise Violation("4.1", "upstream was cancelled when one of two Subscribers left", "no cancel")
        self._pass_on(upstream, 2, staying)
        upstream.complete()
        staying.expect_complete("4.1", elements=2)

    # ---------------------------------------------------------------- for these tests
    def _processor(self) -> Any:
        size = self.processor_buffer_size
        what = f"create_identity_processor({size})"
        return self.spelling.processor_from(
            self.make(lambda: self.create_identity_processor(size), what, "a Processor")
        )

    def _connected(self, supply: list[Any] | None = None) -> tuple[ScriptedPublisher, Any]:
        processor = self._processor()
        upstream = ScriptedPublisher(self.trial, processor)
        if supply is not None:
            upstream.answer_at_once(supply, "complete")
        upstream.subscribe()
        return upstream, processor

    def _pass_on(self, upstream: ScriptedPublisher, number: int, probe: Probe) -> Any:
        (element,) = self.send(upstream, 1, "2.1", first=number)
        received = probe.expect_elements(number, "2.1")[-1]
        if not same(received, element):
            raise Violation("4.1", f"{probe.name} got {shown(received)}", shown(element))
        return element

    def _expect_same_error(self, probe: Probe, error: BaseException, rule: str) -> None:
        received = probe.expect_error(rule)
        if received is not error:
            raise Violation(rule, f"{probe.name} got {shown(received)}, §4.2", "the same object")

    def _require_two_subscribers(self) -> None:
        if self.max_supported_subscribers < 2:
            raise NotPromised("needs two Subscribers; max_supported_subscribers is smaller")


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
