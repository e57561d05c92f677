"""What may be used where a stream is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any

import pytest

from penstock.streams import Flux, Mono
from penstock.streams.stream import as_stream
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


async def value() -> int:
    return 1


async def values() -> AsyncIterator[int]:
    yield 1


def settled_future() -> Future[int]:
    future: Future[int] = Future()
    future.set_result(1)
    return future


THINGS: dict[str, Any] = {
    "a flux": lambda: Flux.just(1),
    "a mono": lambda: Mono.just(1),
    "a list": lambda: [1],
    "a set": lambda: {1},
    "a generator": lambda: (n for n in [1]),
    "a range": lambda: range(1, 2),
    "a coroutine": value,
    "an asynchronous generator": values,
    "a future": settled_future,
}


@pytest.mark.parametrize("make", THINGS.values(), ids=THINGS)
def test_it_stands_for_a_stream(make: Any) -> None:
    assert Recorder.of(as_stream(make(), "test()"), first=9).wait().items == [1]
    assert Recorder.of(Flux.concat(Flux.just(0), make()), first=9).wait().items == [0, 1]


def test_a_task_stands_for_a_stream() -> None:
    async def main() -> None:
        task = asyncio.create_task(value())
        assert await Flux.just(5).flat_map(lambda _: task).collect_list() == [1]  # type: ignore[arg-type,return-value]

    asyncio.run(main())


def test_our_own_streams_are_not_wrapped() -> None:
    flux = Flux.just(1)

    assert as_stream(flux, "test()") is flux


def test_a_foreign_publisher_is_watched() -> None:
    source = Driven()
    recorder = Recorder.of(as_stream(source, "test()"), first=1)

    source.emit(1, 2)

    assert recorder.items == [1]
    assert "§1.1" in str(recorder.error)


@pytest.mark.parametrize("thing", ["word", b"bytes", bytearray(b"x"), {"a": 1}, 3, 2.5, object()])
def test_what_is_no_stream_is_refused_with_the_operators_name(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"test\(\) needs a publisher .* use just\(\)"):
        as_stream(thing, "test()")


def test_none_is_refused() -> None:
    with pytest.raises(TypeError, match=r"test\(\) needs a publisher"):
        as_stream(None, "test()")


@pytest.mark.parametrize(
    "combine",
    [
        lambda x: Flux.concat(x),
        lambda x: Flux.merge(x),
        lambda x: Flux.zip(x),
        lambda x: Flux.just(1).concat_with(x),
        lambda x: Flux.just(1).switch_if_empty(x),
        lambda x: Flux.just(1).timeout(1, x),
        lambda x: Flux.just(1).then_many(x),
    ],
)
def test_operators_refuse_it_where_they_are_written(combine: Any) -> None:
    with pytest.raises(TypeError, match="needs a publisher"):
        combine("word")
