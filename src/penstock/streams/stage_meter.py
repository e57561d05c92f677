"""Where the time of running streams goes, found by looking at them now and then.

A meter gets to know the stages of every stream that is subscribed to inside :func:`metering`. From then on it
costs the stages nothing: :meth:`StageMeter.sample` looks which of them run, in which line of their compiled
loop, and which wait, for demand or for elements. A line belongs to one operator, so a slow ``map`` is found
by its name although it is fused with its neighbours.

Many looks make a share: of a hundred looks, about as many find a stage in ``map(parse)`` as this operator
takes per cent of the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from weakref import ref

__all__ = ["Glimpse", "StageFigures", "StageMeter", "meter_everything", "metering", "meters_for_new_streams"]

_MOST: Final = 512
"""Stages that a meter follows at once; a stream of streams may have any number."""
_LONGEST_STEP: Final = 1.0
"""Seconds that one look may count for: a process that was stopped for an hour did not work for an hour."""

DEMAND, DATA, WORKING = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What a stage does at this moment."""

    doing: int
    """0: it waits for demand, 1: it waits for elements, 2: it works."""
    at: str = ""
    """While it works: the label of the operator that is at work."""


class Metered(Protocol):
    """A stage, or a source outside of this package, that a meter can look at."""

    def glimpse(self) -> Glimpse | None:
        """What it does now; None if it is over."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """A stage of a running stream, and where its time went since the meter knows it."""

    number: int
    """Identifies it for this meter."""
    name: str
    kind: str
    """``stage``, ``boundary`` if it has a queue, ``connection``, ``reader`` or ``producer``."""
    upstreams: tuple[int, ...]
    """The numbers of the stages above it."""
    requested: int
    emitted: int
    queued: int
    capacity: int | None
    queued_bytes: int | None
    capacity_bytes: int | None
    runs_on: str
    terminated: bool
    waiting_for_demand: float
    waiting_for_data: float
    working: float
    by_operator: dict[str, float] = field(default_factory=dict)
    """Seconds of ``working``, by the label of the operator."""
    peer: str = ""
    """Of a client: what it is called at the other end of its connection."""


class _Followed:
    """A stage, and what was seen of it so far."""

    __slots__ = ("by_operator", "number", "seconds", "stage")

    def __init__(self, number: int, stage: Any) -> None:
        self.number = number
        self.stage = ref(stage)
        self.seconds = [0.0, 0.0, 0.0]
        self.by_operator: dict[str, float] = {}


class StageMeter:
    """Follows the stages of some streams; any thread may use it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._followed: dict[int, _Followed] = {}
        """By the id() of the stage."""
        self._count = 0
        self._sampled: float | None = None

    def add(self, stage: Any) -> None:
        """Follow a stage from now on; the stage does not notice, and is not kept alive."""
        with self._mutex:
            self._follow(stage)

    def _follow(self, stage: Any) -> None:
        known = self._followed.get(id(stage))
        if known is not None and known.stage() is stage:
            return
        if known is not None or len(self._followed) < _MOST:
            self._count += 1
            self._followed[id(stage)] = _Followed(self._count, stage)

    def sample(self, now: float | None = None) -> None:
        """Look at every stage. The time since the last look counts for what each of them does now."""
        now = time.monotonic() if now is None else now
        with self._mutex:
            step = 0.0 if self._sampled is None else min(max(now - self._sampled, 0.0), _LONGEST_STEP)
            self._sampled = now
            for key, followed in list(self._followed.items()):
                stage = followed.stage()
                glimpse = None if stage is None else stage.glimpse()
                if glimpse is None:
                    del self._followed[key]
                    continue
                followed.seconds[glimpse.doing] += step
                if glimpse.at:
                    spent = followed.by_operator
                    spent[glimpse.at] = spent.get(glimpse.at, 0.0) + step
                self._find_sources(stage)

    def _find_sources(self, stage: Any) -> None:
        """Follow what is above a stage, too, if it can be looked at: a connection, for instance."""
        for above in stage.upstreams():
            if hasattr(above, "glimpse"):
                self._follow(above)

    def figures(self) -> list[StageFigures]:
        """The stages that run, those further up first."""
        with self._mutex:
            alive = [(each, stage) for each in self._followed.values() if (stage := each.stage()) is not None]
            numbers = {id(stage): each.number for each, stage in alive}
            found = [_figures(each, stage, numbers) for each, stage in alive]
        return _downwards(found)


def _figures(followed: _Followed, stage: Any, numbers: dict[int, int]) -> StageFigures:
    state = stage.meter_state() if hasattr(stage, "meter_state") else stage.state()
    demand, data, working = followed.seconds
    waiting_bytes, bound_bytes = stage.waiting_bytes()
    kind = getattr(stage, "meter_kind", None) or ("stage" if state.capacity is None else "boundary")
    return StageFigures(
        number=followed.number,
        name=state.name,
        kind=kind,
        upstreams=tuple(_numbers_above(stage, numbers)),
        requested=state.requested,
        emitted=state.emitted,
        queued=state.queued,
        capacity=state.capacity,
        queued_bytes=waiting_bytes,
        capacity_bytes=bound_bytes,
        runs_on=state.runs_on,
        terminated=state.terminated,
        waiting_for_demand=demand,
        waiting_for_data=data,
        working=working,
        by_operator=dict(followed.by_operator),
        peer=getattr(stage, "meter_peer", ""),
    )


def _numbers_above(stage: Any, numbers: dict[int, int]) -> Iterator[int]:
    """The stages above this one, past what has no figures of its own, such as a ``subscribe_on``."""
    for above in stage.upstreams():
        if id(above) in numbers:
            yield numbers[id(above)]
        elif hasattr(above, "upstreams"):
            yield from _numbers_above(above, numbers)


def _downwards(stages: list[StageFigures]) -> list[StageFigures]:
    """The same stages, each after those above it."""
    by_number = {stage.number: stage for stage in stages}
    ordered: dict[int, StageFigures] = {}
    for stage in stages:
        waiting = [stage.number]
        while waiting:
            number = waiting[-1]
            above = [
                each for each in by_number[number].upstreams if each not in ordered and each not in waiting
            ]
            if above:
                waiting += above
            else:
                ordered.setdefault(number, by_number[number])
                waiting.pop()
    return list(ordered.values())


_meters: ContextVar[tuple[StageMeter, ...]] = ContextVar("penstock_meters", default=())
_everywhere: tuple[StageMeter, ...] = ()


@contextmanager
def metering(meter: StageMeter) -> Iterator[None]:
    """Let ``meter`` follow every stream that is subscribed to inside the block, also beyond its end.

    Streams that are subscribed to on other threads belong to the block as far as ``contextvars`` do.
    """
    token = _meters.set((*_meters.get(), meter))
    try:
        yield
    finally:
        _meters.reset(token)


def meter_everything(meter: StageMeter, follow: bool = True) -> None:
    """Let ``meter`` follow every stream of this process that is subscribed to from now on, or no longer."""
    global _everywhere
    others = tuple(each for each in _everywhere if each is not meter)
    _everywhere = (*others, meter) if follow else others


def meters_for_new_streams() -> tuple[StageMeter, ...]:
    """The meters that follow what is subscribed to here and now; mostly there are none."""
    return _meters.get() + _everywhere
