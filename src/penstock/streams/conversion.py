"""Make a stream of a foreign publisher, an iterable or an awaitable."""

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
    """``thing`` as a stream. The strict guard watches a foreign publisher.

    A text or a mapping is refused, although both are iterable: ``flat_map(lambda word: word)`` would
    send the letters of each word.
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
    """``thing`` as a stream of at most one element, the first."""
    from penstock.streams.mono import Mono

    stream = as_stream(thing, wanted_by)
    return stream if isinstance(stream, Mono) else stream._as_mono(operator("take", 1))


def as_same_kind(model: Stream[Any], thing: Any, wanted_by: str) -> Stream[Any]:
    """``thing`` as a stream of the same kind as ``model``, a Flux or a Mono."""
    from penstock.streams.mono import Mono

    return (as_mono if isinstance(model, Mono) else as_stream)(thing, wanted_by)
