"""Elements on their way to Java."""

from __future__ import annotations

from typing import Any

from penstock.interop.jvm.machine import is_java, java_bytes, java_class, opaque

__all__ = ["java_element"]

_SMALLEST_LONG, _LARGEST_LONG = -(2**63), 2**63 - 1
_TAKEN_AS_THEY_ARE = frozenset({str, float, bool, type(None)})


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
    return opaque(element)
