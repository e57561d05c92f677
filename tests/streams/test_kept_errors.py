"""An error that many readers get is the same for each: its traceback does not grow from one to the next."""

from __future__ import annotations

import asyncio
import concurrent.futures
import traceback
from typing import Any

import pytest

from penstock.streams import Flux, Mono, Sinks


def refused() -> Any:
    raise ConnectionError("refused")


def from_sink() -> Mono[Any]:
    sink: Any = Sinks.one()
    sink.try_error(OSError("gone"))
    return sink.mono()  # type: ignore[no-any-return]


def from_future() -> Mono[Any]:
    future: Any = concurrent.futures.Future()
    future.set_exception(OSError("gone"))
    return Mono.from_future(future)


KEPT = {
    "cache": lambda: Mono.from_callable(refused).cache(),
    "Flux.cache": lambda: Flux.just(1).map(lambda _: refused()).cache().collect_list(),
    "Sinks.one": from_sink,
    "error": lambda: Mono.error(OSError("gone")),
    "from_future": from_future,
    "cache, retry": lambda: Mono.from_callable(refused).cache().retry(2),
    "cache, publish": lambda: Mono.from_callable(refused).cache().flux().concat_with(Flux.just(1)).count(),
}


def length(error: BaseException) -> int:
    return len(traceback.extract_tb(error.__traceback__))


@pytest.mark.parametrize("make", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("way", ["block", "await", "for", "async for", "to_future"])
def test_the_traceback_is_as_long_for_the_last_reader_as_for_the_second(make: Any, way: str) -> None:
    mono = make()

    def read() -> int:
        try:
            if way == "block":
                mono.block(30)
            elif way == "to_future":
                mono.to_future().result(30)
            else:
                list(mono.flux())
        except OSError as error:
            return length(error)
        raise AssertionError("it does not fail")

    async def read_async() -> list[int]:
        lengths = []
        for _ in range(20):
            try:
                if way == "await":
                    await mono
                else:
                    async for _ in mono.flux():
                        pass
            except OSError as error:
                lengths.append(length(error))
        return lengths

    lengths = asyncio.run(read_async()) if "a" in way[:2] else [read() for _ in range(20)]
    assert len(lengths) == 20
    assert len(set(lengths[1:])) == 1


def test_the_place_where_it_was_raised_stays_in_the_traceback() -> None:
    cached = Mono.from_callable(refused).cache()
    for _ in range(3):
        with pytest.raises(ConnectionError) as raised:
            cached.block()
        assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "refused"
