"""Elements and exceptions on their way to Java and back."""

from __future__ import annotations

from typing import Any

from penstock.interop.jvm.machine import implements, is_java, java_bytes, java_class, java_method

__all__ = ["PythonObject", "java_element", "java_error", "null_pointer", "python_element"]


_SMALLEST_LONG, _LARGEST_LONG = -(2**63), 2**63 - 1
_TAKEN_AS_THEY_ARE = frozenset({str, float, bool, type(None)})


@implements("java.lang.Comparable")
class PythonObject:
    """A Python object that Java has no counterpart for, as Java sees it.

    It is equal to another, hashed, ordered and printed as Python would. As an element of a stream it becomes
    the Python object again by itself; inside a Java collection it is ``.python``.
    """

    def __init__(self, python: Any) -> None:
        """Stand for ``python``."""
        self.python = python

    @java_method
    def equals(self, other: Any) -> bool:
        """``==``."""
        return isinstance(other, PythonObject) and bool(self.python == other.python)

    @java_method
    def hashCode(self) -> int:
        """``hash``, as far as it fits into a Java ``int``; what Python cannot hash is all alike to Java."""
        try:
            return (hash(self.python) + 2**31) % 2**32 - 2**31
        except TypeError:
            return 0

    @java_method
    def compareTo(self, other: Any) -> int:
        """``<`` and ``>``."""
        mine, others = self.python, other.python
        return int(mine > others) - int(mine < others)

    @java_method
    def toString(self) -> str:
        """``str``."""
        return str(self.python)


def java_element(element: Any) -> Any:
    """What JPype can hand over for ``element``: nothing is refused, and nothing is changed in silence.

    By itself JPype would read ``bytes`` as a text and refuse most other objects, in the middle of a stream.
    """
    kind = type(element)
    if kind is int:
        if _SMALLEST_LONG <= element <= _LARGEST_LONG:
            return element
        return java_class("java.math.BigInteger")(str(element))
    if kind in _TAKEN_AS_THEY_ARE or is_java(element):
        return element
    if kind is bytes or kind is bytearray:
        return java_bytes(element)
    return PythonObject(element)


def python_element(element: Any) -> Any:
    """What ``element``, which came from Java, is in Python: itself, or the object that it stands for."""
    return element.python if type(element) is PythonObject else element


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
