"""Relays: stages that pass elements on and never ask for more than was asked of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber
from penstock.streams.assembly import Place
from penstock.streams.dropped import drop_error
from penstock.streams.fusion import Op, Relay

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["PlainRelay", "Switching", "below"]


class PlainRelay(Relay):
    """Passes elements through the operators below a source that has no loop of its own."""

    __slots__ = ()


def below(ops: tuple[Op, ...], downstream: Subscriber[Any], name: str, place: Place) -> Subscriber[Any]:
    """The subscriber for a source that cannot take operators into its own loop."""
    if not ops:
        return downstream
    return _Awaiting(ops, downstream, name, place)


class _Awaiting(PlainRelay):
    """A relay that calls ``on_subscribe`` below only when it is subscribed itself."""

    __slots__ = ()

    def on_subscribe(self, subscription: Any, /) -> None:
        """First tell the subscriber, then use the subscription."""
        if self.upstream is None and not self.closed:
            self.introduce()
        super().on_subscribe(subscription)


class Switching(Relay):
    """A relay that may go on with another stream when the present one ends.

    Subclasses choose it in :meth:`follow`. The new one is asked for the demand that the old one left open.
    """

    __slots__ = ("_ended", "_received_end")

    def __init__(
        self, ops: tuple[Op, ...], downstream: Subscriber[Any], name: str, place: Place | None
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._received_end = False
        self._ended: BaseException | None = None

    @abstractmethod
    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        """The stream to go on with, or None to end as the present one did (``error`` is None: complete)."""

    def on_error(self, error: BaseException, /) -> None:
        if self.closed or self._received_end:
            drop_error(error, f"a source of {self.name}, after its end")
            return
        self._end(error)

    def on_complete(self) -> None:
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._ended = error
        self._received_end = True
        self.dirty = True
        self.drain()

    def switch(self) -> bool:
        """When every element of the old upstream was sent down, go on with the next one."""
        if not self._received_end or not self._starved or self.queue:
            return False
        error, self._ended, self._received_end = self._ended, None, False
        following: Stream[Any] | None = None
        try:
            following = self.follow(error)
        except BaseException as fault:
            if fault is not error:
                self._caught(fault)  # the same error was a signal already
                if error is not None:
                    fault.__context__ = error
            error = fault
        self.dirty = True
        if following is None:
            self.done = error is None
            self.error = error
            self.upstream = None
        else:
            self.exchange()
            self.go_on_with(following)
        return True

    def release(self) -> None:
        """Forget the error of a source as well (§3.13)."""
        super().release()
        self._ended = None

    def go_on_with(self, stream: Stream[Any]) -> None:
        """Subscribe to the next stream; an exception from that ends this one."""
        try:
            stream._connect(self)
        except BaseException as fault:
            self._caught(fault)
            upstream, self.upstream = self.upstream, None
            self._received_end = False
            self.error = fault
            if upstream is not None:
                upstream.cancel()
