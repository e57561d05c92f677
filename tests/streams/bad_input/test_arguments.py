"""What operators say when they are given the wrong thing: at the line that wrote it, not when it runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.streams import Flux, Mono, Sinks, processor, schedulers
from tests.streams.recording import Recorder

FILLING: dict[str, Any] = {
    "seed": lambda: 0,
    "factory": list,
    "add": list.append,
    "initial": lambda: 0,
    "accumulator": lambda a, b: a,
    "resource": lambda: 0,
    "stream": lambda x: Flux.just(x),
    "cleanup": lambda x: None,
    "state": lambda: 0,
    "step": lambda s, sink: s,
    "key": lambda x: x,
}


def functions_of(cls: type) -> Iterator[Any]:
    """Every parameter that must be a function, of every operator."""
    for name, method in inspect.getmembers(cls, callable):
        if name.startswith("_"):
            continue
        parameters = inspect.signature(method).parameters
        for parameter in parameters.values():
            text = str(parameter.annotation)
            if text.startswith("Callable") and "|" not in text.split("]")[-1]:
                yield pytest.param(cls, name, parameter.name, id=f"{cls.__name__}.{name}-{parameter.name}")


@pytest.mark.parametrize(("cls", "name", "parameter"), [*functions_of(Flux), *functions_of(Mono)])
@pytest.mark.parametrize("wrong", [7, "text", None, [1]])
def test_a_function_that_is_none_raises_a_type_error_that_says_what_is_needed(
    cls: type, name: str, parameter: str, wrong: Any
) -> None:
    signature = inspect.signature(getattr(cls, name))
    static = "self" not in signature.parameters
    operator = getattr(cls if static else cls.just(1), name)
    arguments = {
        other.name: FILLING.get(other.name, lambda *_: None)
        for other in signature.parameters.values()
        if other.name != "self" and other.default is inspect.Parameter.empty
    }
    optional = signature.parameters[parameter].default is not inspect.Parameter.empty
    if optional and wrong is None:
        return
    arguments[parameter] = wrong
    with pytest.raises(TypeError) as caught:
        operator(**arguments)
    assert f"{name}()" in str(caught.value) or "needs" in str(caught.value)


def test_the_introspection_finds_the_operators() -> None:
    found = {case.values[1] for case in functions_of(Flux)}
    assert {"map", "filter", "flat_map", "handle", "take_while", "create", "defer", "using"} <= found


COUNTS: dict[str, Any] = {
    "take(-1)": lambda f: f.take(-1),
    "take_last(-1)": lambda f: f.take_last(-1),
    "skip(-1)": lambda f: f.skip(-1),
    "element_at(-1)": lambda f: f.element_at(-1),
    "buffer(0)": lambda f: f.buffer(0),
    "buffer(1, 0)": lambda f: f.buffer(1, 0),
    "limit_rate(0)": lambda f: f.limit_rate(0),
    "limit_rate(2, 3)": lambda f: f.limit_rate(2, 3),
    "limit_rate(2, 0)": lambda f: f.limit_rate(2, 0),
    "publish_on prefetch=0": lambda f: f.publish_on(schedulers.shared_pool(), prefetch=0),
    "flat_map concurrency=0": lambda f: f.flat_map(Flux.just, concurrency=0),
    "flat_map prefetch=0": lambda f: f.flat_map(Flux.just, prefetch=0),
    "flat_map_sequential prefetch=-1": lambda f: f.flat_map_sequential(Flux.just, prefetch=-1),
    "concat_map prefetch=0": lambda f: f.concat_map(Flux.just, prefetch=0),
    "map_async concurrency=0": lambda f: f.map_async(lambda x: x, concurrency=0),
    "merge prefetch=0": lambda f: Flux.merge(f, prefetch=0),
    "zip prefetch=0": lambda f: Flux.zip(f, prefetch=0),
    "retry(0)": lambda f: f.retry(0),
    "repeat(-1)": lambda f: f.repeat(-1),
    "cache(0)": lambda f: f.cache(0),
    "share prefetch=0": lambda f: f.share(prefetch=0),
    "on_backpressure_buffer(0)": lambda f: f.on_backpressure_buffer(0),
    "range(-1)": lambda f: Flux.range(-1),
    "range(0, -1)": lambda f: Flux.range(0, -1),
    "create capacity=0": lambda f: Flux.create(lambda e: None, capacity=0),
    "subscribe prefetch=0": lambda f: f.subscribe(print, prefetch=0),
    "to_iterable prefetch=0": lambda f: f.to_iterable(0),
    "to_async_iterable prefetch=0": lambda f: f.to_async_iterable(0),
    "multicast(0)": lambda f: Sinks.multicast(0),
    "unicast(-1)": lambda f: Sinks.unicast(-1),
    "replay(0)": lambda f: Sinks.replay(0),
    "processor capacity=0": lambda f: processor(capacity=0),
    "timeout(-1)": lambda f: f.timeout(-1),
    "timeout(nan)": lambda f: f.timeout(float("nan")),
    "delay_elements(-1)": lambda f: f.delay_elements(-1),
    "interval(-1)": lambda f: Flux.interval(-1),
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_number_out_of_range_raises_a_value_error_that_says_which_are_allowed(name: str) -> None:
    with pytest.raises(ValueError, match=r"needs|at least|<="):
        COUNTS[name](Flux.range(3))


@pytest.mark.parametrize("wrong", ["3", 2.5, None, True, [1]])
@pytest.mark.parametrize("name", ["take", "skip", "take_last", "buffer", "limit_rate", "element_at"])
def test_a_count_that_is_no_whole_number_raises_a_type_error(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match="whole number"):
        getattr(Flux.range(3), name)(wrong)


@pytest.mark.parametrize("wrong", ["pool", None, object()])
@pytest.mark.parametrize("name", ["publish_on", "subscribe_on"])
def test_what_is_no_scheduler_is_refused_by_name(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match="needs a scheduler, for example"):
        getattr(Flux.range(3), name)(wrong)


@pytest.mark.parametrize("wrong", [None, 3, "text", object()])
@pytest.mark.parametrize(
    "make",
    [
        Flux.concat,
        Flux.merge,
        Flux.zip,
        Flux.from_publisher,
        lambda x: Flux.just(1).switch_if_empty(x),
        lambda x: Flux.just(1).concat_with(x),
    ],
)
def test_what_is_no_stream_is_refused(make: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match="needs a publisher"):
        make(wrong)


@pytest.mark.parametrize("operator", ["flat_map", "concat_map", "flat_map_sequential"])
@pytest.mark.parametrize("wrong", [3, None, "text"])
def test_a_mapper_that_returns_no_stream_fails_the_stream_with_a_remedy(operator: str, wrong: Any) -> None:
    recorder = Recorder.of(getattr(Flux.just(1), operator)(lambda x: wrong), 1).wait()
    assert isinstance(recorder.error, TypeError)
    assert "use map()" in str(recorder.error)


@pytest.mark.parametrize("wrong", [3, "text", None])
def test_error_needs_an_exception(wrong: Any) -> None:
    with pytest.raises(TypeError, match="needs an exception"):
        Flux.error(wrong)


def test_a_function_for_error_that_makes_no_exception_fails_the_stream_with_a_type_error() -> None:
    recorder = Recorder.of(Flux.error(lambda: "text"), 1).wait()
    assert isinstance(recorder.error, TypeError)
