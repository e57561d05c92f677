"""Names for connections in the log: eight characters, and no two the same in one process."""

from __future__ import annotations

import os
from itertools import count

__all__ = ["new_id"]

_SPREAD = 0x9E3779B1
"""An odd number: multiplied by it, neighbours look different and all 2^32 stay distinct."""


def _begin() -> None:
    global _numbers
    _numbers = count(int.from_bytes(os.urandom(4), "big"))


_numbers: count[int]
_begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)  # workers of one server often write to one log


def new_id() -> str:
    """The next one; may be called on any thread."""
    return f"{next(_numbers) * _SPREAD & 0xFFFFFFFF:08x}"
