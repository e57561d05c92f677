"""Flux: a stream of any number of elements."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from penstock.streams.api.boundaries import FluxBoundaries, FluxSharing, FluxTiming
from penstock.streams.api.collection import FluxCollection
from penstock.streams.api.columns import FluxColumns
from penstock.streams.api.combination import FluxCombination
from penstock.streams.api.connections import FluxConnections
from penstock.streams.api.creation import FluxCreation
from penstock.streams.api.delayed_errors import FluxDelayedErrors
from penstock.streams.api.failures import FluxFailures
from penstock.streams.api.filters import FluxFilters
from penstock.streams.api.flat_map import FluxFlatMap
from penstock.streams.api.groups import FluxGroups
from penstock.streams.api.hooks import FluxHooks
from penstock.streams.api.latest import FluxLatest
from penstock.streams.api.order import FluxOrder
from penstock.streams.api.parallel import FluxParallel
from penstock.streams.api.queues import FluxQueues
from penstock.streams.api.recovery import FluxRecovery
from penstock.streams.api.terminal import FluxTerminal
from penstock.streams.api.time import FluxTime
from penstock.streams.api.transforms import FluxLists, FluxTransforms
from penstock.streams.api.triggers import FluxTriggers
from penstock.streams.api.windows import FluxWindows
from penstock.streams.api.zips import FluxZips
from penstock.streams.fusion import Op
from penstock.streams.source import Source
from penstock.streams.stream import T

__all__ = ["Flux", "GroupedFlux"]

K = TypeVar("K")


class Flux(
    FluxCreation[T],
    FluxTransforms[T],
    FluxFilters[T],
    FluxFlatMap[T],
    FluxTriggers[T],
    FluxCombination[T],
    FluxZips[T],
    FluxOrder[T],
    FluxLists[T],
    FluxWindows[T],
    FluxGroups[T],
    FluxParallel[T],
    FluxColumns[T],
    FluxCollection[T],
    FluxRecovery[T],
    FluxDelayedErrors[T],
    FluxFailures[T],
    FluxTiming[T],
    FluxLatest[T],
    FluxTime[T],
    FluxBoundaries[T],
    FluxSharing[T],
    FluxQueues[T],
    FluxConnections[T],
    FluxHooks[T],
    FluxTerminal[T],
):
    """A Publisher of any number of elements.

    Build one from a source and operators. Nothing happens before you subscribe, iterate or wait, and each
    time the stream runs anew::

        parsed = Flux.from_iterable(lines).map(parse).filter(valid)

        for record in parsed: ...              # a plain loop
        async for record in parsed: ...        # on an event loop
        parsed.subscribe(print)                # callbacks
        parsed.subscribe(subscriber)           # any Reactive Streams Subscriber

    A Flux is immutable: every operator returns a new one.
    """

    __slots__ = ()


class GroupedFlux(Flux[T], Generic[K, T]):
    """The elements of one key, as :meth:`Flux.group_by` sends them. It can be read once."""

    __slots__ = ("key",)
    key: K
    """What all elements of this group have in common."""

    @classmethod
    def opened(cls, key: K, source: Source) -> GroupedFlux[K, T]:
        """A group that ``group_by`` has opened."""
        group = cls.__new__(cls)
        group._source = source
        group._ops = ()
        group.key = key
        return group

    @classmethod
    def _of(cls, source: Source, ops: tuple[Op, ...] = ()) -> Any:
        """What an operator makes of a group has no key any more."""
        return Flux._of(source, ops)

    def _with(self, op: Op) -> Any:
        return Flux._of(self._source, (*self._ops, op))
