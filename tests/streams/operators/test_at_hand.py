"""Inner streams over lists and ranges, whose elements are taken without a subscription."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux
from penstock.streams.events import listening
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder

STAGES: dict[str, Callable[..., Flux[Any]]] = {
    "flat_map": lambda *inners: Flux.range(len(inners)).flat_map(lambda i: inners[i]),
    "flat_map_sequential": lambda *inners: Flux.range(len(inners)).flat_map_sequential(lambda i: inners[i]),
    "concat_map": lambda *inners: Flux.range(len(inners)).concat_map(lambda i: inners[i]),
    "merge": lambda *inners: Flux.merge(*inners),
    "concat": lambda *inners: Flux.concat(*inners),
    "on_error_resume": lambda *inners: Flux.error(ValueError()).on_error_resume(
        lambda _: Flux.concat(*inners)
    ),
}


class Hasty(deque[Any]):
    """A queue whose elements are taken as soon as they are there, as if by another thread."""

    stage: Any = None

    def extend(self, elements: Any) -> None:
        super().extend(elements)
        self.stage.wake()


EACH = pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)


@EACH
def test_all_elements_come_whatever_the_inner_streams_are(stage: Callable[..., Flux[Any]]) -> None:
    inners = [
        Flux.range(1_000),
        Flux.just("a"),
        Flux.empty(),
        Flux.from_iterable([1] * 3000),
        Flux.just(*"xy"),
    ]

    recorder = Recorder.of(stage(*inners), UNBOUNDED)

    assert recorder.check().completed
    assert recorder.items == [*range(1_000), "a", *[1] * 3000, "x", "y"]


@EACH
def test_demand_is_exact_to_the_element(stage: Callable[..., Flux[Any]]) -> None:
    recorder = Recorder.of(stage(Flux.range(300), Flux.just(-1, -2)), first=0)
    for n in (1, 2, 7, 250, 30):
        recorder.request(n)
    assert len(recorder.check().items) == 290

    recorder.request(UNBOUNDED)

    assert recorder.check().completed
    assert sorted(recorder.items) == [-2, -1, *range(300)]


@EACH
def test_an_empty_inner_stream_needs_no_demand(stage: Callable[..., Flux[Any]]) -> None:
    assert Recorder.of(stage(Flux.empty(), Flux.from_iterable([]))).check().completed


@EACH
def test_the_last_element_brings_the_end_with_it(stage: Callable[..., Flux[Any]]) -> None:
    assert Recorder.of(stage(Flux.just(1), Flux.range(2)), first=3).check().completed


@EACH
def test_a_cancel_inside_on_next_is_the_last_of_it(stage: Callable[..., Flux[Any]]) -> None:
    recorder = Recorder(UNBOUNDED, lambda recorder, x: recorder.cancel() if x == 40 else None)
    stage(Flux.range(1_000), Flux.range(5)).subscribe(recorder)

    assert (recorder.check().items, recorder.terminated) == (list(range(41)), False)


@EACH
def test_none_in_a_list_is_an_error_that_names_its_source(stage: Callable[..., Flux[Any]]) -> None:
    recorder = Recorder.of(stage(Flux.just(1), Flux.from_iterable([2, None, 3])), UNBOUNDED)

    assert recorder.check().items == [1, 2]
    assert isinstance(recorder.error, TypeError)
    assert "from_iterable" in str(recorder.error)


@EACH
def test_a_list_that_grows_while_it_is_read_is_read_to_its_end(stage: Callable[..., Flux[Any]]) -> None:
    growing = [0, 1, 2]
    recorder = Recorder.of(stage(Flux.from_iterable(growing)), first=2)
    growing.append(3)

    recorder.request(UNBOUNDED)

    assert recorder.check().completed
    assert recorder.items in ([0, 1, 2], [0, 1, 2, 3]), "as with any list, but never more, and in order"


def test_a_request_inside_on_next_does_not_deepen_the_stack() -> None:
    for stage in STAGES.values():
        recorder = Recorder(1, lambda recorder, _: recorder.request(1))
        stage(Flux.range(3_000), Flux.range(10)).subscribe(recorder)

        assert recorder.check().completed
        assert (len(recorder.items), recorder.deepest) == (3_010, 1)


@pytest.mark.parametrize("name", ["flat_map", "concat_map", "concat"])
def test_a_listener_hears_of_each_inner_stream(name: str) -> None:
    class Counting:
        subscribed_to = 0

        def subscribed(self, stage: Any) -> None:
            self.subscribed_to += 1

        def requested(self, stage: Any, n: int) -> None: ...

        def emitted(self, stage: Any, n: int) -> None: ...

        def queued(self, stage: Any, n: int) -> None: ...

        def waited(self, stage: Any, seconds: float) -> None: ...

        def terminated(self, stage: Any, outcome: Any) -> None: ...

    counting = Counting()
    with listening(counting):
        Recorder.of(STAGES[name](Flux.just(1), Flux.just(2)), UNBOUNDED).check()

    assert counting.subscribed_to >= 3


@pytest.mark.parametrize("inner", [Flux.just(1), Flux.range(10**12), Flux.from_iterable([1] * 100)])
@pytest.mark.parametrize("how", ["flat_map", "concat_map", "repeat"])
def test_others_run_on_the_loop_of_an_endless_stream(how: str, inner: Flux[int]) -> None:
    streams = {
        "flat_map": Flux.range(10**12).flat_map(lambda _: inner),
        "concat_map": Flux.range(10**12).concat_map(lambda _: inner),
        "repeat": inner.repeat(),
    }

    async def main() -> None:
        async def count() -> None:
            await streams[how].count()

        task = asyncio.ensure_future(count())
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("prefetch", [1, 4, 32])
def test_a_list_that_another_thread_takes_while_it_is_handed_over_ends_once(prefetch: int) -> None:
    outer = Driven()
    flux = outer.flux().flat_map(lambda n: Flux.just(*range(n)), concurrency=1, prefetch=prefetch)
    recorder = Recorder.of(flux, UNBOUNDED)
    stage: Any = recorder.subscription
    stage._ready = ready = Hasty()
    ready.stage = stage

    outer.emit(30)

    assert recorder.check().items == list(range(30))
    assert outer.requests == [1, 1], "one at a time"
