"""A Flux that several subscribers share, and that starts when it is told to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.arguments import a_count, seconds
from penstock.streams.flux import Flux
from penstock.streams.fusion import Op
from penstock.streams.operators.connectable import (
    AutoConnectSource,
    Broadcast,
    ConnectSource,
    RefCountSource,
    SharedRun,
)
from penstock.streams.schedulers import Scheduler
from penstock.streams.source import Source
from penstock.streams.stream import T

__all__ = ["ConnectableFlux"]


class ConnectableFlux(Flux[T]):
    """A Flux with one run for all of its subscribers. Made by ``publish()`` and ``replay()``.

    >>> numbers = Flux.range(3).publish()
    >>> a, b = [], []
    >>> running = numbers.subscribe(a.append), numbers.subscribe(b.append)
    >>> a
    []
    >>> run = numbers.connect()
    >>> a, b
    ([0, 1, 2], [0, 1, 2])
    """

    __slots__ = ("_broadcast",)
    _broadcast: Broadcast

    @classmethod
    def _over(cls, label: str, broadcast: Broadcast, *shows: Any) -> ConnectableFlux[Any]:
        flux = cls.__new__(cls)
        flux._source = ConnectSource(label, broadcast, *shows)
        flux._ops = ()
        flux._broadcast = broadcast
        return flux

    @classmethod
    def _of(cls, source: Source, ops: tuple[Op, ...] = ()) -> Any:
        """With an operator below it, it is a plain Flux: there is nothing to connect any more."""
        return Flux._of(source, ops)

    def _with(self, op: Op) -> Any:
        return Flux._of(self._source, (*self._ops, op))

    def connect(self) -> SharedRun:
        """Start the source for all subscribers, those that are there and those that come.

        If it runs already, this returns the present run. After its end it starts a new one.
        """
        return self._broadcast.connect()

    def auto_connect(self, subscribers: int = 1) -> Flux[T]:
        """A Flux that connects when it has had so many subscribers; 0 connects at once.

        It runs once, and is not cancelled when all subscribers have left. Later subscribers receive what is
        kept, and the end.

        >>> numbers = Flux.range(3).publish().auto_connect(2)
        >>> a, b = [], []
        >>> first = numbers.subscribe(a.append)
        >>> a
        []
        >>> second = numbers.subscribe(b.append)
        >>> a, b
        ([0, 1, 2], [0, 1, 2])
        """
        n = a_count(subscribers, "auto_connect()", least=0)
        if not n:
            self._broadcast.connect()
        return Flux._of(AutoConnectSource("auto_connect", self._broadcast, n, n))

    def ref_count(
        self, subscribers: int = 1, grace: float | timedelta = 0.0, scheduler: Scheduler | None = None
    ) -> Flux[T]:
        """A Flux that connects while it has subscribers.

        It connects when there are ``subscribers`` of them at the same time. When the last one has left, and
        none has come for ``grace`` seconds, the source is cancelled; the next subscribers start it anew.

        >>> Flux.range(3).publish().ref_count().collect_list().block()
        [0, 1, 2]
        """
        n = a_count(subscribers, "ref_count()")
        patience = seconds(grace, "ref_count(grace=…)")
        return Flux._of(RefCountSource(self._broadcast, n, patience, scheduler))
