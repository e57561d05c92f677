"""Streams side by side, each with a queue of its own: ``zip``, and what ``combine_latest`` and ordered merges
have in common with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.spec import Subscriber
from penstock.streams.fusion import Op
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.operators.flat_map import Inner, ManySources
from penstock.streams.source import Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["SideBySide", "SideBySideSource", "ZipSource"]


class SideBySide(ManySources):
    """A stage with an inner for each of its streams, and a function of the user's, if there is one."""

    __slots__ = ("_function", "inners")
    inners: Sequence[Inner]

    def __init__(self, function: Callable[..., Any] | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._function = function

    def expect(self, streams: int, prefetch: int) -> None:
        """Make place for so many streams."""
        self.inners = [Inner(self, prefetch) for _ in range(streams)]

    def begin(self) -> None:
        """All streams are subscribed to."""

    def waiting(self) -> list[Any]:
        return [element for inner in self.inners for element in tuple(inner.queue)]


class SideBySideSource(Source):
    """Several streams, all of them subscribed to at once; ``prefetch`` elements of each may wait."""

    frames = 10
    stage_type: ClassVar[type[SideBySide]]

    def __init__(
        self, label: str, streams: tuple[Stream[Any], ...], function: Callable[..., Any] | None, prefetch: int
    ) -> None:
        super().__init__(label, *([function] if function else []))
        self._streams = streams
        self._function = function
        self.boundary = prefetch

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        assert self.boundary is not None
        stage = self.stage_type(self._function, ops, downstream, self.label, self.place)
        stage.expect(len(self._streams), self.boundary)
        stage.introduce()
        for inner, stream in zip(stage.inners, self._streams, strict=True):
            if stage.closed:
                return
            inner.subscribe_to(stream)
        stage.begin()

    def upstreams(self) -> list[Stream[Any]]:
        return list(self._streams)

    def runs_on(self) -> str:
        return "sources"


class _Zipping(SideBySide):
    """One element of each stream makes one element."""

    __slots__ = ()

    def poll(self) -> Any:
        for inner in self.inners:
            if not inner.queue:
                return PENDING
        row = tuple([inner.take() for inner in self.inners])
        return row if self._function is None else self._function(*row)

    def finished(self) -> bool:
        """One source at its end is enough: no further row can be complete."""
        return any(inner.done and not inner.queue for inner in self.inners)


class ZipSource(SideBySideSource):
    """``zip``."""

    stage_type = _Zipping
