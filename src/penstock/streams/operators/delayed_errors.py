"""``…_delay_error``: errors wait until every stream has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber
from penstock.streams.errors import Place, annotate, together
from penstock.streams.fusion import Op
from penstock.streams.operators.recovery import ConcatSource, FollowSource, ResumeRule
from penstock.streams.operators.sources import FailedSource
from penstock.streams.source import IterableSource, Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["DelayErrorSource", "Failures"]


class Failures:
    """The errors of the streams in one run. What is not an Exception, such as Ctrl-C, does not wait."""

    __slots__ = ("_kept", "_label", "_place")

    def __init__(self, label: str, place: Place) -> None:
        self._label = label
        self._place = place
        self._kept: list[BaseException] = []

    def of(self, stream: Stream[Any]) -> Stream[Any]:
        """The same stream; it completes in place of an error, which is kept."""
        return stream._of(FollowSource(self._label, stream, lambda: ResumeRule(self._keep)))

    def calling(self, to_stream: Callable[[Any], Stream[Any]]) -> Callable[[Any], Stream[Any]]:
        """The same function; an exception that it raises is the error of that one stream."""

        def call(element: Any) -> Stream[Any]:
            try:
                return self.of(to_stream(element))
            except Exception as error:
                annotate(error, self._label, self._place)
                self._kept.append(error)
                return _nothing()

        return call

    def _keep(self, error: BaseException) -> Stream[Any] | None:
        if not isinstance(error, Exception):
            return None
        self._kept.append(error)
        return _nothing()

    def end(self) -> Source:
        """What follows after all streams: completion, or what was kept."""
        if not self._kept:
            return IterableSource.over("empty", ())
        return FailedSource(together(self._kept, f"{len(self._kept)} failures in {self._label}"), self._label)


def _nothing() -> Stream[Any]:
    from penstock.streams.flux import Flux

    return Flux._of(IterableSource.over("empty", ()))


class DelayErrorSource(Source):
    """Makes, for each subscriber, a stream whose parts put their errors into the same :class:`Failures`."""

    frames = 9

    def __init__(
        self,
        label: str,
        upstreams: tuple[Stream[Any], ...],
        combine: Callable[[Failures], Source],
        *shows: Any,
    ) -> None:
        super().__init__(label, *shows)
        self._upstreams = upstreams
        self._combine = combine

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next:
        from penstock.streams.flux import Flux

        failures = Failures(self.label, self.place)
        parts: tuple[Stream[Any], ...] = (
            Flux._of(self._combine(failures)),
            Flux._of(_EndSource(failures)),
        )
        return Flux._of(ConcatSource(self.label, parts), ops), downstream

    def upstreams(self) -> list[Stream[Any]]:
        return list(self._upstreams)

    def runs_on(self) -> str:
        return "sources"


class _EndSource(Source):
    """Subscribed to when everything else has ended."""

    def __init__(self, failures: Failures) -> None:
        super().__init__("failures")
        self._failures = failures

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        return self._failures.end().attach(ops, downstream)
