"""Brings schedulers back to life in a forked child process.

`os.fork()` copies memory but only the thread that called it: in the child, worker threads are gone and a lock
held by one of them stays locked for ever. Whatever owns threads or locks registers here and is told.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Something that must start afresh in a forked child."""

    def renew_in_child(self) -> None:
        """Forget the parent's threads, replace every lock, and drop the work that the parent will do."""


_registered: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(owner: Renewable) -> None:
    """Have `owner.renew_in_child()` called in every forked child; `owner` is not kept alive by this."""
    _registered.add(owner)


def _renew_all() -> None:
    for owner in list(_registered):
        owner.renew_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_all)
