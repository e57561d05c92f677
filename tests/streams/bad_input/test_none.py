"""None is no element (§2.13): wherever it is put in, the message says where, and what to do instead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.spec import UNBOUNDED, NoneViolation
from penstock.streams import Flux, Mono, Sinks
from tests.streams.recording import Recorder


@pytest.mark.parametrize(
    "make",
    [
        lambda: Flux.just(None),
        lambda: Flux.just(1, None),
        lambda: Mono.just(None),
        lambda: Flux.just(1).start_with(None),
        lambda: Flux.just(1).default_if_empty(None),
        lambda: Mono.just(1).then_return(None),
        lambda: Flux.just(1).on_error_return(None),
        lambda: Sinks.multicast().try_emit(None),
        lambda: Sinks.unicast().try_emit(None),
        lambda: Sinks.replay(1).try_emit(None),
        lambda: Sinks.one().try_value(None),
        lambda: Sinks.multicast().emit_blocking(None),
    ],
)
def test_none_as_a_value_raises_at_the_caller(make: Any) -> None:
    with pytest.raises(TypeError, match=r"§2\.13"):
        make()


async def one_none() -> AsyncIterator[Any]:
    yield 1
    yield None


async def nothing(x: Any) -> None: ...


STREAMS: dict[str, Any] = {
    "a mapper": lambda: Flux.range(3).map(lambda x: None),
    "a mapper below another segment": lambda: Flux.range(3).buffer(1).map(lambda x: None),
    "a source iterable": lambda: Flux.from_iterable([None, 1]),
    "a generator": lambda: Flux.from_iterable(x for x in (None, 1)),
    "a source under operators": lambda: Flux.from_iterable([None]).filter(lambda x: True),
    "a source under a buffer": lambda: Flux.from_iterable([None]).buffer(2),
    "a source under a fold": lambda: Flux.from_iterable([None]).collect_list(),
    "a source under index": lambda: Flux.from_iterable([None]).index(),
    "a source under take": lambda: Flux.from_iterable([None]).take(1),
    "a source under sort": lambda: Flux.from_iterable([None]).sort(),
    "flat_map_iterable": lambda: Flux.just(1).flat_map_iterable(lambda x: [None]),
    "scan": lambda: Flux.range(3).scan(lambda a, b: None),
    "scan_with": lambda: Flux.range(3).scan_with(lambda: None, lambda a, b: a),
    "handle": lambda: Flux.range(3).handle(lambda x, sink: sink.next(None)),
    "generate": lambda: Flux.generate(lambda: 0, lambda state, sink: sink.next(None)),
    "reduce": lambda: Flux.range(3).reduce(lambda a, b: None),
    "reduce_with": lambda: Flux.range(3).reduce_with(lambda: None, lambda a, b: None),
    "collect": lambda: Flux.range(3).collect(lambda: None, lambda a, b: None),
    "zip": lambda: Flux.zip(Flux.just(1), Flux.just(2), combinator=lambda a, b: None),
    "an inner stream": lambda: Flux.just(1).flat_map(lambda x: Flux.from_iterable([None])),
    "concat_map": lambda: Flux.just(1).concat_map(lambda x: Flux.from_iterable([None])),
    "map_async": lambda: Flux.just(1).map_async(nothing),
    "from_async_iterable": lambda: Flux.from_async_iterable(one_none),
}


@pytest.mark.parametrize("where", STREAMS)
def test_none_inside_a_stream_is_signalled_with_its_rule(where: str) -> None:
    recorder = Recorder.of(STREAMS[where](), UNBOUNDED).wait()
    assert isinstance(recorder.error, NoneViolation), recorder.items
    assert recorder.error.rule == "2.13"
    assert "leave the element out" in str(recorder.error)
    assert None not in recorder.items


def test_the_message_names_the_operator_that_made_the_none() -> None:
    def forgets(x: int) -> None: ...

    recorder = Recorder.of(Flux.range(3).map(str).map(forgets).filter(bool), UNBOUNDED)
    assert "map(forgets)" in str(recorder.error)


def test_none_out_of_an_emitter_raises_at_the_caller() -> None:
    caught: list[BaseException] = []

    def emit(emitter: Any) -> None:
        for call in (emitter.next, emitter.error):
            with pytest.raises(TypeError, match=r"§2\.13") as info:
                call(None)
            caught.append(info.value)
        emitter.complete()

    Recorder.of(Flux.create(emit), 1).wait()
    assert len(caught) == 2


@pytest.mark.parametrize("sink", [Sinks.multicast(), Sinks.unicast(), Sinks.replay(1), Sinks.one()])
def test_none_as_an_error_raises_at_the_caller(sink: Any) -> None:
    with pytest.raises(TypeError, match=r"§2\.13"):
        sink.try_error(None)


def test_where_none_means_nothing_it_is_left_out() -> None:
    assert Flux.range(4).map_not_none(lambda x: x if x % 2 else None).collect_list().block() == [1, 3]
    assert Mono.from_callable(lambda: None).block() is None
    assert Mono.just_or_empty(None).block() is None
