"""Long chains: what is fused needs no stack, what is concatenated needs none either."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux
from tests.streams.recording import Recorder


def chained(flux: Any, times: int, step: Callable[[Any, int], Any]) -> Any:
    for i in range(times):
        flux = step(flux, i)
    return flux


def test_a_thousand_maps() -> None:
    flux = chained(Flux.range(100), 1000, lambda f, i: f.map(lambda x: x + 1))
    assert Recorder.of(flux, UNBOUNDED).wait().items == list(range(1000, 1100))
    assert list(flux) == list(range(1000, 1100))


def test_a_thousand_mixed_fused_operators() -> None:
    def mixed(flux: Any, i: int) -> Any:
        return [
            lambda: flux.map(lambda x: x + 1),
            lambda: flux.filter(lambda x: True),
            lambda: flux.take(1000),
            lambda: flux.do_on_next(lambda x: None),
            lambda: flux.skip(0),
            lambda: flux.flat_map_iterable(lambda x: (x,)),
            lambda: flux.distinct_until_changed(),
        ][i % 7]()

    flux = chained(Flux.range(50), 1000, mixed)
    expected = [x + 143 for x in range(50)]
    assert Recorder.of(flux, UNBOUNDED).wait().items == expected
    assert list(flux) == expected


def test_a_hundred_segments_in_a_row() -> None:
    flux = chained(Flux.range(20), 100, lambda f, i: f.buffer(1).map(lambda x: x[0]))
    recorder = Recorder(1, lambda r, x: r.request(1))
    flux.subscribe(recorder)
    assert recorder.wait().items == list(range(20))


def test_a_thousand_concat_with_in_a_row() -> None:
    flux = chained(Flux.just(-1), 1000, lambda f, i: f.concat_with(Flux.just(i)))
    recorder = Recorder(1, lambda r, x: r.request(1))
    flux.subscribe(recorder)
    assert recorder.wait().items == list(range(-1, 1000))
    assert recorder.deepest == 1


def test_ten_thousand_sources_in_concat() -> None:
    flux = Flux.concat(*[Flux.just(i) for i in range(10_000)])
    assert Recorder.of(flux, UNBOUNDED).wait().items == list(range(10_000))
    one_by_one = Recorder(1, lambda r, x: r.request(1))
    flux.subscribe(one_by_one)
    assert one_by_one.wait().deepest == 1


@pytest.mark.parametrize("operator", ["concat_map", "flat_map", "flat_map_sequential"])
def test_ten_thousand_empty_inner_streams(operator: str) -> None:
    flux = getattr(Flux.range(10_000), operator)(lambda x: Flux.empty())
    assert Recorder.of(flux).wait().completed


def test_ten_thousand_retries_and_repetitions() -> None:
    attempts = iter(range(10_001))

    def attempt() -> Any:
        return Flux.error(ValueError()) if next(attempts) < 10_000 else Flux.just("at last")

    assert Recorder.of(Flux.defer(attempt).retry(10_000), 1).wait().items == ["at last"]
    assert Recorder.of(Flux.just(1).repeat(9_999), UNBOUNDED).wait().items == [1] * 10_000


STAGES: dict[str, Callable[[Any, int], Any]] = {
    "on_error_resume": lambda f, i: f.on_error_resume(lambda error: Flux.empty()),
    "concat_map": lambda f, i: f.concat_map(lambda x: Flux.just(x)),
    "flat_map": lambda f, i: f.flat_map(lambda x: Flux.just(x)),
    "flat_map_sequential": lambda f, i: f.flat_map_sequential(lambda x: Flux.just(x)),
    "limit_rate": lambda f, i: f.limit_rate(8),
    "timeout": lambda f, i: f.timeout(60),
    "cache": lambda f, i: f.cache(),
    "share": lambda f, i: f.share(),
    "zip_with": lambda f, i: f.zip_with(Flux.range(20), lambda left, right: left),
    "concat_with a map": lambda f, i: f.map(lambda x: x).concat_with(Flux.empty()),
    "on_backpressure_buffer": lambda f, i: f.on_backpressure_buffer(100),
}


@pytest.mark.parametrize("name", STAGES)
def test_thirty_unfused_stages_in_a_row(name: str) -> None:
    """Each stage of its own takes a few frames of the stack, so their number has a limit."""
    recorder = Recorder(1, lambda r, x: r.request(1))
    chained(Flux.range(20), 30, STAGES[name]).subscribe(recorder)
    assert recorder.wait().items == list(range(20))


@pytest.fixture
def a_high_limit() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(40_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("name", STAGES)
def test_a_row_of_stages_works_or_is_refused_before_it_starts(name: str) -> None:
    refused_at = None
    for length in range(20, 320, 20):
        recorder = Recorder.of(chained(Flux.range(20), length, STAGES[name]), UNBOUNDED).wait()
        if recorder.error is not None:
            assert isinstance(recorder.error, RecursionError)
            assert "sys.setrecursionlimit(" in str(recorder.error)
            assert recorder.items == []
            refused_at = length
            break
        assert recorder.items == list(range(20))
    assert refused_at is not None
    assert refused_at >= 40


@pytest.mark.usefixtures("a_high_limit")
@pytest.mark.parametrize("name", STAGES)
def test_a_thousand_stages_run_when_the_limit_allows_it(name: str) -> None:
    flux = chained(Flux.range(20), 1000, STAGES[name])
    assert Recorder.of(flux, UNBOUNDED).wait().items == list(range(20))


def test_a_thousand_merge_with_are_one_stage() -> None:
    flux = chained(Flux.range(1000), 1000, lambda f, i: f.merge_with(Flux.just(-1)))
    assert len(Recorder.of(flux, UNBOUNDED).wait().items) == 2000
