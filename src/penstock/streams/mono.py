"""Mono: a stream of at most one element."""

from __future__ import annotations

from penstock.streams.fluent.collecting import MonoCollecting
from penstock.streams.fluent.combining import MonoCombining
from penstock.streams.fluent.creating import MonoCreating
from penstock.streams.fluent.filtering import MonoFiltering
from penstock.streams.fluent.flattening import MonoFlattening
from penstock.streams.fluent.leaving import MonoLeaving
from penstock.streams.fluent.peeking import MonoPeeking
from penstock.streams.fluent.pressure import MonoPressure
from penstock.streams.fluent.recovering import MonoRecovering
from penstock.streams.fluent.sharing import MonoSharing
from penstock.streams.fluent.timing import MonoTiming
from penstock.streams.fluent.transforming import MonoTransforming
from penstock.streams.stream import T

__all__ = ["Mono"]


class Mono(
    MonoCreating[T],
    MonoTransforming[T],
    MonoFiltering[T],
    MonoFlattening[T],
    MonoCombining[T],
    MonoCollecting[T],
    MonoRecovering[T],
    MonoTiming[T],
    MonoPressure[T],
    MonoSharing[T],
    MonoPeeking[T],
    MonoLeaving[T],
):
    """A Publisher of one element, or none.

    ``await`` it, ``block()`` for it, or subscribe to it::

        user = Mono.from_callable(load_user).timeout(2).retry(3)

        await user          # in a coroutine
        user.block()        # on a thread

    A Mono is immutable: every operator returns a new one.
    """

    __slots__ = ()
