"""A run, which is a list with an end, and a step, which is an operator on streams and on runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.streams import Flux
from tests.streams.chains.lists import Elements, weight

LONG = 100.0
"""Seconds of virtual time, in which every chain here comes to its end."""


class Failed(Exception):
    """What a source or a function fails with."""


class Run(NamedTuple):
    """What a stream does: its elements, and whether it fails after them."""

    elements: Elements
    failed: bool = False

    def each(self, change: Callable[[Elements], Elements]) -> Run:
        """Elements change one by one; an error stays."""
        return Run(change(self.elements), self.failed)

    def fold(self, change: Callable[[Elements], Elements]) -> Run:
        """The result comes at the end; an error comes instead of it."""
        return Run([], True) if self.failed else Run(change(self.elements))

    def upto(self, change: Callable[[Elements], tuple[Elements, bool]]) -> Run:
        """A part of the elements; if that ends the stream, the error never comes."""
        kept, ended = change(self.elements)
        return Run(kept, self.failed and not ended)

    def then(self, following: Callable[[], Elements]) -> Run:
        """More elements after the end, unless that is an error."""
        return self if self.failed else Run([*self.elements, *following()])

    def recovered(self, following: Elements) -> Run:
        """Elements instead of the error."""
        return Run([*self.elements, *following]) if self.failed else self


def same(run: Run) -> Run:
    return run


class Step(NamedTuple):
    """An operator, twice: as we have it and on a run."""

    text: str
    on_stream: Callable[[Any], Any]
    on_run: Callable[[Run], Run] = same
    error_goes_first: bool = False
    """An error overtakes elements here (decision 0006), so a list does not predict what an error leaves."""
    outlives: bool = False
    """It goes on when its subscribers have left, and so do the timers above it."""

    def __repr__(self) -> str:
        return self.text


def each(text: str, on_stream: Callable[[Any], Any], change: Callable[[Elements], Elements]) -> Step:
    """A step that changes elements and leaves the end as it is."""
    return Step(text, on_stream, lambda run: run.each(change))


def fold(text: str, on_stream: Callable[[Any], Any], change: Callable[[Elements], Elements]) -> Step:
    """A step whose elements come when the source has completed."""
    return Step(text, on_stream, lambda run: run.fold(change))


def first_error(step: Step) -> Step:
    """The same step, if an error overtakes elements in it."""
    return step._replace(error_goes_first=True)


class Functions(NamedTuple):
    """Functions for operators, with two small random numbers in them."""

    n: int
    m: int

    def matches(self, x: Any) -> bool:
        return weight(x) % (self.m + 1) == self.n % (self.m + 1)

    def below(self, x: Any) -> bool:
        return weight(x) < self.n * 5

    def key(self, x: Any) -> int:
        return weight(x) % self.m

    def changed(self, x: Any) -> int:
        return weight(x) + self.m

    def halved(self, x: Any) -> int | None:
        return None if self.matches(x) else weight(x) // 2

    def add(self, total: Any, x: Any) -> int:
        return weight(total) + weight(x)

    def parts(self, x: Any) -> Elements:
        return [weight(x) + i for i in range(weight(x) % 3)]

    def flattened(self, xs: Elements) -> Elements:
        return [y for x in xs for y in self.parts(x)]

    def smaller(self, x: Any) -> Elements:
        """What an element of a forest leads to; it ends, since these weigh less."""
        return [weight(x) // 3, weight(x) // 4] if weight(x) > 3 else []

    def in_time(self, x: Any) -> Flux[Any]:
        return Flux.from_iterable(self.parts(x)).delay_elements(0.01)

    def fails(self, x: Any) -> Any:
        if weight(x) % 7 == self.n:
            raise Failed
        return x

    def until_it_fails(self, run: Run) -> Run:
        for number, x in enumerate(run.elements):
            if weight(x) % 7 == self.n:
                return Run(run.elements[:number], True)
        return run

    async def awaited(self, x: Any) -> int:
        await asyncio.sleep(0.01 * (weight(x) % self.m))
        return self.changed(x)

    async def awaited_later(self, x: Any) -> Any:
        await asyncio.sleep(0.01)
        return x
