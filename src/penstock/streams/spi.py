"""What another layer may build on: sources and stages of its own, with the operators of Flux and Mono below.

Applications need :mod:`penstock.streams` only. A layer such as ``penstock.net`` uses

* :class:`Source` and its ready-made kinds, to make a stream of something new: ``flux_of(source)``;
* :class:`Relay`, to put a stage of its own into a stream: it passes elements on and never asks for more than
  it was asked for;
* :func:`as_stream` and :func:`connect`, to read a stream that it was given;
* :class:`AsyncReader` and :class:`ReadAhead`, to read ahead on an event loop, bounded in elements and bytes;
* :func:`pulled_elements` and :func:`piecewise_operators`, to run a chain over elements that are at hand;
* :class:`ElementInbox`, to have the elements of an iterable appended to a queue, without a call for each;
* :class:`Pausable`, :class:`ExpectsLarge` and :func:`announce_large`, for a subscription whose elements turn
  out to be large: a loop below, which has asked for 256 of them, pauses it while too many bytes wait;
* :class:`Link`, to hold back the source of a chain while its output is blocked;
* :func:`bound_to`, to let the shared schedulers follow the clock of a test;
* :func:`drop_error`, for an error that nobody can receive any more, and :func:`drop_raised`, for one that a
  subscriber raised;
* :func:`renew_after_fork`, for an object with threads or locks that must start afresh in a forked child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.spec import Subscriber
from penstock.streams.errors import Place, drop_error, drop_raised
from penstock.streams.flux import Flux
from penstock.streams.fusion import (
    ElementInbox,
    ExpectsLarge,
    Link,
    Op,
    Pausable,
    Relay,
    Watch,
    announce_large,
    pull,
)
from penstock.streams.fusion.codegen import Head
from penstock.streams.fusion.fragments import Kind
from penstock.streams.fusion.piecewise import Piecewise
from penstock.streams.operators.async_sources import AsyncIterableSource, FutureSource
from penstock.streams.operators.read_ahead import ReadAhead, step_of
from penstock.streams.operators.sources import DeferSource, FailedSource
from penstock.streams.schedulers.bound_clock import bound_to
from penstock.streams.schedulers.scheduler import Renewable, asks_main_thread_to_stop, renew_after_fork
from penstock.streams.source import IterableSource, Next, PublisherSource, Source
from penstock.streams.stage_meter import Glimpse, meter_everything, meters_for_new_streams
from penstock.streams.stream import Stream, as_stream, flux_of, mono_of
from penstock.streams.terminal import AsyncReader

__all__ = [
    "AsyncIterableSource",
    "AsyncReader",
    "DeferSource",
    "ElementInbox",
    "ExpectsLarge",
    "FailedSource",
    "FutureSource",
    "Glimpse",
    "Head",
    "Kind",
    "Link",
    "Next",
    "Op",
    "Pausable",
    "Piecewise",
    "Place",
    "PublisherSource",
    "ReadAhead",
    "Relay",
    "Renewable",
    "Source",
    "Stream",
    "Watch",
    "announce_large",
    "as_flux",
    "as_stream",
    "asks_main_thread_to_stop",
    "bare_source",
    "bound_to",
    "connect",
    "drop_error",
    "drop_raised",
    "flux_of",
    "meter_everything",
    "meters_for_new_streams",
    "mono_of",
    "piecewise_operators",
    "pulled_elements",
    "renew_after_fork",
    "runs_on",
    "source_of",
    "step_of",
]


def connect(stream: Stream[Any], subscriber: Subscriber[Any]) -> None:
    """Subscribe without the checks that ``subscribe()`` makes on a foreign Subscriber."""
    stream._connect(subscriber)


def as_flux(stream: Stream[Any]) -> Flux[Any]:
    """The same stream as a Flux, whether it is a Flux or a Mono."""
    return stream._as_flux()


def bare_source(stream: Stream[Any]) -> Source | None:
    """The source of a stream that has no operators below it; None if there are any."""
    return None if stream._ops else stream._source


def source_of(stream: Stream[Any]) -> Source:
    """The source of a stream, whatever operators it has below."""
    return stream._source


def pulled_elements(stream: Stream[Any], *more: Op) -> Callable[[], Iterator[Any]] | None:
    """Opens a stream over an iterable as a plain generator; None if its elements come by themselves."""
    source = stream._source
    if not stream._pullable or not isinstance(source, IterableSource):
        return None
    return lambda: pull(source, (*stream._ops, *more))


def piecewise_operators(stream: Stream[Any], *more: Op) -> Piecewise | None:
    """The operators below the source, as a function of some elements that the caller has at hand.

    It is None if one of them watches the stream, keeps something from one element to the next, or makes
    several elements of one.
    """
    source, ops = stream._source, (*stream._ops, *more)
    return Piecewise(ops, source.label, source.place) if Piecewise.suits(ops) else None


def runs_on(stream: Stream[Any]) -> str:
    """The resource that the stream's elements come from, as ``explain()`` shows it."""
    return stream._source.runs_on()
