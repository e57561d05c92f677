"""Checks on what the user passes to an operator, made where the operator is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

__all__ = ["a_count", "a_function", "a_value", "seconds"]


def a_function(function: Any, operator: str) -> Callable[..., Any]:
    """The function that an operator applies, or a TypeError that names both."""
    if not callable(function):
        raise TypeError(f"{operator}() needs a function, not {function!r}; pass for example a lambda")
    return function  # type: ignore[no-any-return]


def a_count(n: Any, operator: str, least: int = 1) -> int:
    """A whole number of elements, or an error that says which numbers are allowed."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"{operator}() needs a whole number, not {n!r}")
    if n < least:
        raise ValueError(f"{operator}() needs a number of at least {least}, not {n}")
    return n


def a_value(value: Any, operator: str) -> Any:
    """An element: anything but None (§2.13)."""
    if value is None:
        raise TypeError(f"{operator}(None): None is no element (§2.13); for an empty stream use empty()")
    return value


def seconds(duration: Any, operator: str) -> float:
    """A duration as seconds: a number or a timedelta."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{operator}() needs seconds as a number or a timedelta, not {duration!r}")
    if not value >= 0:
        raise ValueError(f"{operator}() needs a duration of at least 0 seconds, not {duration!r}")
    return float(value)
