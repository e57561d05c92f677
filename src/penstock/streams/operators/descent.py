"""``expand_deep``: an element, then everything that it leads to, then its next sibling."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber, Subscription
from penstock.streams.fusion import Op
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.fusion.fragments import NOTHING
from penstock.streams.operators.flat_map import Inner, ManySources
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["ExpandDeepSource"]


class ExpandDeepSource(Source):
    """Keeps one stream open for each level of the tree, and asks the deepest for one element at a time."""

    frames = 16

    def __init__(self, upstream: Stream[Any], leads_to: Callable[[Any], Stream[Any]], *shows: Any) -> None:
        super().__init__("expand_deep", *shows)
        self._upstream = upstream
        self._leads_to = leads_to

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        stage = _Descending(self._leads_to, ops, downstream, self.label, self.place)
        level = stage.new_level()
        stage.introduce()
        return None if stage.closed else (self._upstream, level)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return "sources"


class _Descending(ManySources):
    __slots__ = ("_leads_to", "_levels", "_sent")

    def __init__(self, leads_to: Callable[[Any], Stream[Any]], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._leads_to = leads_to
        self._levels: list[_Level] = []
        self._sent: Any = NOTHING
        """The element that was sent last, if the stream that it leads to is not open yet."""

    def new_level(self) -> _Level:
        level = _Level(self, 1)
        self._levels.append(level)
        self.add(level)
        return level

    def poll(self) -> Any:
        while not self.finished() and not self.halted:
            deepest = self._levels[-1]
            if deepest.queue:
                self._sent = deepest.take()
                return self._sent
            if not deepest.asks():
                return PENDING
        return PENDING

    def finished(self) -> bool:
        """Go down, or up, as far as this needs no demand. Nothing is left when the last level has ended."""
        if self.halted:
            return False
        if self._sent is not NOTHING:
            # Not when it was taken: an error of the function must not overtake the element.
            sent, self._sent = self._sent, NOTHING
            stream = self._leads_to(sent)
            self._leave_ended_levels()  # a long line of descent keeps one level open, not all of them
            stream._connect(self.new_level())
        self._leave_ended_levels()
        return not self._levels

    def _leave_ended_levels(self) -> None:
        while self._levels and self._levels[-1].done and not self._levels[-1].queue:
            self.sources.discard(self._levels.pop())

    def waiting(self) -> list[Any]:
        return [element for level in tuple(self._levels) for element in tuple(level.queue)]

    def release(self) -> None:
        super().release()
        self._levels.clear()
        self._sent = NOTHING


class _Level(Inner):
    """One stream of the tree. Asks for nothing by itself."""

    __slots__ = ("_asked",)

    def __init__(self, stage: _Descending, prefetch: int) -> None:
        super().__init__(stage, prefetch)
        self._asked = False

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self.subscription is not None or self._stage.closed:
            subscription.cancel()
            return
        self.subscription = subscription
        if self._stage.closed:
            subscription.cancel()  # cancelled by another thread meanwhile
            return
        self._stage.wake()

    def asks(self) -> bool:
        """Ask for the next element, unless that was done; whether there is anything new now."""
        if self.subscription is not None and not self._asked and not self.done:
            self._asked = True
            self.subscription.request(1)
        return bool(self.queue) or self.done

    def took_one(self) -> None:
        self._asked = False
