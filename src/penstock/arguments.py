"""Checks on the arguments that a user passes, made where the user passes them.

Every layer uses these. A check runs once, when something is put together, never for an element. ``subject``
is how the message begins: ``"take()"`` for the argument of a method, ``"prefetch"`` for an option.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from functools import partial
from math import inf, isfinite
from operator import index
from threading import TIMEOUT_MAX
from types import FunctionType
from typing import Any

__all__ = [
    "a_count",
    "a_flag",
    "a_function",
    "a_number",
    "a_value",
    "a_whole_number",
    "describe",
    "describe_all",
    "is_asynchronous",
    "patience",
    "seconds",
    "whole",
]

_INSTEAD = {
    "map()": "use map_async({name})",
    "map_not_none()": "use map_async({name})",
    "filter()": "await the answer in map_async(), and filter by it",
    "do_on_next()": "use map_async() with a function that awaits and then returns the element",
    "subscribe()": "read the stream with 'async for', or put map_async() above subscribe()",
    "flat_map_iterable()": "use concat_map({name})",
    "create()": "use from_async_iterable(), or a sink and 'await sink.emit(x)'",
    "generate()": "use from_async_iterable() with an async generator",
    "using()": "use from_async_iterable() with an async generator that opens, yields and closes",
    "transform()": "make it a plain function that returns the stream",
    "processor()": "make it a plain function that returns the stream",
}
_OTHERWISE = "await in map_async() above, and pass a plain function here"
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_NEVER_ITERATED = {
    "all()",
    "any()",
    "buffer_until()",
    "buffer_until_changed()",
    "buffer_while()",
    "collect()",
    "create()",
    "distinct()",
    "distinct_until_changed()",
    "do_finally()",
    "do_on_cancel()",
    "do_on_complete()",
    "do_on_each()",
    "do_on_error()",
    "do_on_next()",
    "do_on_request()",
    "do_on_subscribe()",
    "do_on_success()",
    "do_on_terminate()",
    "filter()",
    "group_by()",
    "handle()",
    "on_backpressure_buffer()",
    "on_backpressure_drop()",
    "on_backpressure_latest()",
    "partition()",
    "skip_while()",
    "subscribe()",
    "take_until()",
    "take_while()",
    "window_until()",
    "window_until_changed()",
    "window_while()",
}
"""Who takes what a function returns for an answer or a key, or throws it away, and never iterates over it."""
_NOT_YIELDED = {
    "create()": "use from_iterable({name}()), or call emitter.next(x) in place of 'yield x'",
    "handle()": "use flat_map_iterable({name}), or call sink.next(x) in place of 'yield x'",
}
_RETURNED = "take the 'yield' out of it, and return the answer if there is one"


def a_function(function: Callable[..., Any], subject: str, *, may_await: bool = False) -> Callable[..., Any]:
    """The function, or a TypeError.

    A coroutine function returns a coroutine instead of a result, so an operator that calls it would take the
    coroutine for the result: ``filter`` would let everything pass. Only operators that await the result, or
    convert it to a stream, set ``may_await``. In the same way a call of a generator function only makes a
    generator; it is refused where nobody would iterate over that.
    """
    yields = subject in _NEVER_ITERATED and is_generator_function(function)
    if type(function) is FunctionType and not yields and not is_asynchronous(function):  # what most are
        return function
    if not callable(function):
        raise TypeError(f"{subject} needs a function, not {describe(function)}; pass for example a lambda")
    if not may_await and is_asynchronous(function):
        name = describe(function)
        instead = _INSTEAD.get(subject, _OTHERWISE).format(name=name)
        raise TypeError(f"{subject} calls plain functions, and {name} is an async function; {instead}")
    if yields:
        name = describe(function)
        instead = _NOT_YIELDED.get(subject, _RETURNED).format(name=name)
        raise TypeError(
            f"{subject} calls plain functions, and {name} is a generator function, whose body would never "
            f"run; {instead}"
        )
    return function


def is_generator_function(function: Any) -> bool:
    """Whether a call of this function only returns a generator."""
    if type(function) is FunctionType:
        return bool(function.__code__.co_flags & inspect.CO_GENERATOR)
    if isinstance(function, partial):
        return is_generator_function(function.func)
    if isinstance(function, type):
        return False
    if not callable(function):
        return False
    return inspect.isgeneratorfunction(function if inspect.isroutine(function) else type(function).__call__)


def is_asynchronous(function: Any) -> bool:
    """Whether a call of this function returns a coroutine or an asynchronous generator."""
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
    """``n`` as an int if it is a whole number of any type, such as numpy's; otherwise None."""
    if type(n) is int:
        return n
    if isinstance(n, bool) or not hasattr(type(n), "__index__"):
        return None
    try:
        return index(n)
    except Exception:  # numpy's arrays have __index__, and refuse it for most of their values
        return None


