"""``generate``: a state, and a step from each state to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from penstock.streams.segment.fragments import NOTHING

__all__ = ["GenerateSink", "generating"]

E = TypeVar("E")


class GenerateSink(Generic[E]):
    """What ``generate`` gives its function: say ``next(x)`` once in each step, or ``complete()``."""

    __slots__ = ("_completed", "_value")

    def __init__(self) -> None:
        self._value: Any = NOTHING
        self._completed = False

    def next(self, element: E) -> None:
        """The element of this step."""
        if self._value is not NOTHING:
            raise RuntimeError(
                "generate() emits one element in each step; for several use flat_map_iterable()"
            )
        self._value = element

    def complete(self) -> None:
        """No further step."""
        self._completed = True


def generating(state: Callable[[], Any], step: Callable[[Any, GenerateSink[Any]], Any]) -> Iterator[Any]:
    """The elements of all steps."""
    current = state()
    sink: GenerateSink[Any] = GenerateSink()
    while True:
        current = step(current, sink)
        value, sink._value = sink._value, NOTHING
        if value is not NOTHING:
            yield value
        if sink._completed:
            return
        if value is NOTHING:
            raise RuntimeError(
                "a step of generate() neither called next() nor complete(): it would run for ever"
            )
