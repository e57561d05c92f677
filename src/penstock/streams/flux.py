"""Flux: a stream of any number of elements."""

from __future__ import annotations

from penstock.streams.fluent.collecting import FluxCollecting
from penstock.streams.fluent.combining import FluxCombining
from penstock.streams.fluent.creating import FluxCreating
from penstock.streams.fluent.filtering import FluxFiltering
from penstock.streams.fluent.flattening import FluxFlattening
from penstock.streams.fluent.leaving import FluxLeaving
from penstock.streams.fluent.peeking import FluxPeeking
from penstock.streams.fluent.pressure import FluxPressure
from penstock.streams.fluent.recovering import FluxRecovering
from penstock.streams.fluent.sharing import FluxSharing
from penstock.streams.fluent.splitting import FluxSplitting
from penstock.streams.fluent.timing import FluxTiming
from penstock.streams.fluent.transforming import FluxTransforming
from penstock.streams.stream import T

__all__ = ["Flux"]


class Flux(
    FluxCreating[T],
    FluxTransforming[T],
    FluxFiltering[T],
    FluxFlattening[T],
    FluxCombining[T],
    FluxSplitting[T],
    FluxCollecting[T],
    FluxRecovering[T],
    FluxTiming[T],
    FluxPressure[T],
    FluxSharing[T],
    FluxPeeking[T],
    FluxLeaving[T],
):
    """A Publisher of any number of elements.

    Put one together from a source and operators; nothing happens before somebody subscribes, iterates or
    waits, and each who does gets a run of its own::

        parsed = Flux.from_iterable(lines).map(parse).filter(valid)

        for record in parsed: ...              # a plain loop
        async for record in parsed: ...        # on an event loop
        parsed.subscribe(print)                # callbacks
        parsed.subscribe(subscriber)           # any Reactive Streams Subscriber

    A Flux is immutable: every operator returns a new one.
    """

    __slots__ = ()
