"""Streams that fail, or stay silent, from the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.spec import Subscriber
from penstock.streams.assembly import KeptError
from penstock.streams.segment import Op
from penstock.streams.source import Source
from penstock.streams.stages.relaying import PlainRelay

__all__ = ["FailedSource", "SilentSource"]


class FailedSource(Source):
    """``on_subscribe``, then ``on_error``, without waiting for demand (§1.9, §2.10)."""

    def __init__(self, error: BaseException | Callable[[], BaseException], label: str = "error") -> None:
        super().__init__(label, error)
        self._error = KeptError(error) if isinstance(error, BaseException) else error

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Fail."""
        stage = PlainRelay(ops, downstream, self.label, self.place)
        stage.introduce()
        if isinstance(self._error, KeptError):
            stage.on_error(self._error.give())
            return
        try:
            error = self._error()
        except BaseException as fault:
            error = fault
            stage._caught(fault)
        if not isinstance(error, BaseException):
            error = TypeError(f"the function of {self.label} must return an exception, not {error!r}")
        stage.on_error(error)


class SilentSource(Source):
    """``on_subscribe``, and nothing after it."""

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Say nothing."""
        PlainRelay(ops, downstream, self.label, self.place).introduce()
