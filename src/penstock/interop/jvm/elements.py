"""Elements on their way to Java and back."""

from __future__ import annotations

from typing import Any

from penstock.interop.jvm.machine import implements, is_java, java_bytes, java_class, java_method

__all__ = ["PythonObject", "java_element", "python_element"]

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
