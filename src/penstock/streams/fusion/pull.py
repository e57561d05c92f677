"""Streams over an iterable: the loop itself takes elements, as far as there is demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import GeneratorType
from typing import Any, Protocol

from penstock.spec import UNBOUNDED, Subscriber
from penstock.streams.errors import Place, annotate
from penstock.streams.fusion.codegen import SOURCE, Head, Tail
from penstock.streams.fusion.compiler import culprit, free_shape_of, run, shape_of, states_of
from penstock.streams.fusion.drain import FAR, Drain
from penstock.streams.fusion.link import ElementInbox
from penstock.streams.fusion.op import Labelled, Op, label_of

__all__ = ["PullDrain", "Pulled", "pull", "pull_async"]

_KNOWS_ITS_END = (list, tuple, range, str, bytes, bytearray, dict, set, frozenset, deque)
"""Their iterators know how many elements are left. Any other has to be asked for one, with demand."""


BRIEF = 16
"""A stream of so few elements is not worth a copy of its code."""


class PullDrain(Drain):
    """A subscription to an iterable."""

    head = Head.ITERABLE
    __slots__ = ("_factory", "_iterable", "_iterator", "_left", "_resting", "_size", "_trusted")

    def __init__(self, origin: IterableOrigin, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        sized = origin.sized
        self._trusted = has_no_none(sized)
        super().__init__(ops, downstream, "", origin.place, trusted=self._trusted)
        self._origin = origin
        self._factory = origin.factory
        self._iterable: Iterable[Any] | None = None
        self._iterator: Iterator[Any] | None = None
        self._left: Callable[[], int] | None = None
        self._size = 0
        """How many elements the collection had at first."""
        self._resting = False
        """The event loop lets other tasks run, and resumes us after that."""
        if sized is not None:
            self._left = partial(bool, sized)  # its len() need not fit into a machine word

    def source(self) -> Iterator[Any]:
        """Open the iterable, which is ours to close."""
        try:
            self._iterable = self._factory()
            self._iterator = iterator = iter(self._iterable)
        except StopIteration as stop:
            # The loop would take it for the end. As in a generator, it is an error here.
            raise RuntimeError(f"opening {self.name} raised StopIteration") from stop
        if self._left is not None:
            self._left = left = iterator.__length_hint__  # type: ignore[attr-defined]
            self._size = size = left()
            if size > BRIEF:
                self._set_free()
        return iterator

    def outlet(self, below: Subscriber[Any]) -> Any:
        """The subscriber itself, if the loop can put elements where it keeps them."""
        if not isinstance(below, ElementInbox) or not below.takes_elements():
            return below.on_next
        self._shape = shape_of(
            self.ops,
            self.head,
            Tail.PUSH,
            watched=self._watchers is not None,
            trusted=self._trusted,
            paced=self.is_paced(),
            inbox=True,
        )
        return below

    def _set_free(self) -> None:
        """Take a loop that does not count, if everything was requested and nobody hears of each batch."""
        if self.demand >= UNBOUNDED and self._listener is None and not self.home.paced:
            watched = self._watchers is not None
            self._shape = free_shape_of(self.ops, watched=watched, trusted=self._trusted) or self._shape

    def passed(self) -> int:
        """How many elements a free loop has taken: those that are not left.

        A list may have grown since. If it has shrunk, nobody can tell how many there were.
        """
        left, iterable = self._left, self._iterable
        assert left is not None
        return (len(iterable) if type(iterable) is list else self._size) - left()

    def more(self) -> bool:
        """Called by the loop when it has met the demand: whether it may go on with what came meanwhile.

        A subscriber that asks for one element at a time asks from inside of ``on_next``. So this is what
        drain() does with a request, written out.
        """
        if self._listener is not None:
            return False  # it hears of each batch
        box = self.mailbox
        demand = self.demand + box.popleft()
        while box:
            demand += box.popleft()
        self.demand = demand = demand if demand < UNBOUNDED else UNBOUNDED  # §3.17
        emitted = self.emitted
        if self.paused or demand > emitted + FAR:
            self.set_stop()
        else:
            self.stop_at = demand
            self.sated = False
            if self.halted:
                self._stop()  # it came while we wrote
        return emitted < self.stop_at

    def is_brief(self) -> bool:
        return self._left is not None and self._left() <= BRIEF

    def can_run(self) -> bool:
        """With demand; without it only to complete, once the source is known to be at its end."""
        self.dirty = False
        if self._resting:
            return False
        if self.demand > self.emitted:
            return True
        if self._left is None or self._left() > 0:
            return False
        self._left = None  # once only: elements that an operator adds at the end have to wait for demand
        self.at_end = True
        return True

    def rests(self) -> bool:
        """The loop asks, having run for a while, whether to let others run now."""
        self._resting = self.home.rest(self._go_on)
        if not self._resting:
            self.home = self.home.elsewhere()
        return self._resting

    def _go_on(self) -> None:
        self._resting = False
        self.dirty = True
        self.drain()

    def release(self) -> None:
        """Close the iterator, so that a generator's ``finally`` runs now."""
        iterator, iterable = self._iterator, self._iterable
        self._iterator = self._iterable = self._left = None
        close_iterator(iterator, iterable)


