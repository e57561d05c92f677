"""Publisher tests: several Subscribers."""

from __future__ import annotations

from typing import Any

from penstock.spec import UNBOUNDED
from penstock.tck.evidence import same_elements, shown
from penstock.tck.probe import Probe
from penstock.tck.publisher.subject import PublisherSubject
from penstock.tck.verdicts import NotPromised, Violation
from penstock.tck.verification import check

_DIFFERENT_RATES = 20


class SharingTests(PublisherSubject):
    """§1.11, and §1.12 of the Aquifer document; ``fanout`` says how much of it is a promise."""

    @check
    def test_optional_spec111_may_support_multi_subscribe(self) -> None:
        """Two Subscribers at the same time, and neither is refused."""
        for probe in self._several(self.publisher_of(1), 2):
            self.trial.settle()
            if probe.error is not None:
                raise Violation(
                    "1.11", f"{probe.name} was refused with {shown(probe.error)}", "that it is served"
                )

    @check
    def test_optional_spec111_registered_subscribers_must_receive_on_next_or_on_complete_signals(
        self,
    ) -> None:
        """Two Subscribers, and each gets an element or the end."""
        probes = self._several(self.publisher_of(1), 2)
        for probe in probes:
            probe.request(1)
        for probe in probes:
            self._expect_something(probe)

    def _expect_something(self, probe: Probe) -> None:
        served = self.trial.wait_until(lambda: bool(probe.elements) or probe.completed, lambda: probe.ended)
        if not served:
            last = probe.signals[-1]
            raise Violation("1.11", f"{probe.name} was not served; the last signal was {last}", "a signal")

    @check
    def test_optional_spec111_must_go_on_serving_others_when_a_subscriber_leaves(self) -> None:
        """One of two Subscribers leaves, and the other one gets what it has asked for, to the end."""
        leaving, staying = self._several(self.publisher_of(5, completes=True), 2)
        staying.request(10)
        leaving.request(1)
        self.trial.wait_until(lambda: bool(leaving.elements) or leaving.ended)
        leaving.cancel()
        staying.expect_complete("1.11")

    @check
    def test_optional_spec111_multicast_must_produce_the_same_elements_in_the_same_sequence_to_all_of_its_subscribers_when_requesting_one_by_one(  # noqa: E501
        self,
    ) -> None:
        """Three Subscribers that ask for little, in turns: the same five elements for each, and the end."""
        self._require_multicast()
        if self.does_coordinated_emission:
            raise NotPromised("the script has one Subscriber run ahead; does_coordinated_emission forbids it")
        first, second, third = self._several(self.publisher_of(5, completes=True), 3)
        script = [(first, 1), (second, 2), (first, 1), (third, 3), (third, 1), (third, 1)]
        for probe, count in [*script, (second, 3), (first, 3)]:
            wanted = len(probe.elements) + count
            probe.request(count)
            probe.expect_elements(wanted, "1.11")
        for probe in (first, second, third):
            probe.request(1)
            probe.expect_complete("1.11", elements=5)
        self._expect_the_same(first, second, third)

    @check
    def test_optional_spec111_multicast_must_produce_the_same_elements_in_the_same_sequence_to_all_of_its_subscribers_when_requesting_many_upfront(  # noqa: E501
        self,
    ) -> None:
        """Three Subscribers that ask for everything at once: the same three elements for each."""
        self._require_multicast()
        probes = self._several(self.publisher_of(3), 3)
        for probe in probes:
            probe.request(4)
        for probe in probes:
            probe.expect_elements(3, "1.11")
        self._expect_the_same(*probes, upto=3)

    @check
    def test_optional_spec111_multicast_must_produce_the_same_elements_in_the_same_sequence_to_all_of_its_subscribers_when_requesting_many_upfront_and_complete_as_expected(  # noqa: E501
        self,
    ) -> None:
        """The same, and the end for each."""
        self._require_multicast()
        probes = self._several(self.publisher_of(3, completes=True), 3)
        for probe in probes:
            probe.request(4)
        for probe in probes:
            probe.expect_complete("1.11", elements=3)
        self._expect_the_same(*probes)

    @check
    def test_required_spec112_must_give_the_same_elements_in_the_same_order_at_different_rates(self) -> None:
        """One Subscriber asks for all, one for five at a time, one for one at a time: the same for each."""
        self._require_declared_multicast()
        publisher = self.publisher_of(_DIFFERENT_RATES, completes=True)
        quick, steady, slow = self._several(publisher, 3)
        quick.request(UNBOUNDED)
        for number in range(_DIFFERENT_RATES):
            if number % 5 == 0:
                steady.request(5)
            slow.request(1)
            slow.expect_elements(number + 1, "1.12")
        for probe in (quick, steady, slow):
            probe.expect_complete("1.12", elements=_DIFFERENT_RATES)
        self._expect_the_same(quick, steady, slow, rule="1.12")

    @check
    def test_required_spec112_must_give_a_late_subscriber_the_rest_of_the_same_elements(self) -> None:
        """A late Subscriber gets the same elements from some position on: no gaps, the same order."""
        self._require_declared_multicast()
        publisher = self.publisher_of(_DIFFERENT_RATES, completes=True)
        early = self.subscribed(publisher, "early subscriber")
        early.request(2)
        early.expect_elements(2, "1.12")
        late = self.subscribed(publisher, "late subscriber")
        late.request(UNBOUNDED)
        early.request(UNBOUNDED)
        early.expect_complete("1.12", elements=_DIFFERENT_RATES)
        late.expect_complete("1.12")
        missed = len(early.elements) - len(late.elements)
        if missed < 0 or not same_elements(early.elements[missed:], late.elements):
            raise Violation(
                "1.12",
                f"the late Subscriber got {shown(late.elements)}",
                f"an end of {shown(early.elements)}",
            )

    # ---------------------------------------------------------------- for these tests
    def _several(self, publisher: Any, count: int) -> list[Probe]:
        if self.max_supported_subscribers < count:
            raise NotPromised(f"needs {count} Subscribers; max_supported_subscribers is smaller")
        return [self.subscribed(publisher, f"subscriber {number + 1}") for number in range(count)]

    def _expect_the_same(self, *probes: Probe, upto: int | None = None, rule: str = "1.11") -> None:
        first, *others = [probe.elements[:upto] for probe in probes]
        for probe, elements in zip(probes[1:], others, strict=True):
            if not same_elements(elements, first):
                raise Violation(
                    rule, f"{probe.name} got {shown(elements)}", f"{shown(first)}, as subscriber 1"
                )

    def _require_multicast(self) -> None:
        if self.fanout == "unicast":
            raise NotPromised('fanout = "unicast" promises nothing about several Subscribers together')

    def _require_declared_multicast(self) -> None:
        if self.fanout != "multicast":
            raise NotPromised('§1.12 binds those who declare fanout = "multicast"')

    def counts_as_required(self, test_name: str) -> bool:
        """A class that declares a fan-out has promised it."""
        promised = self.fanout is not None and "_spec111_" in test_name
        return promised or super().counts_as_required(test_name)
