"""A history with a time to live: a new subscriber receives nothing that is older."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED
from penstock.streams.fusion import Watch, operator
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.operators.replay_buffer import BufferCursor, EmitResult, ReplayBuffer
from penstock.streams.operators.share import CacheSource

if TYPE_CHECKING:
    from penstock.streams.mono import Mono
    from penstock.streams.stream import Stream

__all__ = ["ExpiringBuffer", "ExpiringCursor", "ExpiringMono"]


class ExpiringBuffer(ReplayBuffer):
    """Keeps each element together with the time at which it came.

    What a subscriber that is there has not read yet does not expire: the time to live is about late
    subscribers.
    """

    def __init__(self, capacity: int, history: int, ttl: float, now: Callable[[], float]) -> None:
        super().__init__(capacity, history)
        self._ttl = ttl
        self._now = now

    def append_asked(self, element: Any) -> EmitResult:
        self._forget_expired()
        return super().append_asked((self._now(), element))

    def join(self, cursor: BufferCursor) -> bool:
        self._forget_expired()
        return super().join(cursor)

    def oldest(self) -> float:
        """The time since when an element must have come, for a subscriber that comes now."""
        return self._now() - self._ttl

    def _forget_expired(self) -> None:
        """Without this, an unbounded history would grow for ever."""
        oldest = self.oldest()
        with self._mutex:
            first = self._forgotten
            expired, read = 0, self._read_by_all()
            while expired < read and self._elements[first + expired][0] <= oldest:
                expired += 1
            self._forget(expired)


class ExpiringCursor(BufferCursor):
    """Reads the elements without their times, and leaves out those that had expired when it came."""

    __slots__ = ("_since",)
    _buffer: ExpiringBuffer

    def __init__(self, buffer: ExpiringBuffer, *arguments: Any) -> None:
        super().__init__(buffer, *arguments)
        self._since = buffer.oldest()

    def source(self) -> Callable[[], Any]:
        buffer, since = self._buffer, self._since

        def read() -> Any:
            while (stamped := buffer.read(self)) is not PENDING:
                time, element = stamped
                if time > since:
                    return element
            return PENDING

        return read


class ExpiringMono:
    """``Mono.cache(ttl)``: runs the source again when its result is too old."""

    def __init__(self, source: Stream[Any], ttl: float, now: Callable[[], float]) -> None:
        self._source = source
        self._ttl = ttl
        self._now = now
        self._mutex = allocate_lock()
        self._present: Mono[Any] | None = None
        self._expires: float | None = None
        """When the result that is there becomes too old; None while the source runs."""

    def present(self) -> Mono[Any]:
        """The run that a new subscriber shares."""
        with self._mutex:
            if self._present is None or (self._expires is not None and self._now() >= self._expires):
                self._expires = None
                self._present = self._new()
            return self._present

    def _new(self) -> Mono[Any]:
        from penstock.streams.mono import Mono

        watch = Watch(completed=self._settled, failed=lambda _: self._settled())
        watched = self._source._with(operator("watch", label="cache", shows=(), watch=watch))
        return Mono._of(CacheSource("cache", watched, UNBOUNDED, UNBOUNDED, lasting=True))

    def _settled(self) -> None:
        with self._mutex:
            self._expires = self._now() + self._ttl
