"""Sources of ``error``, ``never``, ``defer``, ``using``, ``create``, ``from_callable`` and ``generate``."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterator
from contextvars import copy_context
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.arguments import a_function
from penstock.spec import Subscriber, none_element, none_error
from penstock.streams.errors import KeptError, drop_error
from penstock.streams.fusion import Op, Relay, relay_for
from penstock.streams.fusion.fragments import NOTHING
from penstock.streams.operators.overflow import Overflow, Overflowing
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = [
    "CreateSource",
    "DeferSource",
    "Emitter",
    "FailedSource",
    "GenerateSink",
    "Once",
    "SilentSource",
    "generating",
]


class FailedSource(Source):
    """``on_subscribe``, then ``on_error``, without waiting for demand (§1.9, §2.10)."""

    def __init__(self, error: BaseException | Callable[[], BaseException], label: str = "error") -> None:
        super().__init__(label, error)
        self._error = KeptError(error) if isinstance(error, BaseException) else error

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        stage = Relay(ops, downstream, self.label, self.place)
        stage.introduce()
        if isinstance(self._error, KeptError):
            stage.on_error(self._error.give())
            return
        try:
            error = self._error()
        except BaseException as fault:
            error = fault
            stage._caught(fault)
        if not isinstance(error, BaseException):
            error = TypeError(f"the function of {self.label} must return an exception, not {error!r}")
        stage.on_error(error)


class SilentSource(Source):
    """``on_subscribe``, and nothing after it."""

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        Relay(ops, downstream, self.label, self.place).introduce()


class DeferSource(Source):
    """Makes its stream anew for each subscriber."""

    def __init__(
        self,
        label: str,
        factory: Callable[[], Any],
        convert: Callable[[Any, str], Stream[Any]],
        *shows: Any,
    ) -> None:
        super().__init__(label, *shows)
        self._factory = factory
        self._convert = convert

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Add the operators below to those of the stream that the function returns."""
        try:
            stream = self._convert(self._factory(), self.label)
        except BaseException as error:
            FailedSource(error, self.label).attach(ops, downstream)
            if asks_main_thread_to_stop(error):
                raise
            return None
        return stream._of(stream._source, (*stream._ops, *ops)), downstream


T = TypeVar("T")


class CreateSource(Source):
    """Calls the user's function with an :class:`Emitter` for each subscriber."""

    def __init__(self, function: Callable[[Emitter[Any]], object], overflow: Overflow, capacity: int) -> None:
        super().__init__("create", function)
        self._function = function
        self._overflow = overflow
        self.boundary = capacity

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        assert self.boundary is not None
        target = relay_for(ops, downstream, self.label, self.place)
        stage = Overflowing(self.boundary, self._overflow, None, target, self.label, self.place)
        stage.context = copy_context()
        emitter: Emitter[Any] = Emitter(stage)
        stage.introduce()
        if stage.closed:
            return
        stage.on_subscribe(emitter._subscription())
        try:
            self._function(emitter)
        except BaseException as error:
            emitter.error(error)
            if asks_main_thread_to_stop(error):
                raise

    def runs_on(self) -> str:
        return "emitter"


class Emitter(Generic[T]):
    """Passed to the function of ``create``. Its methods may be called from any thread."""

    def __init__(self, stage: Overflowing) -> None:
        """Made by ``create()``."""
        self._stage = stage
        self._mutex = allocate_lock()
        self._ended = False
        self._when_over: list[Callable[[], object]] = []
        self._over = False

    def next(self, element: T) -> None:
        """Send an element down. If there is no demand for it, ``create(overflow=…)`` decides."""
        if element is None:
            raise none_element(self._stage.name)
        stage = self._stage
        if not self._ended and not (stage.boundless and stage.flowing and stage.push(element)):
            stage.on_next(element)

    def complete(self) -> None:
        """End the stream."""
        if self._claim_end():
            self._stage.on_complete()
            self._run_over()

    def error(self, error: BaseException) -> None:
        """End the stream with an error."""
        if error is None:
            raise none_error()
        if not self._claim_end():
            drop_error(error, f"{self._stage.name}, after its end")
            return
        self._stage.on_error(error)
        self._run_over()

    def _claim_end(self) -> bool:
        with self._mutex:
            was, self._ended = self._ended, True
        return not was

    @property
    def requested(self) -> int:
        """How many elements the subscriber has requested and not received yet."""
        return self._stage.open_demand()

    @property
    def cancelled(self) -> bool:
        """Whether the subscriber has left."""
        return self._stage.closed

    def on_dispose(self, release: Callable[[], object]) -> None:
        """Call ``release`` once when the stream has ended, for whatever reason: remove callbacks there."""
        a_function(release, "on_dispose()")
        self._when_over.append(release)
        if self._over:
            self._run_over()

    def _run_over(self) -> None:
        self._over = True
        while self._when_over:
            try:
                release = self._when_over.pop()
            except IndexError:
                return  # another thread took the last one
            try:
                release()
            except BaseException as error:
                drop_error(error, f"on_dispose of {self._stage.name}")
                if asks_main_thread_to_stop(error):
                    raise

    def _subscription(self) -> _EmitterSubscription:
        return _EmitterSubscription(self)


class _EmitterSubscription:
    __slots__ = ("_emitter",)

    def __init__(self, emitter: Emitter[Any]) -> None:
        self._emitter = emitter

    def request(self, n: int, /) -> None:
        """Callbacks cannot be asked for elements."""

    def cancel(self) -> None:
        self._emitter._ended = True
        self._emitter._run_over()


class Once:
    """An iterable over the result of a function, called once for each iteration.

    It knows its length, so a Mono completes right after its element.
    """

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        return _OnceIterator(self._function)


class _OnceIterator:
    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        function, self._function = self._function, None
        if function is None:
            raise StopIteration
        try:
            result = function()
        except StopIteration as stop:
            # Unchanged, it would look like the end of the iteration.
            raise RuntimeError("the function raised StopIteration") from stop
        if result is None:
            raise StopIteration
        if type(result) is CoroutineType:
            result.close()
            raise TypeError(
                f"the function of from_callable() returned the coroutine {result.__name__}, which is never "
                "awaited; pass the async function itself, or use defer() to give it arguments"
            )
        return result

    def __length_hint__(self) -> int:
        return 0 if self._function is None else 1


E = TypeVar("E")


class GenerateSink(Generic[E]):
    """Passed to the function of ``generate``: call ``next(x)`` once in each step, or ``complete()``."""

    __slots__ = ("_completed", "_value")

    def __init__(self) -> None:
        self._value: Any = NOTHING
        self._completed = False

    def next(self, element: E) -> None:
        """The element of this step."""
        if self._value is not NOTHING:
            raise RuntimeError(
                "generate() emits one element in each step; for several use flat_map_iterable()"
            )
        self._value = element

    def complete(self) -> None:
        """No further step."""
        self._completed = True


def generating(state: Callable[[], Any], step: Callable[[Any, GenerateSink[Any]], Any]) -> Iterator[Any]:
    """The elements of all steps."""
    current = state()
    sink: GenerateSink[Any] = GenerateSink()
    while True:
        current = step(current, sink)
        value, sink._value = sink._value, NOTHING
        if value is not NOTHING:
            yield value
        if sink._completed:
            return
        if value is NOTHING:
            raise RuntimeError(
                "a step of generate() called neither next() nor complete(), so it would run for ever"
            )
