"""``switch_map``: only the stream of the newest element runs.

Each inner stream has a queue of its own, and the stage polls the queue of the present one. So the switch is
one assignment, and an element that the old stream sends too late ends up in a queue that nobody reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import Place, drop_error
from penstock.streams.fusion import Op, Pausable
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.fusion.queue_drain import needed_above
from penstock.streams.operators.flat_map import Inner, ManySources, Outer
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["SwitchMapSource"]


class SwitchMapSource(Source):
    """``switch_map``: the next element of the source ends the stream of the one before."""

    frames = 14

    def __init__(
        self, upstream: Stream[Any], to_stream: Callable[[Any], Stream[Any]], mapper: Callable[[Any], Any]
    ) -> None:
        super().__init__("switch_map", mapper)
        self._upstream = upstream
        self._to_stream = to_stream

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Ask the source for everything: an element that waited would be an old one."""
        stage = _SwitchMapping(self._to_stream, ops, downstream, self.label, self.place)
        stage.outer = Outer(stage, stage.switch_to, UNBOUNDED)
        stage.sources.add(stage.outer)
        stage.introduce()
        return None if stage.closed else (self._upstream, stage.outer)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return "sources"


class _SwitchMapping(ManySources):
    """Asks the present inner stream for exactly what the operators below need to meet the open demand."""

    __slots__ = ("_owed", "_present", "_to_stream", "outer")
    outer: Outer

    def __init__(
        self,
        to_stream: Callable[[Any], Stream[Any]],
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._to_stream = to_stream
        self._present: _PresentInner | None = None
        self._owed: deque[tuple[Subscription, int]] = deque()

    def switch_to(self, element: Any) -> None:
        """Cut the old stream off, then open the one for this element; the source calls this serially."""
        inner = _PresentInner(self)
        old, self._present = self._present, inner
        if old is not None:
            self.sources.discard(old)
            old.cancel()
            old.drop_failure()
        self.add(inner)
        self._to_stream(element)._connect(inner)

    def is_present(self, inner: _PresentInner) -> bool:
        """Whether elements of this inner stream may go down."""
        return self._present is inner and not self.closed

    def poll(self) -> Any:
        inner = self._present
        if inner is None or not inner.queue:
            return PENDING
        return inner.take()

    def finished(self) -> bool:
        # The order of the looks matters: no inner stream comes after the outer one is done, and no element
        # of an inner stream after that one is done.
        if not self.outer.done:
            return False
        inner = self._present
        return inner is None or (inner.done and not inner.queue)

    def due_error(self) -> BaseException | None:
        """An error of the source at once; one of the inner stream after its elements."""
        inner = self._present
        # An error comes after all elements, so the queue must be looked at after it.
        if self.error is None and inner is not None and inner.has_failed and not inner.queue:
            self.error = inner.take_failure()
        return self.error

    def wanted(self) -> int:
        inner = self._present
        subscription = None if inner is None else inner.subscription
        if self.paused or inner is None or subscription is None or inner.done:
            return 0
        n = inner.owes(needed_above(self))
        if n > 0:
            self._owed.append((subscription, n))
        return n

    def ask(self, n: int) -> None:
        while self._owed:
            try:
                subscription, n = self._owed.popleft()
            except IndexError:
                return  # another thread took it
            subscription.request(n)

    def can_pause(self) -> bool:
        """If the inner stream can."""
        inner = self._present
        return inner is None or inner.can_pause()

    def pause(self) -> None:
        """Pause the inner stream, too: it was asked for as much as we were."""
        super().pause()
        if (inner := self._present) is not None and isinstance(above := inner.subscription, Pausable):
            above.pause()

    def resume(self) -> None:
        """Let the inner stream go on, too, unless its first element has paused us again."""
        super().resume()
        if self.paused or (inner := self._present) is None:
            return
        if isinstance(above := inner.subscription, Pausable):
            above.resume()

    def waiting(self) -> list[Any]:
        inner = self._present
        return [] if inner is None else list(inner.queue)

    def release(self) -> None:
        super().release()
        inner, self._present = self._present, None
        self._owed.clear()
        if inner is not None:
            inner.drop_failure()


class _PresentInner(Inner):
    """Subscribes to the stream of one element. Once it is not the present one any more, nobody reads it."""

    __slots__ = ("_asked", "_failures", "_most")
    _stage: _SwitchMapping

    def __init__(self, stage: _SwitchMapping) -> None:
        super().__init__(stage, 1)
        self._asked = 0
        self._most = UNBOUNDED
        """How many elements may be on their way at once."""
        self._failures: deque[BaseException] = deque()
        """At most one; whoever takes it out, the stage or the switch, deals with it."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self.subscription is not None or not self._stage.is_present(self):
            subscription.cancel()
            return
        self.subscription = subscription
        if not self._stage.is_present(self):
            subscription.cancel()  # another thread switched or cancelled meanwhile
            return
        self._stage.wake()

    def on_next(self, element: Any, /) -> None:
        if self._stage.is_present(self):
            self.queue.append(element)
            self._stage.wake()

    def on_error(self, error: BaseException, /) -> None:
        self.subscription = None  # not done: see Outer
        self._failures.append(error)
        if self._stage.is_present(self):
            self._stage.wake()
        else:
            self.drop_failure()

    def owes(self, need: int) -> int:
        """What to ask for so that ``need`` elements are on their way or in the queue. Only the owner asks."""
        if self._asked >= UNBOUNDED:
            return 0
        if need > self._most:
            if self._may_ask_for_all():
                self._most = UNBOUNDED
            else:
                need = self._most
        n = need if need >= UNBOUNDED else need - (self._asked - self._taken)
        if n > 0:
            self._asked = UNBOUNDED if n >= UNBOUNDED else self._asked + n
        return n if n > 0 else 0

    def expect_large(self, step: int) -> bool:
        """If the queue below relies on a pause, ask for a few at a time until this stream can be paused."""
        if self.subscription is None:
            self._most = step
        is_relied_on = self._stage.expect_large(step)
        if not is_relied_on:
            self._most = UNBOUNDED
        return is_relied_on

    def can_pause(self) -> bool:
        """If this stream can, or was asked for a few elements only."""
        return self._most < UNBOUNDED or self._may_ask_for_all()

    def _may_ask_for_all(self) -> bool:
        above = self.subscription
        return isinstance(above, Pausable) and above.can_pause()

    def take(self) -> Any:
        self._taken += 1
        return self.queue.popleft()

    @property
    def has_failed(self) -> bool:
        return bool(self._failures)

    def take_failure(self) -> BaseException | None:
        """The error of this stream, for one taker."""
        try:
            return self._failures.popleft()
        except IndexError:
            return None

    def drop_failure(self) -> None:
        """Report an error that cannot go down any more."""
        error = self.take_failure()
        if error is not None:
            drop_error(error, f"a stream of {self._stage.name}, after the next one took its place")

    def cancel(self) -> None:
        # The queue is left alone: the owner of the stage may just be taking from it.
        subscription = self.subscription
        if subscription is not None and not self.done:
            subscription.cancel()
