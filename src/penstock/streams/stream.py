"""What ``Flux`` and ``Mono`` have in common: a source and the operators below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from penstock.spec import Subscriber, check_subscriber
from penstock.streams.fusion import Op
from penstock.streams.operators.sources import FailedSource
from penstock.streams.source import IterableSource, Source, too_deep

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono

__all__ = ["Stream", "T", "flux_of", "mono_of"]

T = TypeVar("T")


class Stream(Generic[T]):
    """An immutable description of a stream, a Flux or a Mono. Nothing happens before somebody subscribes."""

    __slots__ = ("_ops", "_source")
    _source: Source
    _ops: tuple[Op, ...]

    @classmethod
    def _of(cls, source: Source, ops: tuple[Op, ...] = ()) -> Self:
        stream = cls.__new__(cls)
        stream._source = source
        stream._ops = ops
        return stream

    def _with(self, op: Op) -> Any:
        """The same kind of stream with one more operator; typed by the fluent method that calls it."""
        return self._of(self._source, (*self._ops, op))

    def _as_mono(self, op: Op) -> Mono[Any]:
        """A Mono of this stream's operators and one more, which lets at most one element through."""
        return mono_of(self._source, *self._ops, op)

    def _as_flux(self, *more: Op) -> Flux[Any]:
        """A Flux of the same source and operators, and perhaps more."""
        return flux_of(self._source, *self._ops, *more)

    def _connect(self, downstream: Subscriber[Any]) -> None:
        """Subscribe without checks: for our own operators."""
        error = too_deep(self._source, getattr(downstream, "below", 0))
        if error is not None:
            FailedSource(error, self._source.label).attach(self._ops, downstream)
            return
        step = self._source.attach(self._ops, downstream)
        while step is not None:
            stream, subscriber = step
            step = stream._source.attach(stream._ops, subscriber)

    def _subscribe(self, subscriber: Subscriber[Any]) -> None:
        check_subscriber(subscriber)  # §1.9
        self._connect(subscriber)

    @property
    def _pullable(self) -> bool:
        """Whether a plain loop can run this stream: over an iterable, without operators that watch."""
        return isinstance(self._source, IterableSource) and all(op.watch is None for op in self._ops)

    def __repr__(self) -> str:
        chain = " ".join([self._source.label, *(op.label for op in self._ops)])
        return f"<{type(self).__name__} {chain}>"


# Flux imports all modules of api/, so these cannot import Flux at their top: they make one here.


def flux_of(source: Source, *ops: Op) -> Flux[Any]:
    """A Flux of this source; typed by the fluent method that calls it."""
    from penstock.streams.flux import Flux

    return Flux._of(source, ops)


def mono_of(source: Source, *ops: Op) -> Mono[Any]:
    """A Mono of this source, which sends one element at most; typed by the fluent method that calls it."""
    from penstock.streams.mono import Mono

    return Mono._of(source, ops)
