"""Flux: a stream of any number of elements."""

from __future__ import annotations

from penstock.streams.api.boundaries import FluxBoundaries, FluxSharing, FluxTiming
from penstock.streams.api.collection import FluxCollection
from penstock.streams.api.combination import FluxCombination
from penstock.streams.api.creation import FluxCreation
from penstock.streams.api.delayed_errors import FluxDelayedErrors
from penstock.streams.api.failures import FluxFailures
from penstock.streams.api.filters import FluxFilters
from penstock.streams.api.flat_map import FluxFlatMap
from penstock.streams.api.hooks import FluxHooks
from penstock.streams.api.order import FluxOrder
from penstock.streams.api.queues import FluxQueues
from penstock.streams.api.recovery import FluxRecovery
from penstock.streams.api.terminal import FluxTerminal
from penstock.streams.api.transforms import FluxLists, FluxTransforms
from penstock.streams.stream import T

__all__ = ["Flux"]


class Flux(
    FluxCreation[T],
    FluxTransforms[T],
    FluxFilters[T],
    FluxFlatMap[T],
    FluxCombination[T],
    FluxOrder[T],
    FluxLists[T],
    FluxCollection[T],
    FluxRecovery[T],
    FluxDelayedErrors[T],
    FluxFailures[T],
    FluxTiming[T],
    FluxBoundaries[T],
    FluxSharing[T],
    FluxQueues[T],
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
