"""The publishers for tests, and the race."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import RULES, UNBOUNDED, RuleViolation
from penstock.streams import Flux
from penstock.testing import PublisherProbe, TestPublisher, TestSubscriber, race


def test_what_is_sent_arrives() -> None:
    source: TestPublisher[int] = TestPublisher()
    one: TestSubscriber[int] = TestSubscriber()
    two: TestSubscriber[int] = TestSubscriber(demand=1)
    source.subscribe(one)
    source.subscribe(two)
    source.next(1)
    two.cancel()
    source.next(2)
    source.complete()

    assert one.items == [1, 2]
    assert one.completed
    assert two.items == [1]
    assert (source.subscribed, source.subscribers, source.cancelled) == (2, 0, 1)
    assert source.requested == UNBOUNDED


def test_an_element_without_demand_is_refused() -> None:
    source: TestPublisher[int] = TestPublisher()
    source.subscribe(TestSubscriber(demand=1))
    source.next(1)

    with pytest.raises(AssertionError, match="1 elements were requested and 1 sent"):
        source.next(2)


def test_a_request_for_nothing_fails_the_stream() -> None:
    source: TestPublisher[int] = TestPublisher()
    subscriber: TestSubscriber[int] = TestSubscriber(demand=0)
    source.subscribe(subscriber)
    subscriber.request(0)

    assert isinstance(subscriber.error, ValueError)


def test_every_rule_that_it_breaks_is_a_rule() -> None:
    assert set(TestPublisher.BREAKABLE) <= set(RULES)
    with pytest.raises(ValueError, match=r"cannot break §1\.3; it can break 1\.1"):
        TestPublisher(breaks="1.3")
    with pytest.raises(LookupError):
        TestPublisher(breaks="9.9")


@pytest.mark.parametrize("broken", ["1.1", "1.7", "1.8", "1.9", "2.13", "3.9"])
def test_it_breaks_the_rule_that_is_named(broken: str) -> None:
    source: TestPublisher[object] = TestPublisher(breaks=broken)
    subscriber: TestSubscriber[object] = TestSubscriber(demand=0)
    source.subscribe(subscriber)
    if broken not in ("1.1", "1.9"):
        subscriber.request(5)
    if broken == "1.8":
        subscriber.cancel()
    if broken == "1.7":
        source.complete()
    if broken == "3.9":
        subscriber.request(-1)
        assert subscriber.error is None
    source.next(None if broken == "2.13" else 1)

    assert subscriber.items == [None if broken == "2.13" else 1]
    assert subscriber.subscribed is (broken != "1.9")


def test_a_stream_over_a_wrong_publisher_fails_with_the_rule() -> None:
    source: TestPublisher[int] = TestPublisher(breaks="2.13")
    subscriber: TestSubscriber[str] = TestSubscriber()
    source.flux().map(str).subscribe(subscriber)
    source.next(None)  # type: ignore[arg-type]

    assert "2.13" in str(subscriber.error)


def test_a_probe_counts() -> None:
    probe = PublisherProbe(Flux.range(5))
    subscriber: TestSubscriber[int] = TestSubscriber(demand=2)
    probe.subscribe(subscriber)
    assert (probe.subscribed, probe.requested, probe.sent, probe.cancelled, probe.ended) == (1, 2, 2, 0, 0)
    subscriber.cancel()
    subscriber.cancel()
    assert probe.cancelled == 1
    assert probe.flux().collect_list().block() == [0, 1, 2, 3, 4]
    assert (probe.subscribed, probe.sent, probe.ended) == (2, 7, 1)


def test_a_probe_in_the_place_of_a_publisher() -> None:
    probe: PublisherProbe[int] = PublisherProbe()

    assert Flux.empty().switch_if_empty(probe).collect_list().block() == []
    assert probe.subscribed == 1
    assert PublisherProbe(Flux.just(1, 2)).mono().block() == 1


# ---------------------------------------------------------------- race


def test_a_race_gives_all_results() -> None:
    assert race(lambda: 1, lambda: 2) == [1, 2]
    assert race() == []


def test_a_race_raises_what_was_raised() -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    with pytest.raises(ValueError, match="one"):
        race(lambda: fail("one"), lambda: 2)
    with pytest.raises(BaseExceptionGroup) as several:
        race(lambda: fail("one"), lambda: fail("two"))
    assert {str(error) for error in several.value.exceptions} == {"one", "two"}


def test_a_race_that_does_not_end_is_a_deadlock() -> None:
    forever = threading.Event()
    with pytest.raises(TimeoutError, match="function 1"):
        race(forever.wait, timeout=0.05)
    forever.set()


@pytest.mark.parametrize("n", [0, -1, "many", 2.5, True, None])
def test_what_is_no_number_of_elements_fails_the_stream_and_raises_nothing(n: Any) -> None:
    """§3.9 and §3.16: for a publisher that keeps the rules, and for one behind a probe."""
    for publisher in (TestPublisher[int](), PublisherProbe(Flux.just(1))):
        subscriber: TestSubscriber[int] = TestSubscriber(demand=0)
        publisher.subscribe(subscriber)
        subscriber.request(n)
        assert isinstance(subscriber.error, RuleViolation)
        assert subscriber.error.rule == "3.9"
        assert publisher.requested == 0
