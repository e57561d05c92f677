"""Chapter 4: stages in the middle of a stream keep the rules of both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, processor
from tests.streams.recording import Recorder
from tests.streams.rules.publishers import Elsewhere, Env, Probe

STAGES: dict[str, Callable[[Env, Flux[Any]], Any]] = {
    "map": lambda e, f: f.map(lambda x: x),
    "two_segments": lambda e, f: f.buffer(1).map(lambda x: x[0]),
    "concat_map": lambda e, f: f.concat_map(lambda x: Flux.just(x)),
    "flat_map": lambda e, f: f.flat_map(lambda x: Flux.just(x), concurrency=2, prefetch=2),
    "flat_map_sequential": lambda e, f: f.flat_map_sequential(lambda x: Flux.just(x), concurrency=2),
    "merge": lambda e, f: Flux.merge(f, Flux.never(), prefetch=2),
    "zip": lambda e, f: Flux.zip(f, f, prefetch=2, combinator=lambda a, b: a),
    "publish_on": lambda e, f: f.publish_on(e.single, prefetch=3),
    "subscribe_on": lambda e, f: f.subscribe_on(e.single),
    "limit_rate": lambda e, f: f.limit_rate(3),
    "retry_none": lambda e, f: f.on_error_resume(lambda error: Flux.error(error), on=KeyError),
    "repeat": lambda e, f: f.repeat(0),
    "switch_if_empty": lambda e, f: f.switch_if_empty(Flux.just(1)),
    "timeout": lambda e, f: f.timeout(60, scheduler=e.single),
    "cache": lambda e, f: f.cache(),
    "share": lambda e, f: f.share(prefetch=3),
    "on_backpressure_buffer": lambda e, f: f.on_backpressure_buffer(20),
}
GREEDY = {"on_backpressure_buffer"}
"""Ask for everything by design."""
BOUND = 4
"""The most that any of the others may have asked for ahead of demand."""


@pytest.mark.parametrize("name", STAGES)
def test_rule_4_1_towards_its_source_a_stage_is_a_subscriber_that_bounds_its_demand(
    env: Env, name: str
) -> None:
    source = Elsewhere(range(20))
    probe = Probe().to(STAGES[name](env, Flux.from_publisher(source)))
    env.settle()
    for step in range(1, 6):
        if name not in GREEDY:
            assert sum(source.requested) <= 2 * (len(probe.items) + BOUND)
        probe.request(1)
        env.settle()
        assert len(probe.items) == step
    probe.cancel()
    env.settle()
    assert source.cancelled in ((1, 2) if name == "zip" else (0,) if name in {"cache", *GREEDY} else (1,))
    probe.check()


@pytest.mark.parametrize("name", STAGES)
def test_rule_4_2_an_error_that_is_not_dealt_with_is_passed_on(env: Env, name: str) -> None:
    error = ValueError("broken")
    probe = Probe().to(STAGES[name](env, Flux.from_publisher(Elsewhere((), error)))).wait()
    assert probe.error is error


@pytest.mark.parametrize("name", [name for name in STAGES if name != "merge"])
def test_rule_4_2_elements_before_the_error_are_not_lost_when_they_were_asked_for(
    env: Env, name: str
) -> None:
    error = ValueError("broken")
    flux = STAGES[name](env, Flux.from_publisher(Elsewhere(range(3), error)))
    probe = Probe(UNBOUNDED).to(flux).wait()
    assert probe.error is error
    assert probe.items == [0, 1, 2][: len(probe.items)]
    if name not in {"flat_map", "flat_map_sequential", "zip"}:  # there an error overtakes by design
        assert probe.items == [0, 1, 2]


def test_rule_4_2_a_stage_that_recovers_regards_its_subscription_as_cancelled() -> None:
    source = Elsewhere(range(2), ValueError())
    recorder = Recorder.of(
        Flux.from_publisher(source).on_error_resume(lambda error: Flux.just("instead")), UNBOUNDED
    ).wait()
    assert recorder.items == [0, 1, "instead"]
    assert source.cancelled == 0, "it ended by itself"


@pytest.mark.parametrize("capacity", [1, 2, 256])
def test_rule_4_1_a_processor_passes_everything_at_the_pace_of_the_slowest(capacity: int) -> None:
    middle = processor(lambda flux: flux.map(lambda x: x * 2), capacity=capacity)
    slow, quick = Recorder.of(middle), Recorder.of(middle, UNBOUNDED)
    source = Elsewhere(range(10))
    source.subscribe(middle)
    assert len(quick.items) <= capacity
    for _ in range(10):
        slow.request(1)
    slow.wait()
    quick.wait()
    assert slow.items == quick.items == [x * 2 for x in range(10)]
