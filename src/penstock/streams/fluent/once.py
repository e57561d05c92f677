"""The result of a function as an iterable that knows when it is at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CoroutineType
from typing import Any

__all__ = ["Once"]


class Once:
    """One call for each iteration. Knowing its end lets a Mono complete right after its element."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        return _OnceIterator(self._function)


class _OnceIterator:
    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        function, self._function = self._function, None
        if function is None:
            raise StopIteration
        try:
            result = function()
        except StopIteration as stop:
            # Left alone it would look like the end of the iteration.
            raise RuntimeError("the function raised StopIteration") from stop
        if result is None:
            raise StopIteration
        if type(result) is CoroutineType:
            result.close()
            raise TypeError(
                f"the function of from_callable() returned the coroutine {result.__name__}, which nobody "
                "would await; pass the async function itself, or use defer() to give it arguments"
            )
        return result

    def __length_hint__(self) -> int:
        return 0 if self._function is None else 1
