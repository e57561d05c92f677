"""``group_by``: a stream for each key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.arguments import describe
from penstock.spec import Subscriber
from penstock.streams.fusion import Op, QueueDrain
from penstock.streams.operators.boundaries import PREFETCH
from penstock.streams.operators.branch import Branch, BranchSource
from penstock.streams.operators.splitter import Outlet, Splitter
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["GroupBySource", "TooManyGroups"]


class TooManyGroups(RuntimeError):
    """``group_by`` met one key more than ``max_groups`` allows."""


class GroupBySource(Source):
    """``group_by``: each new key opens a group, which is a stream of its own."""

    frames = 12

    def __init__(
        self, upstream: Stream[Any], key: Callable[[Any], Any], max_groups: int, prefetch: int
    ) -> None:
        super().__init__("group_by", key)
        self._upstream = upstream
        self._key = key
        self._max_groups = max_groups
        self.boundary = prefetch

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Groups wait in the queue of the stream of groups; there are ``max_groups`` at most."""
        assert self.boundary is not None
        outer = QueueDrain(ops, downstream, self.label, self.place)
        outer.introduce()
        if outer.closed:
            return None
        splitter = _Grouping(self._key, self._max_groups, self, self.boundary, outer)
        outer.on_subscribe(Outlet(splitter))
        return self._upstream, splitter

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return self._upstream._source.runs_on()


class _Grouping(Splitter):
    """A group opens whether there is demand for it or not, so that it does not block the others."""

    def __init__(
        self, key: Callable[[Any], Any], max_groups: int, source: Source, prefetch: int, outer: QueueDrain
    ) -> None:
        super().__init__(source.label, source.place, outer.home, outer.below, prefetch, outer)
        if prefetch != PREFETCH:  # a number that the user gives
            self.bounds_bytes = False
        self._key = key
        self._max_groups = max_groups
        self._groups: dict[Any, Branch] = {}
        self._keys: dict[Branch, Any] = {}

    def place_one(self, element: Any) -> bool:
        key = self._key(element)
        branch = self._groups.get(key)
        if branch is not None:
            self.give(branch, element)
        elif self.outer is not None:
            self._open(key, element, self.outer)
        return True

    def _open(self, key: Any, element: Any, outer: QueueDrain) -> None:
        from penstock.streams.flux import GroupedFlux

        if len(self._groups) >= self._max_groups:
            raise TooManyGroups(
                f"{self.name} has {self._max_groups} groups open and met another key, {describe(key)}; raise "
                "max_groups, use a key with fewer values, or end groups that are done (take(), timeout())"
            )
        branch = self.open(f"the group {describe(key)} of {self.name}")
        self._groups[key] = branch
        self._keys[branch] = key
        self.give(branch, element)
        outer.on_next(GroupedFlux.opened(key, BranchSource(branch, self.place)))

    def forgotten(self, branch: Branch) -> None:
        """A cancelled group makes way for another one, also of its own key.

        A group that nobody has read keeps its place: its next elements are left out, too.
        """
        if branch.claimed:
            del self._groups[self._keys.pop(branch)]

    def released(self) -> None:
        self._groups.clear()
        self._keys.clear()