def a_whole_number(n: Any, subject: str, *, least: int | None = None, most: int | None = None) -> int:
    """A whole number of any type as an int; TypeError if it is not one, ValueError out of range."""
    number = whole(n)
    if number is None:
        raise TypeError(f"{subject} needs a whole number, not {describe(n)}")
    if least is not None and most is not None and not least <= number <= most:
        raise ValueError(f"{subject} needs a whole number from {least} to {most}, not {number}")
    if least is not None and number < least:
        raise ValueError(f"{subject} needs a number of at least {least}, not {number}")
    if most is not None and number > most:
        raise ValueError(f"{subject} needs a number of at most {most}, not {number}")
    return number


def a_count(n: Any, subject: str, least: int = 1) -> int:
    """How many elements, records or bytes: a whole number of at least ``least``."""
    return a_whole_number(n, subject, least=least)


def a_number(
    value: Any,
    subject: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
) -> float:
    """A finite number of any type as a float; TypeError if it is not one, ValueError out of range."""
    if isinstance(value, bool | str | bytes | bytearray) or not _is_number(value):
        raise TypeError(f"{subject} needs a number, not {describe(value)}")
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{subject} needs a finite number, not {value!r}")
    if least is not None and number < least:
        raise ValueError(f"{subject} needs a number of at least {least}, not {value!r}")
    if above is not None and number <= above:
        raise ValueError(f"{subject} needs a number above {above}, not {value!r}")
    if most is not None and number > most:
        raise ValueError(f"{subject} needs a number of at most {most}, not {value!r}")
    return number


def seconds(duration: Any, subject: str, *, positive: bool = False) -> float:
    """A duration in seconds, from a number of any type or a timedelta; infinity means for ever."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(value, bool) or not _is_number(value):
        raise TypeError(f"{subject} needs seconds as a number or a timedelta, not {describe(duration)}")
    try:
        value = float(value)
    except OverflowError:  # an int with hundreds of digits
        value = inf if value > 0 else -inf
    if not value >= 0:
        raise ValueError(f"{subject} needs a duration of at least 0 seconds, not {duration!r}")
    if positive and not value:
        raise ValueError(f"{subject} needs a duration of more than 0 seconds, not {duration!r}")
    return value


def patience(timeout: Any, subject: str) -> float | None:
    """How long a thread waits: None for ever, and so for what is too long for a lock, above all infinity."""
    if timeout is None:
        return None
    value = seconds(timeout, subject)
    return value if value <= TIMEOUT_MAX else None


def a_flag(value: Any, subject: str) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if not isinstance(value, bool):
        raise TypeError(f"{subject} needs True or False, not {describe(value)}")
    return value


def a_value(value: Any, subject: str) -> Any:
    """An element: anything but None (§2.13)."""
    if value is None:
        raise TypeError(f"{subject}: None cannot be an element (§2.13); for an empty stream use empty()")
    return value


def _is_number(value: Any) -> bool:
    return hasattr(type(value), "__float__") or hasattr(type(value), "__index__")


# -------------------------------------------------------------------- arguments as a message shows them

FAR = 10**15
WIDTH = 24
"""How many characters of an argument are shown."""
MOST = 8
"""How many arguments are shown."""

_TEXTS = (str, bytes, bytearray)
_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    dict: ("{", "}"),
    frozenset: ("frozenset({", "})"),
    deque: ("deque([", "])"),
}
_SMALL = (int, float, complex, bool, type(None), range, timedelta, type(...))


def describe(argument: Any) -> str:
    """An argument as a reader would write it: ``parse`` rather than ``<function parse at …>``.

    This takes the same time however large the argument is: it looks at no more than it shows, and shows an
    object of a foreign class by its type, because the class's ``repr`` may do anything.
    """
    kind = type(argument)
    if kind is int and -FAR < argument < FAR:
        return repr(argument)
    if kind is not str and callable(argument):
        name = getattr(argument, "__name__", type(argument).__name__)
        return "λ" if name == "<lambda>" else str(name)
    text = _beginning(argument)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def describe_all(arguments: tuple[Any, ...]) -> str:
    """The arguments of a call, as they stand between its brackets."""
    shown = [describe(argument) for argument in arguments[:MOST]]
    return ", ".join(shown if len(arguments) <= MOST else [*shown, "…"])


def _beginning(value: Any) -> str:
    """At least the first ``WIDTH`` characters of ``repr(value)``."""
    kind = type(value)
    if kind in _TEXTS:
        return repr(value[:WIDTH])
    if kind in _BRACKETS:
        opening, closing = _BRACKETS[kind]
        comma = "," if kind is tuple and len(value) == 1 else ""
        return opening + _items(value, kind is dict) + comma + closing
    if kind is int and value.bit_length() > 128:
        return "<int>"  # writing it out takes long, and Python may refuse
    if kind in _SMALL or isinstance(value, Enum):
        return repr(value)
    if isinstance(value, BaseException):
        return f"{kind.__name__}({_items(value.args)})"
    return f"<{kind.__name__}>"


def _items(values: Any, pairs: bool = False) -> str:
    parts: list[str] = []
    length = 0
    for value in values:
        part = f"{_beginning(value)}: {_beginning(values[value])}" if pairs else _beginning(value)
        parts.append(part)
        length += len(part) + 2
        if length > WIDTH:
            break
    return ", ".join(parts)