def knows_its_end(iterable: Iterable[Any]) -> bool:
    """Whether the end of this iterable can be seen without taking an element."""
    return type(iterable) in _KNOWS_ITS_END


def has_no_none(iterable: Iterable[Any] | None) -> bool:
    """Whether this iterable cannot contain ``None``."""
    return type(iterable) in (range, str, bytes, bytearray)


def close_iterator(iterator: Iterator[Any] | None, iterable: Iterable[Any] | None) -> None:
    """Close an iterator that we opened, or a generator; a file that the user opened stays open."""
    if isinstance(iterator, GeneratorType) or (iterator is not None and iterator is not iterable):
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


class IterableOrigin(Labelled, Protocol):
    """What a loop needs to know about its source."""

    place: Place
    factory: Callable[[], Iterable[Any]]
    sized: Iterable[Any] | None


class Pulled:
    """Adds notes to errors of a loop that a plain ``for`` runs, and closes its iterator."""

    __slots__ = ("_iterable", "_iterator", "_ops", "_origin", "_place", "_shape")

    def __init__(self, ops: tuple[Op, ...], shape: Any, name: str | Labelled, place: Place) -> None:
        self._ops = ops
        self._shape = shape
        self._origin = name
        self._place = place
        self._iterator: Iterator[Any] | None = None
        self._iterable: Iterable[Any] | None = None

    def open(self, factory: Callable[[], Iterable[Any]]) -> Iterator[Any]:
        """Open the iterable, which is ours to close."""
        try:
            self._iterable = factory()
            self._iterator = iter(self._iterable)
        except Exception as error:
            annotate(error, label_of(self._origin), self._place)
            raise
        return self._iterator

    def failed(self, error: Exception) -> Exception:
        """The error that the loop raised, with a note that names the operator."""
        index = culprit(error, self._shape)
        if isinstance(error, StopIteration | StopAsyncIteration):
            # It would look like the end of the loop. Python makes an error of it, too, but without our note.
            cause, error = error, RuntimeError(f"a function of the stream raised {type(error).__name__}")
            error.__cause__ = cause
        if index >= 0:
            annotate(error, self._ops[index].label, self._ops[index].place)
        elif index == SOURCE:
            annotate(error, label_of(self._origin), self._place)
        return error

    def close(self) -> None:
        """Close the iterator, however the loop ended."""
        close_iterator(self._iterator, self._iterable)


def pull(source: IterableOrigin, ops: tuple[Op, ...]) -> Iterator[Any]:
    """The whole chain as one generator, for ``for``."""
    return _pulled(source, ops, Tail.PULL, None)  # type: ignore[no-any-return]


def pull_async(source: IterableOrigin, ops: tuple[Op, ...], breathe: Any) -> Any:
    """The whole chain as one asynchronous generator, for ``async for``."""
    return _pulled(source, ops, Tail.ASYNC, breathe)


def _pulled(source: IterableOrigin, ops: tuple[Op, ...], tail: Tail, out: Any) -> Any:
    shape = shape_of(ops, Head.ITERABLE, tail, watched=True, trusted=has_no_none(source.sized))
    manager = Pulled(ops, shape, source, source.place)
    iterator = manager.open(source.factory)
    brief = source.sized is not None and iterator.__length_hint__() <= BRIEF  # type: ignore[attr-defined]
    return run(shape, ops, states_of(ops, shape), manager, iterator, out, source, brief=brief)
