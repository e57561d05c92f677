"""Look at a stream: ``explain`` draws one that was put together, ``scan`` looks into one that runs.

The drawing uses the notation of the specification. A bar is an asynchronous boundary, where elements wait in
a queue; below it stand the queue's size and after how many elements it is refilled. ``R1``, ``R2``, … are the
resources that do the work::

    range(1000) map(parse) filter(valid) | map(enrich) | consume
    ------------ R1: caller ------------ | R2: pool -- | R3: loop
                                      256/192       256/192
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.streams.events import StageState
from penstock.streams.operators.boundaries import LimitRateSource, PublishOnSource, SubscribeOnSource

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["explain", "scan"]


class _Island:
    """A part of the stream that one resource runs."""

    def __init__(self, words: list[str], resource: str, queue: str) -> None:
        self.words = words
        self.resource = resource
        self.queue = queue
        """The queue in front of it."""


def explain(stream: Stream[Any]) -> str:
    """The drawing, as text."""
    islands, sources = _islands(stream)
    drawing = _draw(islands)
    for number, source in enumerate(sources, 1):
        inner = explain(source)
        drawing += "\n\n" + "\n".join(
            (f"source {number}: " if line_number == 0 else " " * 10) + line
            for line_number, line in enumerate(inner.splitlines())
        )
    return drawing


def _islands(stream: Stream[Any]) -> tuple[list[_Island], list[Stream[Any]]]:
    """The parts from the source down, and the streams above them if there are several."""
    found: list[_Island] = []
    words: list[str] = []
    resource: str | None = None
    current = stream
    others: list[Stream[Any]] = []
    while True:
        source = current._source
        words = [op.label for op in current._ops] + words
        upstreams = source.upstreams()
        queue = source.queue()
        if isinstance(source, SubscribeOnSource):
            resource = resource or source.runs_on()
        elif queue is None:
            words = [source.label, *words]
        else:
            # The bar stands for a queue that has no other job; any other operator follows it by name.
            label = [] if isinstance(source, PublishOnSource | LimitRateSource) else [source.label]
            found.insert(0, _Island([*label, *words], resource or source.runs_on(), queue))
            words, resource = [], None
        if len(upstreams) != 1:
            others = upstreams
            break
        current = upstreams[0]
    if others and not words:
        found.insert(0, _Island([f"sources 1–{len(others)}"], "see below", ""))
    else:
        found.insert(0, _Island(words, resource or current._source.runs_on(), ""))
    return found, others


def _draw(islands: list[_Island]) -> str:
    top, middle, bottom = "", "", ""
    for number, island in enumerate(islands):
        words = " ".join(island.words) or "·"
        name = f" R{number + 1}: {island.resource} "
        width = max(len(words), len(name) + 2)
        if number:
            bottom = bottom.ljust(len(top) + 1 - len(island.queue) // 2) + island.queue
            top += " | "
            middle += " | "
        top += words.ljust(width)
        middle += name.center(width, "-")
    return "\n".join(line.rstrip() for line in (top, middle, bottom) if line.strip())


def scan(subscription: Any) -> list[StageState]:
    """The stages behind a subscription, from the subscriber up to the sources.

    Pass the subscription that a publisher of this package gave to its Subscriber.
    """
    found: list[StageState] = []
    waiting = [subscription]
    seen: set[int] = set()
    while waiting:
        stage = waiting.pop(0)
        if stage is None or id(stage) in seen:
            continue
        seen.add(id(stage))
        if hasattr(stage, "state"):
            found.append(stage.state())
        if hasattr(stage, "upstreams"):
            waiting += stage.upstreams()
    return found
