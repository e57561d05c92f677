"""What another layer may build on: sources and stages of its own, with the operators of Flux and Mono below.

Applications need :mod:`penstock.streams` only. A layer such as ``penstock.net`` uses

* :class:`Source` and its ready-made kinds, to make a stream of something new: ``flux_of(source)``;
* :class:`Relay`, to put a stage of its own into a stream: it passes elements on and never asks for more than
  it was asked for;
* :func:`as_stream` and :func:`connect`, to read a stream that it was given;
* :class:`AsyncReader` and :class:`ReadAhead`, to read ahead on an event loop, bounded in elements and bytes;
* :class:`Link`, to hold back the source of a chain while its output is blocked;
* :func:`bound_to`, to let the shared schedulers follow the clock of a test;
* :func:`drop_error`, for an error that nobody can receive any more;
* :func:`renew_after_fork`, for an object with threads or locks that must start afresh in a forked child.
"""

from __future__ import annotations

from typing import Any

from penstock.spec import Subscriber
from penstock.streams.errors import Place, drop_error
from penstock.streams.flux import Flux
from penstock.streams.fusion import Link, Op, Relay, Watch
from penstock.streams.fusion.codegen import Head
from penstock.streams.fusion.fragments import Kind
from penstock.streams.operators.async_sources import AsyncIterableSource, FutureSource
from penstock.streams.operators.read_ahead import ReadAhead, step_of
from penstock.streams.operators.sources import DeferSource, FailedSource
from penstock.streams.schedulers.bound_clock import bound_to
from penstock.streams.schedulers.scheduler import Renewable, asks_main_thread_to_stop, renew_after_fork
from penstock.streams.source import Next, PublisherSource, Source
from penstock.streams.stream import Stream, as_stream, flux_of, mono_of
from penstock.streams.terminal import AsyncReader

__all__ = [
    "AsyncIterableSource",
    "AsyncReader",
    "DeferSource",
    "FailedSource",
    "FutureSource",
    "Head",
    "Kind",
    "Link",
    "Next",
    "Op",
    "Place",
    "PublisherSource",
    "ReadAhead",
    "Relay",
    "Renewable",
    "Source",
    "Stream",
    "Watch",
    "as_flux",
    "as_stream",
    "asks_main_thread_to_stop",
    "bare_source",
    "bound_to",
    "connect",
    "drop_error",
    "flux_of",
    "mono_of",
    "renew_after_fork",
    "runs_on",
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


def runs_on(stream: Stream[Any]) -> str:
    """The resource that the stream's elements come from, as ``explain()`` shows it."""
    return stream._source.runs_on()
