"""Look at what passes, without changing it.

The stream calls these functions while it works, so they must be quick and must not block. Their results are
ignored. An exception that one of them raises becomes the stream's error, as long as the stream runs.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar, overload

from penstock.arguments import a_function, a_whole_number, whole
from penstock.spec import UNBOUNDED, Subscription
from penstock.streams.errors import add_note, here, note_texts
from penstock.streams.fusion import Outcome, Watch, operator
from penstock.streams.stream import Stream, T

__all__ = ["FluxHooks", "FluxOrMonoHooks", "MonoHooks", "Outcome", "Signal"]

E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True, slots=True)
class Signal(Generic[T]):
    """One signal of a stream: an element, an error, or its completion."""

    kind: Literal["next", "error", "complete"]
    element: T | None = None
    """The element, if this is one."""
    error: BaseException | None = None
    """The error, if this is one."""


def _an_error_type(type: Any, name: str) -> Any:
    types = type if isinstance(type, tuple) else (type,)
    for each in types:
        if not (isinstance(each, builtins.type) and issubclass(each, BaseException)):
            raise TypeError(f"{name}() needs a class of errors, not {each!r}; pass for example OSError")
    return type


class FluxOrMonoHooks(Stream[T]):
    """Operators that look at the signals of a Flux or a Mono."""

    __slots__ = ()

    def do_on_next(self, action: Callable[[T], object]) -> Self:
        """Call ``action(element)`` for each element, then send the element on.

        >>> seen = []
        >>> Flux.range(1, 3).do_on_next(seen.append).count().block()
        3
        >>> seen
        [1, 2, 3]

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``action`` raises.

        Marble::

            a: 1-2-|
            a.do_on_next(lambda x: None)
            >  1-2-|
        """
        return self._with(operator("tap", a_function(action, "do_on_next()"), label="do_on_next"))

    @overload
    def do_on_error(self, action: Callable[[Exception], object]) -> Self: ...
    @overload
    def do_on_error(self, action: Callable[[E], object], type: type[E] | tuple[type[E], ...]) -> Self: ...
    def do_on_error(self, action: Callable[[Any], object], type: Any = Exception) -> Self:
        """Call ``action(error)`` if the stream fails with an error of this type, then let the error go on.

        The type is a class of errors, or a tuple of them, as after ``except``.

        >>> failing = Flux.just(1, 0).map(lambda x: 1 // x).do_on_error(print, ZeroDivisionError)
        >>> failing.on_error_return(-1).collect_list().block()
        integer division or modulo by zero
        [1, -1]

        An exception in ``action`` takes the place of the error. This only looks at the error; to handle it,
        use ``on_error_resume`` or one of its relatives.

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-#
            a.do_on_error(lambda error: None)
            >  1-#
        """
        function, types = a_function(action, "do_on_error()"), _an_error_type(type, "do_on_error")

        def failed(error: BaseException) -> None:
            if isinstance(error, types):
                function(error)

        shows = (function,) if type is Exception else (function, type)
        return self._with(operator("watch", label="do_on_error", shows=shows, watch=Watch(failed=failed)))

    def do_on_complete(self, action: Callable[[], object]) -> Self:
        """Call ``action()`` when the source completes, before the subscriber is told.

        >>> Flux.just("a").do_on_complete(lambda: print("end")).collect_list().block()
        end
        ['a']

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.do_on_complete(lambda: None)
            >  1-2-|
        """
        return self._watching("do_on_complete", action, Watch(completed=action))

    def do_on_cancel(self, action: Callable[[], object]) -> Self:
        """Call ``action()`` when the source is cancelled: by the subscriber, or by an operator below.

        >>> Flux.range(1, 9).do_on_cancel(lambda: print("enough")).take(2).collect_list().block()
        enough
        [1, 2]

        An exception in ``action`` is reported as dropped, because nobody can receive it any more.

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.do_on_cancel(lambda: None)
            >  1-2-|
        """
        return self._watching("do_on_cancel", action, Watch(cancelled=action))

    def do_on_subscribe(self, action: Callable[[Subscription], object]) -> Self:
        """Call ``action(subscription)`` for each new subscription, before the subscriber receives it.

        >>> Flux.just("a").do_on_subscribe(lambda _: print("hello")).collect_list().block()
        hello
        ['a']

        Do not request anything here: the subscription belongs to the subscriber (§3.1).

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.do_on_subscribe(lambda subscription: None)
            >  1-2-|
        """
        return self._watching("do_on_subscribe", action, Watch(subscribed=action))

    def do_on_request(self, action: Callable[[int], object]) -> Self:
        """Call ``action(n)`` when ``n`` elements are asked for, as the operators below pass it on.

        >>> Flux.range(1, 9).do_on_request(print).buffer(3).first().block()
        3
        [1, 2, 3]

        An exception in ``action`` is reported as dropped, because a request cannot fail (§3.16).

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.do_on_request(lambda n: None)
            >  1-2-|
        """
        return self._watching("do_on_request", action, Watch(requested=action))

    def do_on_each(self, action: Callable[[Signal[T]], object]) -> Self:
        """Call ``action(signal)`` for each element, and for the error or the completion at the end.

        >>> Flux.just("a").do_on_each(lambda signal: print(signal.kind)).collect_list().block()
        next
        complete
        ['a']

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``action`` raises.

        Marble::

            a: 1-2-|
            a.do_on_each(lambda signal: None)
            >  1-2-|
        """
        function = a_function(action, "do_on_each()")

        def failed(error: BaseException) -> None:
            function(Signal("error", error=error))

        watch = Watch(completed=lambda: function(Signal("complete")), failed=failed)
        return self._with(
            operator(
                "tap",
                lambda element: function(Signal("next", element)),
                label="do_on_each",
                shows=(function,),
                watch=watch,
            )
        )

    def do_on_terminate(self, action: Callable[[], object]) -> Self:
        """Call ``action()`` when the source completes or fails, before the subscriber is told.

        >>> Flux.just("a").do_on_terminate(lambda: print("end")).collect_list().block()
        end
        ['a']

        For an action that must run after a cancellation, too, use :meth:`do_finally`.

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.do_on_terminate(lambda: None)
            >  1-2-|
        """
        function = a_function(action, "do_on_terminate()")

        def failed(_: BaseException) -> None:
            function()

        return self._watching("do_on_terminate", action, Watch(completed=action, failed=failed))

    def do_finally(self, action: Callable[[Outcome], object]) -> Self:
        """Call ``action(outcome)`` once, last of all, however the stream ends.

        The outcome is ``COMPLETE``, ``ERROR`` or ``CANCEL``, as seen from here: when a ``take`` has had
        enough, the stream is cancelled above it and completes below.

        >>> Flux.just("a", "b").do_finally(lambda outcome: print(outcome.name)).take(1).collect_list().block()
        CANCEL
        ['a']

        The subscriber has received its last signal by then, so an exception in ``action`` is reported as
        dropped.

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.do_finally(lambda outcome: None)
            >  1-2-|
        """
        return self._watching("do_finally", action, Watch(finished=action))

    def log(self, name: str | None = None, level: int = logging.INFO) -> Self:
        """Write every signal to the logger ``penstock.streams.<name>``, or ``penstock.streams``.

        For ``Flux.just("a").log("letters").collect_list().block()`` that is::

            INFO  penstock.streams.letters  on_subscribe
            INFO  penstock.streams.letters  request(unbounded)
            INFO  penstock.streams.letters  on_next('a')
            INFO  penstock.streams.letters  on_complete

        and ``cancel`` where the stream is cancelled. An error is logged as ERROR, with its traceback,
        whatever the level of the rest.

        >>> Flux.just("a").log("letters").collect_list().block()
        ['a']

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.log("numbers")
            >  1-2-|
        """
        _a_text(name, "log")
        if whole(level) is None:
            raise TypeError(f"log() needs a level such as logging.DEBUG, not {level!r}")
        level = a_whole_number(level, "log()")
        logger = logging.getLogger("penstock.streams" + (f".{name}" if name else ""))
        write = partial(logger.log, level)

        def requested(n: int) -> None:
            write("request(%s)", "unbounded" if n >= UNBOUNDED else n)

        def failed(error: BaseException) -> None:
            logger.error("on_error(%r)", error, exc_info=error)

        watch = Watch(
            subscribed=lambda _: write("on_subscribe"),
            requested=requested,
            completed=partial(write, "on_complete"),
            failed=failed,
            cancelled=partial(write, "cancel"),
        )
        shows = () if name is None else (name,)
        return self._with(
            operator("tap", partial(write, "on_next(%.200r)"), label="log", shows=shows, watch=watch)
        )

    def checkpoint(self, description: str | None = None) -> Self:
        """Add a note to each error that passes here: the description, and this place in your program.

        The error names the operator that failed anyway. A checkpoint says which *use* of it failed: mark the
        streams that you put together from common parts.

        >>> try:
        ...     Flux.just(0).map(lambda x: 1 // x).checkpoint("prices of today").collect_list().block()
        ... except ZeroDivisionError as error:
        ...     print(error.__notes__[-1].split(", at ")[0])
        passed the checkpoint 'prices of today'

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-#
            a.checkpoint("numbers")
            >  1-#
        """
        _a_text(description, "checkpoint")
        what = "a checkpoint" if description is None else f"the checkpoint {description!r}"
        note = f"passed {what}, at {here()}"

        def failed(error: BaseException) -> None:
            if note not in note_texts(error):  # a retry may meet the same error again
                add_note(error, note)

        shows = () if description is None else (description,)
        return self._with(operator("watch", label="checkpoint", shows=shows, watch=Watch(failed=failed)))

    def named(self, name: str) -> Self:
        """Give this place in the stream a name, for ``explain()``, ``scan()`` and listeners.

        >>> Flux.just("a").named("letters").collect_list().block()
        ['a']

        Emits when an element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels.

        Marble::

            a: 1-2-|
            a.named("numbers")
            >  1-2-|
        """
        if not name:
            raise TypeError("named() needs a name")
        _a_text(name, "named")
        return self._with(operator("watch", label="named", shows=(name,)))

    def _watching(self, name: str, action: Any, watch: Watch) -> Self:
        return self._with(
            operator("watch", label=name, shows=(a_function(action, f"{name}()"),), watch=watch)
        )


def _a_text(text: Any, name: str) -> None:
    if text is not None and not isinstance(text, str):
        raise TypeError(f"{name}() needs a text, not {text!r}")


class FluxHooks(FluxOrMonoHooks[T]):
    """Operators of a Flux that look at its signals."""

    __slots__ = ()


class MonoHooks(FluxOrMonoHooks[T]):
    """Operators of a Mono that look at its signals."""

    __slots__ = ()

    def do_on_success(self, action: Callable[[T | None], object]) -> Self:
        """Call ``action(element)`` when the element arrives, or ``action(None)`` if the Mono is empty.

        >>> Mono.just("a").do_on_success(print).block()
        a
        'a'
        >>> Mono.empty().do_on_success(print).block()
        None

        It is not called for an error; use :meth:`do_on_error` for that.

        Emits when the element arrives.
        Backpressures when its subscriber does.
        Completes when the source completes.
        Cancels when its subscriber cancels, or ``action`` raises.

        Marble::

            mono: --(x|)
            mono.do_on_success(lambda element: None)
            >     --(x|)
        """
        return self._with(operator("do_on_success", a_function(action, "do_on_success()")))
