"""Streams side by side, each with a queue of its own: ``zip``, and what ``combine_latest`` and ordered merges
have in common with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
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


class _Part(Inner):
    """A stream of ``zip``. It tells the stage that it has ended, so that nobody has to ask them all."""

    __slots__ = ()
    _stage: _Zipping

    def on_complete(self) -> None:
        self.done = True
        self._stage.closing.append(self)
        self._stage.wake()


class _Zipping(SideBySide):
    """One element of each stream makes one element."""

    __slots__ = ("_ready", "_rows_left", "closing")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ready = 0
        """So many streams, from the first on, are known to have an element for the next row."""
        self._rows_left = inf
        """How many rows there can be, as far as streams have ended."""
        self.closing: deque[_Part] = deque()
        """Streams that have ended, and that the owner has not looked at yet."""

    def expect(self, streams: int, prefetch: int) -> None:
        self.inners = [_Part(self, prefetch) for _ in range(streams)]

    def poll(self) -> Any:
        inners = self.inners
        while self._ready < len(inners):
            if not inners[self._ready].queue:
                return PENDING
            self._ready += 1
        self._ready = 0
        self._rows_left -= 1
        row = tuple([inner.take() for inner in inners])
        return row if self._function is None else self._function(*row)

    def finished(self) -> bool:
        """One source at its end is enough: no further row can be complete."""
        while self.closing:
            self._rows_left = min(self._rows_left, len(self.closing.popleft().queue))
        return self._rows_left <= 0 and self.error is None


class ZipSource(SideBySideSource):
    """``zip``."""

    stage_type = _Zipping
