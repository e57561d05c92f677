"""Sources of random chains: some elements, and then an error or the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pyarrow

from penstock.streams import Emitter, Flux, Mono
from penstock.testing import marble
from tests.streams.chains.lists import Elements
from tests.streams.chains.runs import Failed


def ending(flux: Flux[Any], failed: bool) -> Flux[Any]:
    """The same, with the error at its end."""
    return flux.concat_with(Flux.error(Failed)) if failed else flux


def pushed(xs: Elements, failed: bool) -> Flux[Any]:
    """Elements that come when they like, some together."""
    names = {chr(0x4E00 + number): x for number, x in enumerate(xs)}
    line = "".join(f"({name})" if number % 3 else f"-{name}" for number, name in enumerate(names))
    return marble(f"{line}{'#' if failed else '|'}", {**names, "#": Failed})


def yielded(xs: Elements, failed: bool) -> Flux[Any]:
    class Yielding:
        def __iter__(self) -> Iterator[Any]:
            yield from xs
            if failed:
                raise Failed

    return Flux.from_iterable(Yielding())


def yielded_async(xs: Elements, failed: bool) -> Flux[Any]:
    async def numbers() -> AsyncIterator[Any]:
        for x in xs:
            yield x
        if failed:
            raise Failed

    return Flux.from_async_iterable(numbers)


def created(xs: Elements, failed: bool) -> Flux[Any]:
    def emit(emitter: Emitter[Any]) -> None:
        for x in xs:
            emitter.next(x)
        if failed:
            emitter.error(Failed())
        else:
            emitter.complete()

    return Flux.create(emit)


def generated(xs: Elements, failed: bool) -> Flux[Any]:
    def step(number: int, sink: Any) -> int:
        if number < len(xs):
            sink.next(xs[number])
        elif failed:
            raise Failed
        else:
            sink.complete()
        return number + 1

    return Flux.generate(int, step)


def ranged(xs: Elements, failed: bool) -> Flux[Any]:
    return ending(Flux.range(len(xs)).map(xs.__getitem__), failed)


def held(xs: Elements, failed: bool) -> Flux[Any]:
    return Flux.using(lambda: xs, lambda held: ending(Flux.just(*held), failed), id)


def held_in_time(xs: Elements, failed: bool) -> Flux[Any]:
    return Flux.using_when(Mono.timer(0.01), lambda _: yielded(xs, failed), lambda _: Mono.empty())


class Foreign:
    """A publisher of another library, for all that our operators know."""

    def __init__(self, flux: Flux[Any]) -> None:
        self._flux = flux

    def subscribe(self, subscriber: Any, /) -> None:
        self._flux.subscribe(subscriber)


def tabled(xs: Elements, failed: bool) -> Flux[Any]:
    table = pyarrow.table({"x": pyarrow.array(xs, "int64")})
    return ending(Flux.from_arrow(table).unbatch().map(lambda row: row["x"]), failed)


SOURCES: dict[str, Callable[[Elements, bool], Flux[Any]]] = {
    "list": lambda xs, failed: ending(Flux.from_iterable(xs), failed),
    "in time": pushed,
    "from_iterable": yielded,
    "from_async_iterable": yielded_async,
    "create": created,
    "generate": generated,
    "range": ranged,
    "using": held,
    "using_when": held_in_time,
    "defer": lambda xs, failed: Flux.defer(lambda: yielded(xs, failed)),
    "from_publisher": lambda xs, failed: Flux.from_publisher(Foreign(pushed(xs, failed))),
    "from_arrow": tabled,
    "empty": lambda xs, failed: Flux.empty().concat_with(yielded(xs, failed)),
    "never": lambda xs, failed: Flux.never().timeout(0.01, yielded(xs, failed)),
}
