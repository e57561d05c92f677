"""Chapter 3: what a Subscription must do, for every publisher of the package."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from penstock.spec import UNBOUNDED, RuleViolation
from tests.streams.rules.publishers import CASES, NAMES, Case, Env, Probe, names
from tests.streams.rules.test_publisher_rules import lossless, ordered, wait_until

N = 10


def waits(case: Case) -> bool:
    """Whether the stream stands still as long as nothing is requested."""
    return case.size != 0 and not case.lossy


@pytest.mark.parametrize("name", names(lossless))
def test_rule_3_2_request_from_on_subscribe_and_on_next(env: Env, name: str) -> None:
    case = CASES[name]
    probe = Probe(1, lambda r, _: r.request(1)).to(case.make(env, N)).wait()
    assert ordered(case, probe.items) == case.expected(N)


@pytest.mark.parametrize("name", names(lambda case: lossless(case) and case.size is None))
def test_rule_3_3_request_inside_on_next_does_not_deepen_the_stack(env: Env, name: str) -> None:
    case = CASES[name]
    probe = Probe(1, lambda r, _: r.request(1)).to(case.make(env, 3000)).wait(40)
    assert len(probe.items) == 3000
    assert probe.deepest == 1


LONG = {"range", "generator", "map_filter", "two_segments", "flat_map_iterable", "concat_map", "limit_rate"}
LONG |= {"merge", "zip", "publish_on_single", "publish_on_pool", "cache", "foreign", "foreign_map"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LONG))
def test_rule_3_3_the_stack_stays_at_depth_one_over_200_000_elements(env: Env, name: str) -> None:
    probe = Probe(1, lambda r, _: r.request(1)).to(CASES[name].make(env, 200_000)).wait(55)
    assert len(probe.items) == 200_000
    assert probe.deepest == 1


@pytest.mark.parametrize("name", NAMES)
def test_rule_3_5_cancel_from_many_threads_returns_and_may_be_repeated(env: Env, name: str) -> None:
    probe = Probe(2).to(CASES[name].make(env, N))
    threads = [threading.Thread(target=lambda: (probe.cancel(), probe.cancel())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    env.settle()
    before = len(probe.items)
    probe.request(5)
    env.settle()
    assert len(probe.items) == before
    probe.check()


@pytest.mark.parametrize("name", names(waits))
def test_rules_3_6_and_3_7_nothing_happens_on_a_cancelled_subscription(env: Env, name: str) -> None:
    probe = Probe().to(CASES[name].make(env, N))
    probe.cancel().request(3).request(0).request(-1).cancel()
    env.settle()
    assert probe.items == []
    assert not probe.terminated


@pytest.mark.parametrize("name", names(lossless))
def test_rule_3_8_requests_add_up(env: Env, name: str) -> None:
    case = CASES[name]
    probe = Probe(on_start=lambda r: (r.request(1), r.request(2), r.request(N))).to(case.make(env, N)).wait()
    assert ordered(case, probe.items) == case.expected(N)


@pytest.mark.parametrize("name", names(waits))
@pytest.mark.parametrize("n", [0, -1, -(2**63), "x", None, 1.5])
def test_rule_3_9_a_request_for_less_than_one_signals_on_error_and_names_the_rule(
    env: Env, name: str, n: Any
) -> None:
    probe = Probe().to(CASES[name].make(env, N))
    probe.request(n)
    probe.wait()
    assert isinstance(probe.error, RuleViolation)
    assert probe.error.rule == "3.9"
    assert "§3.9" in str(probe.error)
    assert "cancel" in str(probe.error), "the message says what to do instead"
    assert probe.items == []


@pytest.mark.parametrize("name", names(waits))
@pytest.mark.parametrize("where", ["on_subscribe", "on_next"])
def test_rule_3_9_also_inside_a_signal(env: Env, name: str, where: str) -> None:
    if where == "on_subscribe":
        probe = Probe(on_start=lambda r: r.request(0)).to(CASES[name].make(env, N))
    else:
        probe = Probe(UNBOUNDED, lambda r, _: r.request(0)).to(CASES[name].make(env, N))
        if CASES[name].size == 1 or name == "subscribe_on":
            return  # it may complete before it hears of the request
    probe.wait()
    assert isinstance(probe.error, RuleViolation)
    assert len(probe.items) == (where == "on_next")


@pytest.mark.parametrize("name", names(lambda case: case.size is None and not case.lossy))
def test_rule_3_12_cancel_stops_an_active_stream(env: Env, name: str) -> None:
    probe = Probe(2).to(CASES[name].make(env, N))
    wait_until(lambda: len(probe.items) == 2)
    probe.cancel()
    probe.request(3)
    env.settle()
    assert len(probe.items) == 2
    assert not probe.completed
    probe.check()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("when", ["before", "during", "inside", "after"])
def test_rule_3_13_a_cancelled_subscriber_can_be_collected(env: Env, name: str, when: str) -> None:
    flux = CASES[name].make(env, N)
    inside = (lambda r, _: r.cancel()) if when == "inside" else None
    probe = Probe(0 if when == "before" else 2 if when == "during" else UNBOUNDED, inside).to(flux)
    if when == "after" and not CASES[name].lossy:
        probe.wait()
    subscription = probe.subscription
    env.settle()
    probe.cancel()
    gone = weakref.ref(probe)
    env.settle()
    del probe
    gc.collect()
    assert gone() is None, gc.get_referrers(gone())
    del subscription, flux


@pytest.mark.parametrize("name", NAMES)
def test_rules_3_15_and_3_16_cancel_and_request_return_normally(env: Env, name: str) -> None:
    probe = Probe(1).to(CASES[name].make(env, N))
    assert probe.subscription.request(1) is None  # type: ignore[func-returns-value]
    assert probe.subscription.cancel() is None  # type: ignore[func-returns-value]
    env.settle()


@pytest.mark.parametrize("name", names(lossless))
@pytest.mark.parametrize("each", [UNBOUNDED, UNBOUNDED - 1, 2**62, 2**70])
def test_rule_3_17_demand_beyond_2_to_the_63_is_no_error(env: Env, name: str, each: int) -> None:
    case = CASES[name]
    start = lambda r: [r.request(each) for _ in range(3)]  # noqa: E731
    probe = Probe(on_start=start, on_element=lambda r, _: r.request(each)).to(case.make(env, N)).wait()
    assert probe.completed
    assert ordered(case, probe.items) == case.expected(N)


@pytest.mark.parametrize("name", NAMES)
def test_rule_3_12_a_cancel_inside_on_subscribe_gives_a_silent_stream(env: Env, name: str) -> None:
    probe = Probe(on_start=lambda r: (r.request(3), r.cancel())).to(CASES[name].make(env, N))
    env.settle()
    assert probe.items == []
    assert not probe.terminated
