"""Make a stream of whatever the user has: ours, a foreign publisher, an iterable, an awaitable."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from penstock.spec import RuleViolation, check_publisher, strict
from penstock.streams.dropped import drop_error
from penstock.streams.fusion import operator
from penstock.streams.operators.async_sources import AsyncIterableSource, FutureSource
from penstock.streams.source import IterableSource, PublisherSource
from penstock.streams.stream import Stream, flux_of

if TYPE_CHECKING:
    from penstock.streams.mono import Mono

__all__ = ["as_mono", "as_same_kind", "as_stream"]


def as_stream(thing: Any, wanted_by: str) -> Stream[Any]:
    """The stream that ``thing`` stands for. A foreign publisher is watched by the strict guard.

    A text or a mapping is refused although it can be iterated over: nobody who writes
    ``flat_map(lambda word: word)`` wants its letters.
    """
    if isinstance(thing, Stream):
        return thing
    if callable(getattr(thing, "subscribe", None)):
        check_publisher(thing)
        return flux_of(PublisherSource(strict(thing, report=_report)))
    if isinstance(thing, AsyncIterable):
        return flux_of(AsyncIterableSource.over("from_async_iterable", thing, thing))
    if inspect.isawaitable(thing) or isinstance(thing, Future):
        return flux_of(FutureSource("from_future", lambda: thing, thing))
    if isinstance(thing, Iterable) and not isinstance(thing, str | bytes | bytearray | dict):
        return flux_of(IterableSource.over("from_iterable", thing, thing))
    raise TypeError(
        f"{wanted_by} needs a publisher (a Flux, a Mono, anything with subscribe), an iterable or an "
        f"awaitable, not {thing!r}; for one plain value use map()"
    )


def _report(violation: RuleViolation) -> None:
    drop_error(violation, "the strict guard round a foreign publisher")


def as_mono(thing: Any, wanted_by: str) -> Mono[Any]:
    """The stream that ``thing`` stands for, or its first element if there may be several."""
    from penstock.streams.mono import Mono

    stream = as_stream(thing, wanted_by)
    return stream if isinstance(stream, Mono) else stream._as_mono(operator("take", 1))


def as_same_kind(model: Stream[Any], thing: Any, wanted_by: str) -> Stream[Any]:
    """The stream to go on with after ``model``: after a Mono, that is at most one element."""
    from penstock.streams.mono import Mono

    return (as_mono if isinstance(model, Mono) else as_stream)(thing, wanted_by)
