"""Exceptions, as the other side expects them."""

from __future__ import annotations

from typing import Any

from penstock.interop.jvm.machine import java_class

__all__ = ["java_error", "null_pointer"]

# The first that fits is taken. TimeoutError comes before its base OSError.
_COUNTERPARTS: tuple[tuple[type[BaseException], str], ...] = (
    (ValueError, "java.lang.IllegalArgumentException"),
    (TimeoutError, "java.util.concurrent.TimeoutException"),
    (OSError, "java.io.IOException"),
    (BaseException, "java.lang.RuntimeException"),
)


def java_error(error: BaseException) -> Any:
    """The ``Throwable`` that stands for ``error`` in Java.

    One that came from Java is the same object again. A ``ValueError`` is an ``IllegalArgumentException``, as
    §3.9 wants it; a ``TimeoutError`` a ``TimeoutException``; another ``OSError`` an ``IOException``; and the
    rest is a ``RuntimeException``. The message names the Python type and keeps the exception's notes.
    """
    # Asked first: JPype makes Java's NullPointerException a ValueError, and it must not change its type here.
    if isinstance(error, java_class("java.lang.Throwable")):
        return error
    lines = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
    name = next(java for python, java in _COUNTERPARTS if isinstance(error, python))
    return java_class(name)("\n".join(lines))


def null_pointer(error: TypeError) -> BaseException:
    """A ``NullPointerException`` for ``error``, to be raised into Java.

    Made by Java: one that is made in Python has no counterpart there (JPype derives it from ``ValueError``)
    and would arrive as some other exception.
    """
    try:
        java_class("java.util.Objects").requireNonNull(None, str(error))
    except java_class("java.lang.NullPointerException") as made:
        fresh: BaseException = made
        return fresh.with_traceback(None)
    raise AssertionError("requireNonNull accepted null")
