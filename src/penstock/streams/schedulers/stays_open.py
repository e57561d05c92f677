"""Schedulers that nobody may close, because everybody uses them."""

from __future__ import annotations

from typing import Self

from penstock.streams.schedulers.scheduler import Scheduler


class SharedSchedulerError(RuntimeError):
    """Somebody tried to close a scheduler that the whole process shares."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"scheduler {name!r} is shared by the whole process and stays open; "
            "leave out close() and `with`, or make a scheduler of your own with pool(), single() or loop()"
        )
        self.name = name
        """Name of the scheduler that stays open."""

    def __reduce__(self) -> tuple[type[SharedSchedulerError], tuple[str]]:
        # The inherited way would build the copy from the whole message instead of the name.
        return type(self), (self.name,)


class StaysOpen(Scheduler):
    """Mixed into a shared scheduler: closing it would end streams its caller knows nothing of."""

    def close(self, timeout: float | None = None) -> None:
        """Refuse with `SharedSchedulerError`; the scheduler goes on."""
        raise SharedSchedulerError(self.name)

    def __enter__(self) -> Self:
        # Refused on the way in: on the way out the work would be done and the error a surprise.
        raise SharedSchedulerError(self.name)
