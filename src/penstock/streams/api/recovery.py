"""Go on after an error, or when nothing came."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.arguments import a_count, a_function, a_value, describe
from penstock.streams.errors import set_cause
from penstock.streams.fusion import Watch, operator
from penstock.streams.operators.recovery import (
    EmptyRule,
    FollowSource,
    RepeatRule,
    ResumeRule,
    Retry,
    RetryRule,
)
from penstock.streams.schedulers import shared_timer
from penstock.streams.source import IterableSource
from penstock.streams.stream import Stream, T, as_same_kind, flux_of, mono_of

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.mono import Mono
    from penstock.streams.single import Single
    from penstock.streams.stream import Streamable

__all__ = ["FluxRecovery", "MonoRecovery"]

R = TypeVar("R")
ErrorTypes = type[BaseException] | tuple[type[BaseException], ...]


class _Recovery(Stream[T]):
    """What Flux and Mono share: the streams are of the same kind as the one they recover."""

    __slots__ = ()

    def _resume(
        self, label: str, types: ErrorTypes, resume: Callable[[BaseException], Any], *shows: Any
    ) -> Any:
        def follow(error: BaseException) -> Stream[Any] | None:
            if not isinstance(error, types):
                return None
            return as_same_kind(self, resume(error), f"{label}()")

        return self._of(FollowSource(label, self, lambda: ResumeRule(follow), *shows))

    def _map_error(self, mapper: Callable[[BaseException], BaseException], types: ErrorTypes) -> Any:
        a_function(mapper, "on_error_map()")

        def failed(error: BaseException) -> BaseException:
            if not isinstance(error, types):
                return error
            mapped = mapper(error)
            if not isinstance(mapped, BaseException):
                raise TypeError(
                    f"the function of on_error_map() must return an exception, not {describe(mapped)}"
                )
            if mapped is not error and mapped.__cause__ is None:
                set_cause(mapped, error)
            return mapped

        return self._with(
            operator("watch", label="on_error_map", shows=(mapper,), watch=Watch(failed=failed))
        )

    def _retry_when(self, policy: Retry) -> Any:
        if not isinstance(policy, Retry):
            raise TypeError(
                f"retry_when() needs a policy such as Retry.backoff(5, first=0.1), not {describe(policy)}; "
                "to try again at once, so many times, use retry(times)"
            )

        def rule() -> RetryRule:
            return RetryRule(self, policy.pause, policy.scheduler, policy.transient)

        return self._of(FollowSource("retry_when", self, rule, policy.attempts))

    def _retry_at_once(self, times: int | None) -> Any:
        times = None if times is None else a_count(times, "retry()")

        def pause(attempt: int, error: BaseException) -> float:
            if not isinstance(error, Exception) or (times is not None and attempt > times):
                raise error
            return 0.0

        shows = () if times is None else (times,)
        return self._of(FollowSource("retry", self, lambda: RetryRule(self, pause, shared_timer), *shows))


def _one(value: Any, label: str) -> Any:
    return flux_of(IterableSource.over("just", (a_value(value, f"{label}()"),), value))


def _none() -> Any:
    return flux_of(IterableSource.over("empty", ()))


class FluxRecovery(_Recovery[T]):
    """Operators of a Flux that deal with errors and emptiness."""

    __slots__ = ()

    def on_error_resume(
        self, resume: Callable[[BaseException], Streamable[R]], *, on: ErrorTypes = Exception
    ) -> Flux[T | R]:
        """After an error, go on with the stream that ``resume(error)`` returns.

        >>> broken = Flux.just(1, 0).map(lambda x: 1 // x)
        >>> broken.on_error_resume(lambda error: Flux.just(-1)).collect_list().block()
        [1, -1]

        Only errors of the types ``on`` are caught. An error of the second stream is final.

        Emits when the present stream does.
        Backpressures when its subscriber does; the second stream gets the demand that is left.
        Completes when the present stream does.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-#
            b: x-y|
            a.on_error_resume(lambda error: b)
            >  1-x-y|
        """
        a_function(resume, "on_error_resume()", may_await=True)
        return self._resume("on_error_resume", on, resume, resume)

    def on_error_return(self, value: R, *, on: ErrorTypes = Exception) -> Flux[T | R]:
        """In place of an error, send ``value`` and complete.

        Emits when the source does, and once more after an error.
        Backpressures when its subscriber does.
        Completes when the source completes, or ``value`` has been sent.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-#
            a.on_error_return(9)
            >  1-(9|)
        """
        fallback = _one(value, "on_error_return")
        return self._resume("on_error_return", on, lambda error: fallback, value)

    def on_error_complete(self, *, on: ErrorTypes = Exception) -> Flux[T]:
        """In place of an error, complete.

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes or fails.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-#
            a.on_error_complete()
            >  1-|
        """
        return self._resume("on_error_complete", on, lambda error: _none())

    def on_error_map(
        self, mapper: Callable[[BaseException], BaseException], *, on: ErrorTypes = Exception
    ) -> Flux[T]:
        """Replace an error by the one that ``mapper`` makes of it; the original becomes its cause.

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-#
            a.on_error_map(lambda error: OSError("lost"))
            >  1-#
            where # = OSError
        """
        return self._map_error(mapper, on)

    def retry(self, times: int | None = None) -> Flux[T]:
        """After an error subscribe to the source again, at once; ``times`` times at most, or for ever.

        What was sent before the error has been sent: the subscriber sees the elements of each attempt.

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-#
            a.retry(1)
            >  1-1-#
        """
        return self._retry_at_once(times)

    def retry_when(self, policy: Retry) -> Flux[T]:
        """After an error subscribe to the source again as ``policy`` says: with pauses that grow, and jitter.

        >>> feed = Flux.error(ConnectionError("refused"))
        >>> feed.retry_when(Retry.backoff(2, first=0.001)).on_error_return("gave up").block_first()
        'gave up'

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, also during a pause.

        Marble::

            a: 1-#
            a.retry_when(Retry.fixed(1, pause=0.03))
            >  1----1-#
            where # = RetryExhausted
        """
        return self._retry_when(policy)

    def repeat(self, times: int | None = None) -> Flux[T]:
        """After its end subscribe to the source again: ``times`` more times, or for ever.

        >>> Flux.just(1, 2).repeat(1).collect_list().block()
        [1, 2, 1, 2]

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the last repetition has completed.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2|
            a.repeat(1)
            >  1-21-2|
        """
        times = None if times is None else a_count(times, "repeat()", least=0)
        shows = () if times is None else (times,)
        return flux_of(FollowSource("repeat", self, lambda: RepeatRule(self, times), *shows))

    def switch_if_empty(self, alternative: Streamable[R]) -> Flux[T | R]:
        """If the source completes without an element, go on with ``alternative``.

        >>> Flux.empty().switch_if_empty(Flux.just("nothing")).collect_list().block()
        ['nothing']

        Emits when the present stream does.
        Backpressures when its subscriber does.
        Completes when the present stream does.
        Cancels when its subscriber cancels.

        Marble::

            a: --|
            b: x-y|
            a.switch_if_empty(b)
            >  --x-y|
        """
        other = as_same_kind(self, alternative, "switch_if_empty()")
        return flux_of(FollowSource("switch_if_empty", self, lambda: EmptyRule(other)))


class MonoRecovery(_Recovery[T]):
    """Operators of a Mono that deal with errors and emptiness."""

    __slots__ = ()

    def on_error_resume(
        self, resume: Callable[[BaseException], Streamable[R]], *, on: ErrorTypes = Exception
    ) -> Mono[T | R]:
        """After an error, go on with the Mono that ``resume(error)`` returns.

        Emits when the present Mono does.
        Backpressures when its subscriber does.
        Completes when the present Mono does.
        Cancels when its subscriber cancels.

        Marble::

            mono_a: --#
            mono_b: --(x|)
            mono_a.on_error_resume(lambda error: mono_b)
            >       ----(x|)
        """
        a_function(resume, "on_error_resume()", may_await=True)
        return self._resume("on_error_resume", on, resume, resume)

    def on_error_return(self, value: R, *, on: ErrorTypes = Exception) -> Mono[T | R]:
        """In place of an error, send ``value``.

        >>> Mono.error(ValueError()).on_error_return("fallback").block()
        'fallback'

        Emits when the source does, or after an error.
        Backpressures when its subscriber does.
        Completes when the source completes, or ``value`` has been sent.
        Cancels when its subscriber cancels.

        Marble::

            mono: --#
            mono.on_error_return(9)
            >     --(9|)
        """
        fallback = _one(value, "on_error_return")
        return self._resume("on_error_return", on, lambda error: fallback, value)

    def on_error_complete(self, *, on: ErrorTypes = Exception) -> Mono[T]:
        """In place of an error, complete empty.

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes or fails.
        Cancels when its subscriber cancels.

        Marble::

            mono: --#
            mono.on_error_complete()
            >     --|
        """
        return self._resume("on_error_complete", on, lambda error: _none())

    def on_error_map(
        self, mapper: Callable[[BaseException], BaseException], *, on: ErrorTypes = Exception
    ) -> Mono[T]:
        """Replace an error by the one that ``mapper`` makes of it; the original becomes its cause.

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            mono: --#
            mono.on_error_map(lambda error: OSError("lost"))
            >     --#
            where # = OSError
        """
        return self._map_error(mapper, on)

    def retry(self, times: int | None = None) -> Mono[T]:
        """After an error subscribe to the source again, at once; ``times`` times at most, or for ever.

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            mono: --#
            mono.retry(1)
            >     ----#
        """
        return self._retry_at_once(times)

    def retry_when(self, policy: Retry) -> Mono[T]:
        """After an error subscribe to the source again as ``policy`` says: with pauses that grow, and jitter.

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, also during a pause.

        Marble::

            mono: --#
            mono.retry_when(Retry.fixed(1, pause=0.03))
            >     -------#
            where # = RetryExhausted
        """
        return self._retry_when(policy)

    def repeat(self, times: int | None = None) -> Flux[T]:
        """After its end subscribe to the Mono again: ``times`` more times, or for ever.

        Emits when the source does.
        Backpressures when its subscriber does.
        Completes when the last repetition has completed.
        Cancels when its subscriber cancels.

        Marble::

            mono: --(x|)
            mono.repeat(1)
            >     --x-(x|)
        """
        return self._as_flux().repeat(times)

    @overload
    def switch_if_empty(self, alternative: Single[R]) -> Single[T | R]: ...
    @overload
    def switch_if_empty(self, alternative: Streamable[R]) -> Mono[T | R]: ...
    def switch_if_empty(self, alternative: Streamable[Any]) -> Mono[Any]:
        """If the source is empty, go on with ``alternative``.

        >>> Mono.empty().switch_if_empty(Mono.just("nothing")).block()
        'nothing'

        Emits when the present Mono does.
        Backpressures when its subscriber does.
        Completes when the present Mono does.
        Cancels when its subscriber cancels.

        Marble::

            mono_a: --|
            mono_b: --(x|)
            mono_a.switch_if_empty(mono_b)
            >       ----(x|)
        """
        other = as_same_kind(self, alternative, "switch_if_empty()")
        return mono_of(FollowSource("switch_if_empty", self, lambda: EmptyRule(other)))
