"""What guards and what they guard are called in messages."""

from __future__ import annotations


class Guard:
    """What all guards have in common: they can be recognised, and are shown as ``strict(…)``."""

    __slots__ = ("_guarded",)

    def __init__(self, guarded: object) -> None:
        self._guarded = name_of(guarded)

    def __repr__(self) -> str:
        return f"strict({self._guarded})"


def name_of(obj: object) -> str:
    """Return what to call an object in a message: a guard by what it guards, others by their type."""
    if isinstance(obj, Guard):
        return repr(obj)
    return obj.__name__ if isinstance(obj, type) else type(obj).__name__
