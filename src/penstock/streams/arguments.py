"""Checks on what the user passes to an operator, made where the operator is written.

All of them are made once, when a stream is put together, and none for an element.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from operator import index
from types import FunctionType
from typing import Any

from penstock.streams.assembly import describe

__all__ = ["a_count", "a_function", "a_value", "a_whole_number", "is_asynchronous", "seconds", "whole"]

_INSTEAD = {
    "map": "use map_async({name})",
    "map_not_none": "use map_async({name})",
    "filter": "await the answer in map_async(), and filter by it",
    "do_on_next": "use map_async() with a function that awaits and then returns the element",
    "subscribe": "read the stream with 'async for', or put map_async() above subscribe()",
    "flat_map_iterable": "use concat_map({name})",
    "create": "use from_async_iterable(), or a sink and 'await sink.emit(x)'",
    "generate": "use from_async_iterable() with an async generator",
    "using": "use from_async_iterable() with an async generator that opens, yields and closes",
    "transform": "make it a plain function that returns the stream",
    "processor": "make it a plain function that returns the stream",
}
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_OTHERWISE = "await in map_async() above, and pass a plain function here"


def a_function(function: Any, operator: str, *, may_await: bool = False) -> Callable[..., Any]:
    """The function that an operator applies, or a TypeError that names both.

    A coroutine function returns a coroutine and not a result, so an operator that calls it would take the
    coroutine for the result: ``filter`` would let everything pass. Only operators that await, or make a
    stream of whatever they get, may be given one.
    """
    if not callable(function):
        raise TypeError(f"{operator}() needs a function, not {describe(function)}; pass for example a lambda")
    if not may_await and is_asynchronous(function):
        name = describe(function)
        instead = _INSTEAD.get(operator, _OTHERWISE).format(name=name)
        raise TypeError(f"{operator}() calls plain functions, and {name} is an async function; {instead}")
    return function  # type: ignore[no-any-return]


def is_asynchronous(function: Any) -> bool:
    """Whether calling this gives a coroutine or an asynchronous generator."""
    if type(function) is FunctionType:
        return bool(function.__code__.co_flags & _ASYNC) or hasattr(function, "_is_coroutine_mark")
    if isinstance(function, partial):
        return is_asynchronous(function.func)
    if isinstance(function, type):
        return False
    # A method, or an object that can be called.
    called = function if inspect.isroutine(function) else type(function).__call__
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


def whole(n: Any) -> int | None:
    """``n`` as an int, if it is a whole number of any type (as numpy has them); otherwise None."""
    if type(n) is int:
        return n
    if isinstance(n, bool) or not hasattr(type(n), "__index__"):
        return None
    try:
        return index(n)
    except Exception:  # the type may have numbers and others, as numpy's arrays
        return None


def a_whole_number(n: Any, operator: str) -> int:
    """A whole number of any type as an int, or a TypeError."""
    number = whole(n)
    if number is None:
        raise TypeError(f"{operator}() needs a whole number, not {describe(n)}")
    return number


def a_count(n: Any, operator: str, least: int = 1) -> int:
    """A whole number of elements, or an error that says which numbers are allowed."""
    number = a_whole_number(n, operator)
    if number < least:
        raise ValueError(f"{operator}() needs a number of at least {least}, not {number}")
    return number


def a_value(value: Any, operator: str) -> Any:
    """An element: anything but None (§2.13)."""
    if value is None:
        raise TypeError(f"{operator}(None): None is no element (§2.13); for an empty stream use empty()")
    return value


def seconds(duration: Any, operator: str) -> float:
    """A duration as seconds: a number of any type or a timedelta."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    number = hasattr(type(value), "__float__") or hasattr(type(value), "__index__")
    if isinstance(value, bool) or not number:
        raise TypeError(f"{operator}() needs seconds as a number or a timedelta, not {describe(duration)}")
    value = float(value)
    if not value >= 0:
        raise ValueError(f"{operator}() needs a duration of at least 0 seconds, not {duration!r}")
    return value
