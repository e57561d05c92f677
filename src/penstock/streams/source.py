"""Where the elements of a stream come from, and how deep a stack the stream needs.

Subscribing walks from the subscriber up to the source. Synchronous operators share one loop, so a thousand of
them cost one stack frame. An operator with a queue of its own calls the next one, and a chain of hundreds of
these would end in a RecursionError in the middle of a signal, so a stream checks the stack before it starts.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.arguments import describe_all
from penstock.spec import Publisher, Subscriber
from penstock.streams.errors import Place, here
from penstock.streams.fusion import Op, PullDrain, QueueDrain, Relay, knows_its_end

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["IterableSource", "Next", "PublisherSource", "Source", "StageSource", "frames_needed", "too_deep"]

Next = tuple["Stream[Any]", Subscriber[Any]]
"""The stream to subscribe to next, and its subscriber."""


class Source(ABC):
    """The top of a compiled segment: an iterable, a foreign publisher, or an asynchronous operator.

    A source runs the synchronous operators below it (``ops``) in its own loop, instead of passing each
    element through another stage.
    """

    ahead: int | None = None
    """How many elements to ask for at a time, if they can be large; reading ahead then counts bytes, too."""
    in_place: Callable[[], Coroutine[Any, Any, Any]] | None = None
    """What ``await`` runs itself, if the element has to be closed: one that has come is then never lost to a
    cancel. None for others, and it is not used if there are operators below."""
    boundary: int | None = None
    """The prefetch of this source's queue between two resources; None if it has none."""

    frames: int = 5
    """How many stack frames an element needs to get through this source's stage."""
    stack: int = 0
    """The same for this source and all above it; 0 if not computed yet."""

    def __init__(self, label: str, *shows: Any) -> None:
        self._name = label
        self._shows = shows
        self.place: Place = here(2)

    @cached_property
    def label(self) -> str:
        """The call that made it, as ``explain()`` and messages show it."""
        return f"{self._name}({describe_all(self._shows)})"

    @abstractmethod
    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Subscribe ``downstream`` through ``ops``.

        If this source has one upstream, it returns that and the subscriber for it; the caller connects them
        in a loop, so that a long chain needs no deep stack.
        """

    def upstreams(self) -> list[Stream[Any]]:
        """The streams that feed this source."""
        return []

    def frames_on_top_of(self, above: int) -> int:
        """The stack that this source needs if what stands above it needs ``above`` frames."""
        return above + self.frames

    def queue(self) -> str | None:
        """The bound of the queue in front of this source, as ``explain()`` shows it; None if it has none."""
        return None if self.boundary is None else str(self.boundary)

    def runs_on(self) -> str:
        """The resource that elements come from, as ``explain()`` shows it."""
        return "caller"


class StageSource(Source):
    """An operator with one upstream; ``stage`` makes the stage for each subscriber."""

    frames = 8

    def __init__(
        self, label: str, upstream: Stream[Any], boundary: int, stage: Callable[..., QueueDrain], *shows: Any
    ) -> None:
        super().__init__(label, *shows)
        self._upstream = upstream
        self._stage = stage
        self.boundary = boundary

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        stage = self._stage(ops, downstream, self.label, self.place)
        stage.introduce()
        return None if stage.closed else (self._upstream, stage)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return self._upstream._source.runs_on()


class IterableSource(Source):
    """Elements of an iterable, opened anew for each subscriber."""

    stack = Source.frames

    def __init__(self, label: str, factory: Callable[[], Iterable[Any]], *shows: Any) -> None:
        super().__init__(label, *shows)
        self.factory = factory
        self.sized: Iterable[Any] | None = None

    @classmethod
    def over(cls, label: str, iterable: Iterable[Any], *shows: Any) -> IterableSource:
        """A source over an iterable that exists already."""
        if knows_its_end(iterable):
            source = cls(label, lambda: iterable, *shows)
            source.sized = iterable
            return source
        if isinstance(iterable, Iterator):
            return cls(label, _once(iterable), *shows)
        return cls(label, lambda: iterable, *shows)

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Run the whole chain in one loop."""
        PullDrain(self, ops, downstream).introduce()


def _once(iterator: Iterator[Any]) -> Callable[[], Iterator[Any]]:
    """An iterator can be used once; a second subscriber gets an error, not an empty stream."""
    unused = [iterator]

    def factory() -> Iterator[Any]:
        try:
            return unused.pop()
        except IndexError:
            raise RuntimeError(
                f"this {type(iterator).__name__} was used up by an earlier subscriber; "
                "pass a list, or defer(lambda: Flux.from_iterable(...)) that makes a new one each time"
            ) from None

    return factory


class PublisherSource(Source):
    """Elements of a foreign publisher."""

    def __init__(self, publisher: Publisher[Any]) -> None:
        super().__init__("from_publisher", publisher)
        self.publisher = publisher

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Subscribe to it, with a relay for the operators if there are any."""
        if not ops:
            self.publisher.subscribe(downstream)
            return
        relay = Relay(ops, downstream, self.label, self.place)
        relay.introduce()
        self.publisher.subscribe(relay)


SAFE = 400
"""Streams that need no more frames than this are not checked any further."""
RESERVE = 150
"""Frames left to the user's own functions."""


def too_deep(source: Source, below: int = 0) -> RecursionError | None:
    """The error to fail with if the present stack cannot hold this stream.

    ``below`` are the frames that an element needs from here down to the subscriber. A stream that is defined
    by recursion adds a stage below with each step, so the stages above alone do not show its depth.
    """
    needed = source.stack or frames_needed(source)
    if needed + below <= SAFE:
        return None
    free = sys.getrecursionlimit() - RESERVE - needed
    if below <= free and not _is_deeper_than(free):
        return None
    if below > needed:
        return RecursionError(
            f"this stream calls itself so often that an element would need about "
            f"{below + needed} stack frames, and Python allows {sys.getrecursionlimit()}; use generate() or "
            "expand() instead of a stream that calls itself, or raise sys.setrecursionlimit()"
        )
    return RecursionError(
        f"this stream has so many asynchronous operators that it needs about {needed} stack "
        f"frames, and Python allows {sys.getrecursionlimit()}; call sys.setrecursionlimit({needed * 2}) "
        "before subscribing, or break it with publish_on()"
    )


def frames_needed(source: Source) -> int:
    """The frames of this source and of all above it on the same stack; worked out without recursion."""
    unknown = [source]
    while unknown:
        top = unknown[-1]
        above = [stream._source for stream in top.upstreams()]
        missing = [each for each in above if not each.stack]
        if missing:
            unknown += missing
            continue
        top.stack = top.frames_on_top_of(max((each.stack for each in above), default=0))
        unknown.pop()
    return source.stack


def _is_deeper_than(frames: int) -> bool:
    """Whether the present stack has more frames than these."""
    if frames < 0:
        return True
    # Not by f_back, which makes an object of each frame: each inner stream of a deep chain asks this.
    try:
        sys._getframe(frames)
    except ValueError:
        return False
    return True
