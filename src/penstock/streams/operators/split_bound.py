"""What waits in the parts of a stream that was split, bounded in bytes.

The parts of ``group_by``, ``window``, ``partition`` and ``route`` have one source, so what waits in all of
them together is bounded. A source that is held for one reader may be what another one needs (``zip`` of two
groups, say). The bound in elements is wide enough for most of these programs, and a few large elements are
not. So a bound in bytes has to give way: when nothing has moved for a while and a reader waits for an
element, the splitter lifts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.spec import UNBOUNDED, Subscription
from penstock.streams.fusion import Pausable
from penstock.streams.operators.read_ahead import BYTES_AHEAD, SMALL, ByteBound

if TYPE_CHECKING:
    from penstock.streams.operators.branch import Branch

__all__ = ["SplitBound"]


MOST: Final = 256
"""How many elements are asked for at a time, at most."""


class SplitBound(ByteBound):
    """Holds the source of a splitter while too many bytes wait in its branches.

    A source that can be paused is asked for all that the splitter wants. Any other is asked for a few
    elements at a time, and for none while it is held.
    """

    __slots__ = ("_step", "closed", "holds", "is_watched", "moves")

    def __init__(self, step: int, waiting: Callable[[], Sequence[Any]]) -> None:
        super().__init__(step, waiting)
        self._step = step
        self.holds = False
        """The source can be paused."""
        self.closed: list[Branch] = []
        """Branches that have ended, in which elements may still wait."""
        self.moves = 0
        """How often readers have said that they took something."""
        self.is_watched = False
        """Somebody looks in a moment whether the bound has stopped everything."""

    def begin(self, subscription: Subscription) -> None:
        """This is the source."""
        self._subscription = subscription

    def can_hold(self) -> bool:
        """Whether the source can be paused. Once it has sent something, it knows."""
        above = self._subscription
        self.holds = isinstance(above, Pausable) and above.can_pause()
        # A source that cannot be paused needs no call for each element: limit() measures before each request.
        self.small = SMALL if self.holds else UNBOUNDED
        return self.holds

    def came(self, element: Any) -> bool:
        """Measure an element that was put into a branch; True if the source may be asked for more by now."""
        is_first = not self.holds and not self.small and self.can_hold()
        if is_first:
            self.stalled = False  # it was only not asked so far; from now on it is paused
        if self.holds:
            self.measured(element)
        return is_first

    def took(self) -> None:
        """A reader has taken elements: the source goes on if it was paused and half of the bytes are gone."""
        if self.holds:
            self.go_on_if_half_empty()

    def limit(self, wanted: int, on_the_way: int) -> int:
        """How many of the elements that the splitter wants it may ask for now."""
        if self.holds:
            # Never all: a framing that is asked for everything takes in every chunk, paused or not.
            free = MOST - on_the_way
            return wanted if wanted <= free else free if on_the_way <= MOST >> 2 else 0
        self.stalled = self._bytes() >= BYTES_AHEAD
        return 0 if self.stalled else max(0, min(wanted, self._step - on_the_way))

    def lift(self) -> None:
        """Hold the source no more."""
        if self.holds and self.stalled:
            self._subscription.resume()
