"""``partition`` and ``route``: one stream into a fixed number of others.

The streams that ``route`` returns belong together: the first subscriber starts the source, and the elements
for the others wait. Each set of subscribers is one *run* of the source. A second subscriber of the same
stream joins, or starts, another run, so these streams can be read again like any other.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber
from penstock.streams.errors import Place, drop_elements
from penstock.streams.fusion import Op
from penstock.streams.home import Home, home_of
from penstock.streams.operators.boundaries import PREFETCH
from penstock.streams.operators.branch import Branch, attach_reader
from penstock.streams.operators.splitter import Splitter
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["Junction", "RouteSource"]


class Junction:
    """What the streams of one ``route`` share: the source, the choice, and the runs that are not complete."""

    def __init__(
        self,
        name: str,
        upstream: Stream[Any],
        labels: list[str],
        choose: Callable[[Any], int | None],
        prefetch: int,
    ) -> None:
        self.name = name
        self.upstream = upstream
        self.prefetch = prefetch
        self.labels = labels
        self.choose = choose
        self._mutex = allocate_lock()
        self._runs: list[_Routing] = []
        """Those that some of the streams have no subscriber in yet; the oldest first."""

    def board(self, number: int, place: Place, home: Home, below: int) -> tuple[Branch, _Routing | None]:
        """The branch for one more subscriber of stream ``number``; with the run, if it has to be started."""
        with self._mutex:
            for run in self._runs:
                if run.ways[number].claim():
                    self._runs = [each for each in self._runs if not each.complete]
                    return run.ways[number], None
            stale = [run for run in self._runs if run.over or run.idle]
            run = _Routing(self, place, home, below)
            run.ways[number].claim()
            kept = [each for each in self._runs if each not in stale]
            self._runs = kept if run.complete else [*kept, run]
        for old in stale:
            old.give_up()
        return run.ways[number], run

    def forget(self, number: int) -> None:
        """The program has let go of stream ``number``. The garbage collector calls this: no lock."""
        for run in self._runs:
            way = run.ways[number]
            if way.claim():
                run.post_from_collector(run.left, way)


class RouteSource(Source):
    """One of the streams of a ``route``."""

    frames = 12

    def __init__(self, label: str, junction: Junction, number: int, *shows: Any) -> None:
        super().__init__(label, *shows)
        self._junction = junction
        self._number = number
        self.boundary = junction.prefetch

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        below = getattr(downstream, "below", 0)
        branch, run = self._junction.board(self._number, self.place, home_of(downstream).apart(), below)
        attach_reader(branch, ops, downstream, self.label, self.place)
        return None if run is None else (self._junction.upstream, run)

    def __del__(self) -> None:
        self._junction.forget(self._number)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._junction.upstream]

    def runs_on(self) -> str:
        return self._junction.upstream._source.runs_on()


class _Routing(Splitter):
    """One run of the source."""

    def __init__(self, junction: Junction, place: Place, home: Home, below: int) -> None:
        super().__init__(junction.name, place, home, below, junction.prefetch, None)
        if junction.prefetch != PREFETCH:  # a number that the user gives
            self.bounds_bytes = False
        self._choose = junction.choose
        self.ways = [self.open(label) for label in junction.labels]

    @property
    def complete(self) -> bool:
        """Whether each stream has, or had, a subscriber."""
        return all(way.claimed for way in self.ways)

    def place_one(self, element: Any) -> bool:
        number = self._choose(element)
        if number is not None:
            self.give(self.ways[number], element)
        return True

    @property
    def idle(self) -> bool:
        """Whether every subscriber that was there has left; the source waits for another one."""
        return all(way.gone for way in self.ways if way.claimed)

    def give_up(self) -> None:
        """A new run has begun, and nobody will read what is left of this one."""
        for way in self.ways:
            if way.claim():
                if self.over:
                    drop_elements(way.queue, way.label)
                self.post(self.left, way)
