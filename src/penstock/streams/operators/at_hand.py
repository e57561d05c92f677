"""Elements that exist already: a stream over a short list or a range, without operators.

A stage that reads such a stream from inside (``flat_map``, ``concat_map``) does not subscribe to it. It takes
the elements out of the collection and puts them into its own queue, as many as it would have requested. The
user cannot tell the difference: no function of the user's runs between two elements of a list.
"""

from __future__ import annotations

import sys
from itertools import islice, repeat
from operator import is_
from typing import TYPE_CHECKING, Any

from penstock.streams.events import listener_for_new_streams
from penstock.streams.source import IterableSource

if TYPE_CHECKING:
    from penstock.streams.home import Home
    from penstock.streams.operators.concat import Switching
    from penstock.streams.stream import Stream

__all__ = ["HANDFUL", "AtHand", "HandfulSubscription", "elements_at_hand"]

HANDFUL = 256
"""How many elements go from hand to hand in one step."""
FEW = 1024
"""A list is not looked through for ``None`` if it has more elements than this."""


class AtHand:
    """Takes elements out of a collection."""

    __slots__ = ("_iterator", "_left")

    def __init__(self, collection: Any) -> None:
        self._iterator = iter(collection)
        self._left = self._iterator.__length_hint__

    def take(self, n: int) -> list[Any]:
        """The next ``n`` elements, or as many as there are."""
        return list(islice(self._iterator, min(n, sys.maxsize)))

    def at_end(self) -> bool:
        """Whether there is no further element."""
        return not self._left()


def elements_at_hand(stream: Stream[Any], home: Home) -> AtHand | None:
    """The elements of ``stream`` if they are at hand; None if it has to be subscribed to.

    A long range is subscribed to where an event loop waits, because its subscription lets others run. So is
    a list with ``None`` in it, which fails there with the name of its source, and any stream that a listener
    wants to hear of.
    """
    source = stream._source
    if stream._ops or type(source) is not IterableSource or listener_for_new_streams() is not None:
        return None
    elements: Any = source.sized
    kind = type(elements)
    if kind is tuple or kind is list:
        if len(elements) > FEW or any(map(is_, elements, repeat(None))):
            return None
    elif kind is not range or (home.paced and elements[HANDFUL:]):
        return None
    return AtHand(elements)


class HandfulSubscription:
    """The upstream of a stage that takes a stream's elements by the handful: a request fills its queue."""

    __slots__ = ("_elements", "_over", "_stage")

    def __init__(self, elements: AtHand, stage: Switching) -> None:
        self._elements = elements
        self._stage = stage
        self._over = False

    def begin(self) -> None:
        """Become the upstream of the stage; an empty stream ends without a request."""
        self._stage.most = HANDFUL
        self._stage.on_subscribe(self)
        if self._elements.at_end():
            self._end()

    def request(self, n: int, /) -> None:
        """Hand the elements over. The stage asks again when it has sent them on."""
        if self._over:
            return
        self._stage.queue.extend(self._elements.take(n))
        if self._elements.at_end():
            self._end()
        else:
            self._stage.dirty = True
            self._stage.drain()

    def cancel(self) -> None:
        """Nothing runs that could be stopped."""
        self._over = True

    def _end(self) -> None:
        self._over = True
        self._stage.on_complete()
