"""Single: a Mono that is never empty, as type checkers see it.

A Mono may be empty, so ``await mono`` is the element *or None*. Many a Mono always has its element, or fails:
that of ``just``, ``count``, ``collect_list``, ``single``, ``default_if_empty``. Type checkers know these as
``Single``, whose element needs no test for None, and know which operators keep it one.

While a program runs there is no such class: ``Single`` is another name of ``Mono`` (decision 0032).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.streams.mono import Mono

__all__ = ["Single"]

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from concurrent.futures import Future
    from datetime import timedelta
    from typing import Any, TypeVar, overload

    from penstock.streams.api.recovery import ErrorTypes
    from penstock.streams.operators.circuit import CircuitBreaker
    from penstock.streams.operators.recovery import Retry
    from penstock.streams.schedulers import Scheduler
    from penstock.streams.stream import Streamable, T

    R = TypeVar("R")
    E = TypeVar("E")

    class Single(Mono[T]):
        """A Mono that has its element, or fails; here are the operators that keep it one."""

        __slots__ = ()

        def __await__(self) -> Generator[Any, None, T]: ...
        def block(self, timeout: float | timedelta | None = None) -> T: ...
        def to_future(self) -> Future[T]: ...  # type: ignore[override]  # a Future is invariant

        def map(self, mapper: Callable[[T], R]) -> Single[R]: ...
        def cast(self, type: type[R]) -> Single[R]: ...
        def map_async(self, function: Callable[[T], Awaitable[R]]) -> Single[R]: ...
        # mypy compares overloads one by one, and takes those that are added for others.
        @overload  # type: ignore[override]
        def zip_with(self, other: Single[E]) -> Single[tuple[T, E]]: ...
        @overload
        def zip_with(self, other: Streamable[E]) -> Mono[tuple[T, E]]: ...
        @overload
        def zip_with(self, other: Streamable[E], combinator: Callable[[T, E], R]) -> Mono[R]: ...
        def zip_with(self, other: Any, combinator: Any = None) -> Mono[Any]: ...

        def on_error_return(self, value: R, *, on: ErrorTypes = Exception) -> Single[T | R]: ...
        def on_error_map(
            self, mapper: Callable[[BaseException], BaseException], *, on: ErrorTypes = Exception
        ) -> Single[T]: ...
        def retry(self, times: int | None = None) -> Single[T]: ...
        def retry_when(self, policy: Retry) -> Single[T]: ...

        @overload  # type: ignore[override]
        def timeout(
            self, duration: float | timedelta, fallback: None = None, scheduler: Scheduler | None = None
        ) -> Single[T]: ...
        @overload
        def timeout(
            self, duration: float | timedelta, fallback: Single[R], scheduler: Scheduler | None = None
        ) -> Single[T | R]: ...
        @overload
        def timeout(
            self, duration: float | timedelta, fallback: Streamable[R], scheduler: Scheduler | None = None
        ) -> Mono[T | R]: ...
        def timeout(
            self,
            duration: float | timedelta,
            fallback: Streamable[Any] | None = None,
            scheduler: Scheduler | None = None,
        ) -> Mono[Any]: ...
        def delay_element(
            self, duration: float | timedelta, scheduler: Scheduler | None = None
        ) -> Single[T]: ...
        def publish_on(self, scheduler: Scheduler) -> Single[T]: ...
        def subscribe_on(self, scheduler: Scheduler) -> Single[T]: ...
        def cache(
            self, ttl: float | timedelta | None = None, scheduler: Scheduler | None = None
        ) -> Single[T]: ...
        def share(self) -> Single[T]: ...
        def circuit_breaker(self, breaker: CircuitBreaker) -> Single[T]: ...

else:
    Single = Mono
