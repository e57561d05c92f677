"""Event loops that have stayed in the parent process at a fork: a child must not wait for what happens there.

The child has a copy of such a loop, which looks as if it ran. Calls to it would never be made.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import AbstractEventLoop
from asyncio.events import _get_running_loop as running_loop_or_none
from typing import Any
from weakref import WeakSet

__all__ = ["is_of_parent", "know"]

_known: WeakSet[Any] = WeakSet()
"""The loops that sockets are on."""
_of_parent: WeakSet[Any] = WeakSet()
_here: AbstractEventLoop | None = None
"""The loop of the thread that forks: that thread is there in the child, too."""


def know(loop: object) -> None:
    """There is a socket on this loop."""
    _known.add(loop)


def is_of_parent(loop: object) -> bool:
    """Whether a thread of the parent process runs this loop."""
    return bool(_of_parent) and loop in _of_parent


def _before() -> None:
    global _here
    _here = running_loop_or_none()


def _in_child() -> None:
    for loop in list(_known):
        if loop is not _here and isinstance(loop, asyncio.AbstractEventLoop) and loop.is_running():
            _of_parent.add(loop)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(before=_before, after_in_child=_in_child)
