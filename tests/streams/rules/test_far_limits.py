"""A loop looks up now and then, however great the demand: nothing is lost or stuck when it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Sinks, schedulers
from penstock.streams.fusion import drain
from tests.streams.recording import Recorder

STREAMS: dict[str, Callable[[], Any]] = {
    "range": lambda: Flux.range(100),
    "cut": lambda: Flux.range(100).buffer(1).map(lambda x: x[0]),
    "nested": lambda: Flux.range(20).flat_map_iterable(lambda x: range(5 * x, 5 * x + 5)),
    "relay": lambda: Flux.range(100).on_error_complete().map(lambda x: x),
    "poll": lambda: Flux.range(100).flat_map(lambda x: Flux.just(x)),
    "thread": lambda: Flux.range(100).publish_on(schedulers.shared_pool(), prefetch=16),
    "cache": lambda: Flux.range(100).cache(),
}


@pytest.mark.parametrize("demand", [UNBOUNDED, 150])
@pytest.mark.parametrize("name", STREAMS)
def test_all_elements_come_although_the_loop_looks_up_every_seven(
    monkeypatch: pytest.MonkeyPatch, name: str, demand: int
) -> None:
    monkeypatch.setattr(drain, "FAR", 7)

    recorder = Recorder.of(STREAMS[name](), demand).wait()

    assert recorder.items == list(range(100))


def test_a_sink_goes_on_past_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "FAR", 3)
    sink = Sinks.unicast()
    recorder = Recorder.of(sink.flux().map(lambda x: x), UNBOUNDED)

    for number in range(20):
        sink.try_emit(number)

    assert recorder.check().items == list(range(20))


@pytest.mark.parametrize("count", [2**62, 2**63 - 1, 2**63, 2**64, 10**30])
def test_a_range_longer_than_a_machine_word_is_a_source_like_any_other(count: int) -> None:
    recorder = Recorder.of(Flux.range(count))
    assert not recorder.terminated
    assert recorder.request(2).check().items == [0, 1]
    assert not recorder.cancel().terminated
    end = Recorder.of(Flux.range(count, 2), 2).wait()
    assert (end.items, end.completed) == ([count, count + 1], True)
