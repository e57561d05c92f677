"""Whether two elements are the same, for elements of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def same(one: Any, other: Any) -> bool:
    """Tell whether two elements are the same object or equal.

    Identity comes first: some objects are not equal to themselves, and some (arrays, data frames) cannot say
    whether they are equal to anything.
    """
    if one is other:
        return True
    try:
        return bool(one == other)
    except BaseException:
        return False


def same_elements(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Tell whether two sequences have the same elements in the same order."""
    return len(some) == len(others) and all(map(same, some, others))
