"""Mono: a stream of at most one element."""

from __future__ import annotations

from penstock.streams.api.boundaries import MonoBoundaries, MonoSharing, MonoTiming
from penstock.streams.api.collection import MonoCollection
from penstock.streams.api.combination import MonoCombination
from penstock.streams.api.connections import MonoConnections
from penstock.streams.api.creation import MonoCreation
from penstock.streams.api.delayed_errors import MonoDelayedErrors
from penstock.streams.api.failures import MonoFailures
from penstock.streams.api.filters import MonoFilters
from penstock.streams.api.flat_map import MonoFlatMap
from penstock.streams.api.hooks import MonoHooks
from penstock.streams.api.latest import MonoLatest
from penstock.streams.api.order import MonoOrder
from penstock.streams.api.recovery import MonoRecovery
from penstock.streams.api.terminal import MonoTerminal
from penstock.streams.api.time import MonoTime
from penstock.streams.api.transforms import MonoTransforms
from penstock.streams.api.triggers import MonoTriggers
from penstock.streams.api.zips import MonoZips
from penstock.streams.stream import T

__all__ = ["Mono"]


class Mono(
    MonoCreation[T],
    MonoTransforms[T],
    MonoFilters[T],
    MonoFlatMap[T],
    MonoTriggers[T],
    MonoCombination[T],
    MonoZips[T],
    MonoOrder[T],
    MonoCollection[T],
    MonoRecovery[T],
    MonoDelayedErrors[T],
    MonoFailures[T],
    MonoTiming[T],
    MonoLatest[T],
    MonoTime[T],
    MonoBoundaries[T],
    MonoSharing[T],
    MonoConnections[T],
    MonoHooks[T],
    MonoTerminal[T],
):
    """A Publisher of one element, or none.

    ``await`` it, ``block()`` for it, or subscribe to it::

        user = Mono.from_callable(load_user).timeout(2).retry(3)

        await user          # in a coroutine
        user.block()        # on a thread

    A Mono is immutable: every operator returns a new one.
    """

    __slots__ = ()
