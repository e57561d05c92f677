"""Which core a process runs on: the server has one, the load generator another.

What is started inside :func:`placed` inherits the core, and real-time scheduling where that is permitted, so
that whatever else the machine does disturbs it less. Where there is one core only, or no way to choose, the
processes run wherever the system puts them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum

__all__ = ["Role", "placed"]

PRIORITY = 5
"""Among real-time processes: above nothing that the system itself needs."""


class Role(Enum):
    """What a process is in a measurement."""

    SERVER = 0
    CLIENT = -1

    def cores(self) -> set[int]:
        """The first core that we may use, or the last."""
        usable = sorted(os.sched_getaffinity(0))
        return {usable[self.value]} if len(usable) > 1 else set(usable)


@contextmanager
def placed(role: Role) -> Iterator[None]:
    """Start processes inside, from this thread, to have them where they belong."""
    everywhere = os.sched_getaffinity(0)
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setaffinity(0, role.cores())
    try:
        _hurry()
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)
        os.sched_setaffinity(0, everywhere)


def _hurry() -> None:
    # Without the permission the figures scatter more; the ratios still hold.
    with suppress(PermissionError):
        # In turns, not first come first served: the threads of a JVM share the core.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
