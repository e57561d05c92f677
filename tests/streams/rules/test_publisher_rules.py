"""Chapter 1: what a Publisher must do, for every publisher of the package."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED, RuleViolation
from penstock.streams import Flux
from tests.streams.recording import Recorder
from tests.streams.rules.publishers import CASES, NAMES, Case, Env, Probe, names

N = 10
SHARED = {"share", "multicast"}
"""Whoever comes later finds only what the slowest has not taken yet."""


def ordered(case: Case, items: list[Any]) -> list[Any]:
    return sorted(items) if case.mixed else items


def lossless(case: Case) -> bool:
    return not case.lossy and not case.fails


@pytest.mark.parametrize("name", names(lossless))
@pytest.mark.parametrize("portion", [1, 3])
def test_rule_1_1_never_more_elements_than_requested(env: Env, name: str, portion: int) -> None:
    case = CASES[name]
    probe = Probe().to(case.make(env, N))
    for _ in range(N + 2):
        if probe.terminated:
            break
        wanted = len(probe.items) + portion
        probe.request(portion)
        if wanted <= len(case.expected(N)):
            wait_until(lambda wanted=wanted: len(probe.items) >= wanted)
        env.settle()
        probe.check()
    probe.wait()
    assert ordered(case, probe.items) == case.expected(N)


@pytest.mark.parametrize("name", names(lossless))
def test_rule_1_2_asking_for_more_than_there_is_ends_the_stream(env: Env, name: str) -> None:
    case = CASES[name]
    probe = Probe(UNBOUNDED).to(case.make(env, N)).wait()
    assert ordered(case, probe.items) == case.expected(N)
    assert probe.completed


@pytest.mark.parametrize("name", names(lambda case: case.lossy))
def test_rule_1_2_a_lossy_stream_ends_too_and_gives_what_was_asked_for(env: Env, name: str) -> None:
    probe = Probe(3).to(CASES[name].make(env, N))
    if not probe.terminated:
        probe.request(N)
    probe.wait()
    assert probe.items[:3] == [0, 1, 2]


@pytest.mark.parametrize("name", names(lossless))
def test_rule_1_3_signals_are_serial_when_requests_come_from_everywhere(env: Env, name: str) -> None:
    case = CASES[name]
    probe = Probe().to(case.make(env, 40))
    barrier = threading.Barrier(3)

    def ask() -> None:
        barrier.wait()
        for _ in range(20):
            probe.request(1)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    probe.wait()
    assert ordered(case, probe.items) == case.expected(40)


@pytest.mark.parametrize("tail", [lambda f: f, lambda f: f.map(str), lambda f: f.buffer(2).map(str)])
def test_rule_1_4_a_failure_is_signalled_without_demand(tail: Any) -> None:
    recorder = Recorder.of(tail(Flux.error(ValueError("broken"))))
    assert isinstance(recorder.error, ValueError)
    recorder.check()


@pytest.mark.parametrize("name", names(lossless))
def test_rule_1_4_a_failure_after_the_elements_reaches_the_subscriber(env: Env, name: str) -> None:
    flux = CASES[name].make(env, N)
    flux = flux.flux() if not isinstance(flux, Flux) else flux
    probe = Probe(UNBOUNDED).to(flux.concat_with(Flux.error(ValueError("broken")))).wait()
    assert isinstance(probe.error, ValueError)
    assert not probe.completed


@pytest.mark.parametrize("name", names(lambda case: lossless(case) and case.knows_end))
def test_rule_1_5_the_end_is_signalled_without_further_demand(env: Env, name: str) -> None:
    case = CASES[name]
    probe = Probe().to(case.make(env, N))
    if case.expected(N):
        probe.request(len(case.expected(N)))
    assert probe.wait().completed


@pytest.mark.parametrize("name", names(lambda case: not case.knows_end))
def test_rule_1_5_the_end_of_what_must_be_asked_is_found_with_demand(env: Env, name: str) -> None:
    case = CASES[name]
    probe = Probe(N).to(case.make(env, N))
    wait_until(lambda: len(probe.items) == N)
    if not probe.terminated:
        probe.request(1)
    assert probe.wait().items == case.expected(N)


@pytest.mark.parametrize("name", NAMES)
def test_rules_1_6_and_1_7_after_the_end_request_and_cancel_do_nothing(env: Env, name: str) -> None:
    probe = Probe(UNBOUNDED).to(CASES[name].make(env, N)).wait()
    before = list(probe.items), probe.completed, probe.error
    probe.request(5).request(-1).cancel().request(1).cancel()
    env.settle()
    assert (probe.items, probe.completed, probe.error) == before
    probe.check()


@pytest.mark.parametrize("name", names(lambda case: case.size is None))
def test_rule_1_8_a_cancel_inside_on_next_is_the_last_that_is_heard(env: Env, name: str) -> None:
    probe = Probe(UNBOUNDED, lambda r, _: r.cancel() if len(r.items) == 3 else None)
    probe.to(CASES[name].make(env, N))
    wait_until(lambda: len(probe.items) == 3)
    env.settle()
    assert len(probe.items) == 3
    assert not probe.terminated
    probe.check()


@pytest.mark.parametrize("name", NAMES)
def test_rule_1_9_on_subscribe_comes_first_and_once(env: Env, name: str) -> None:
    heard: list[str] = []

    class Listening(Probe):
        def on_subscribe(self, subscription: Any, /) -> None:
            heard.append("on_subscribe")
            super().on_subscribe(subscription)

        def on_next(self, element: Any, /) -> None:
            heard.append("on_next")
            super().on_next(element)

    Listening(UNBOUNDED).to(CASES[name].make(env, N)).wait()
    assert heard[0] == "on_subscribe"
    assert heard.count("on_subscribe") == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nobody", [None, object(), Recorder])
def test_rule_1_9_subscribe_raises_a_type_error_for_what_is_no_subscriber(
    env: Env, name: str, nobody: Any
) -> None:
    if nobody is Recorder:
        with pytest.raises(TypeError, match="class is not one of its objects"):
            CASES[name].make(env, N).subscribe(nobody)
        return
    with pytest.raises(TypeError, match=r"§1\.9"):
        CASES[name].make(env, N).subscribe(nobody)


@pytest.mark.parametrize("name", sorted({*names(lambda case: lossless(case) and not case.once)} - SHARED))
def test_rules_1_10_and_1_11_two_subscribers_get_all_elements(env: Env, name: str) -> None:
    case = CASES[name]
    flux = case.make(env, N)
    first, second = Probe(1).to(flux), Probe(2).to(flux)
    for probe in (second, first):
        if not probe.terminated:
            probe.request(N)
        probe.wait()
        assert ordered(case, probe.items) == case.expected(N)


@pytest.mark.parametrize("name", ["generator", "unicast"])
def test_rule_1_9_a_refused_subscriber_gets_on_subscribe_then_on_error(env: Env, name: str) -> None:
    flux = CASES[name].make(env, N)
    Probe(UNBOUNDED).to(flux).wait()
    for again in (flux, flux.map(str), flux.do_on_complete(lambda: None), flux.buffer(2).map(str)):
        refused = Probe(1).to(again).wait()
        assert isinstance(refused.error, RuntimeError)
        assert not isinstance(refused.error, RuleViolation)
        assert "use" in str(refused.error) or "pass" in str(refused.error)


@pytest.mark.parametrize("name", ["cache", "share", "multicast", "replay"])
def test_rule_1_12_all_see_the_same_sequence_at_different_rates(env: Env, name: str) -> None:
    flux = CASES[name].make(env, N)
    slow, quick = Probe().to(flux), Probe().to(flux)
    for _ in range(N):
        slow.request(1)
        quick.request(3)
    slow.wait()
    quick.wait()
    assert slow.items == quick.items == list(range(N))


def wait_until(condition: Any, timeout: float = 10) -> None:
    """Until ``condition()``: only for what another thread brings about by itself."""
    tick = threading.Event()
    for _ in range(int(timeout / 0.001)):
        if condition():
            return
        tick.wait(0.001)
    raise AssertionError("it did not happen")
