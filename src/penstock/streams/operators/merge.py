"""Several streams become one: as elements arrive, in the order of the sources, or side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber
from penstock.streams.fusion import Op
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.operators.inners import Inner, ManySources, Outer
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["FlatMapSource", "ZipSource"]


class FlatMapSource(Source):
    """``flat_map``, ``merge``: up to ``concurrency`` inner streams at once; ``sequential`` keeps order."""

    frames = 16

    def __init__(
        self,
        label: str,
        upstream: Stream[Any],
        to_stream: Callable[[Any], Stream[Any]],
        concurrency: int,
        prefetch: int,
        *shows: Any,
        sequential: bool = False,
        members: tuple[Stream[Any], ...] | None = None,
    ) -> None:
        super().__init__(label, *shows)
        self._upstream = upstream
        self.members = members
        """The inner streams, if they are known beforehand."""
        """The inner streams, where they are known before they run."""
        self._to_stream = to_stream
        self._concurrency = concurrency
        self._sequential = sequential
        self.boundary = prefetch

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Subscribe to the outer stream, whose elements become the inner ones."""
        assert self.boundary is not None
        stage_type = _Sequential if self._sequential else _Merging
        stage = stage_type(ops, downstream, self.label, self.place)
        outer = Outer(
            stage, lambda element: stage.open(self._to_stream(element), self.boundary), self._concurrency
        )
        stage.outer = outer
        stage.sources.add(outer)
        stage.introduce()
        return None if stage.closed else (self._upstream, outer)

    def upstreams(self) -> list[Stream[Any]]:
        """The inner streams if they are known, otherwise the outer one that they come from."""
        return [self._upstream] if self.members is None else list(self.members)

    def queue(self) -> str:
        return f"{self._concurrency}×{self.boundary}"

    def runs_on(self) -> str:
        return "sources"


_END: Any = object()
"""Follows the last element of an inner stream in the common queue."""


class _Merging(ManySources):
    """Elements in the order of their arrival."""

    __slots__ = ("_ready", "outer")
    outer: Outer

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ready: deque[tuple[_MergedInner, Any]] = deque()

    def open(self, stream: Stream[Any], prefetch: Any) -> None:
        _MergedInner(self, prefetch, self._ready).subscribe_to(stream)

    def poll(self) -> Any:
        self._remove_ended()
        if not self._ready or self.halted:
            return PENDING
        inner, element = self._ready.popleft()
        inner.took_one()
        return element

    def finished(self) -> bool:
        self._remove_ended()
        # The order of the three looks matters: an inner is a source before the outer stream is done,
        # and its elements are ready before it leaves the sources.
        return self.outer.done and self.sources <= {self.outer} and not self._ready

    def _remove_ended(self) -> None:
        """An inner stream makes way for the next one when it has ended and all of its elements were taken."""
        while self._ready and self._ready[0][1] is _END and not self.halted:
            inner, _ = self._ready.popleft()
            self.sources.discard(inner)
            self.outer.more()

    def waiting(self) -> list[Any]:
        return [element for _, element in tuple(self._ready) if element is not _END]


class _MergedInner(Inner):
    """Puts its elements into the common queue, in the order of arrival."""

    __slots__ = ("_ready",)
    _stage: _Merging

    def __init__(self, stage: _Merging, prefetch: int, ready: deque[tuple[_MergedInner, Any]]) -> None:
        super().__init__(stage, prefetch)
        self._ready = ready

    def on_next(self, element: Any, /) -> None:
        self._ready.append((self, element))
        self._stage.wake()
        if self._ahead is not None:
            self._ahead.came(element)

    def _waiting(self) -> list[Any]:
        return [element for inner, element in list(self._ready) if inner is self and element is not _END]

    def on_complete(self) -> None:
        self.done = True
        self._ready.append((self, _END))
        self._stage.wake()


class _Sequential(ManySources):
    """Elements of the first inner stream, then of the second, and so on, although all of them run."""

    __slots__ = ("_in_order", "outer")
    outer: Outer

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._in_order: deque[Inner] = deque()

    def open(self, stream: Stream[Any], prefetch: Any) -> None:
        inner = Inner(self, prefetch)
        self._in_order.append(inner)
        inner.subscribe_to(stream)

    def poll(self) -> Any:
        while self._in_order and not self.halted:
            first = self._in_order[0]
            if first.queue:
                return first.take()
            if not first.done:
                return PENDING
            if first.queue:
                continue  # an element and the end came between the two looks
            self._in_order.popleft()
            self.sources.discard(first)
            self.outer.more()
        return PENDING

    def finished(self) -> bool:
        # Also without demand: an inner stream that has nothing to send makes way for the next one.
        while self._in_order and not self.halted:
            if not self._in_order[0].done or self._in_order[0].queue:
                break
            self.sources.discard(self._in_order.popleft())
            self.outer.more()
        return self.outer.done and not self._in_order

    def waiting(self) -> list[Any]:
        return [element for inner in tuple(self._in_order) for element in tuple(inner.queue)]


class ZipSource(Source):
    """``zip``: one element of each stream makes one element."""

    frames = 10

    def __init__(
        self, streams: tuple[Stream[Any], ...], combinator: Callable[..., Any] | None, prefetch: int
    ) -> None:
        super().__init__("zip", *([combinator] if combinator else []))
        self._streams = streams
        self._combinator = combinator
        self.boundary = prefetch

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        assert self.boundary is not None
        stage = _Zipping(self._combinator, ops, downstream, self.label, self.place)
        stage.inners = [Inner(stage, self.boundary) for _ in self._streams]
        stage.introduce()
        for inner, stream in zip(stage.inners, self._streams, strict=True):
            if stage.closed:
                return
            inner.subscribe_to(stream)

    def upstreams(self) -> list[Stream[Any]]:
        return list(self._streams)

    def runs_on(self) -> str:
        return "sources"


class _Zipping(ManySources):
    __slots__ = ("_combinator", "inners")
    inners: list[Inner]

    def __init__(self, combinator: Callable[..., Any] | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._combinator = combinator

    def poll(self) -> Any:
        for inner in self.inners:
            if not inner.queue:
                return PENDING
        row = tuple([inner.take() for inner in self.inners])
        return row if self._combinator is None else self._combinator(*row)

    def finished(self) -> bool:
        """One source at its end is enough: no further row can be complete."""
        return any(inner.done and not inner.queue for inner in self.inners)

    def waiting(self) -> list[Any]:
        return [element for inner in self.inners for element in tuple(inner.queue)]
