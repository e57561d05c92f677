"""What a handler returned, while it runs. When it ends, its connection is closed."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.net.errors import NetError, ReceiveStopped
from penstock.net.outbound import SendChain
from penstock.spec import UNBOUNDED, Subscription
from penstock.streams.spi import Stream, as_stream, asks_main_thread_to_stop

__all__ = ["HandlerAdvice", "HandlerRun", "handler_stream", "tell_failure", "tells_failure"]

_log = logging.getLogger("penstock.net")


def handler_stream(work: Any, what: str) -> Stream[Any]:
    """What a handler returned, as a stream to run."""
    if work is None:
        raise NetError(
            "the handler returned None; it has to return what to run: outbound.send(…), a publisher or a "
            f"coroutine. To keep the {what} open without sending, return Mono.never()"
        )
    return work.mono() if isinstance(work, SendChain) else as_stream(work, "handle()")


class HandlerRun:
    """The Subscriber of a handler's Publisher. It ignores the elements; the end closes the connection.

    Elements that are ignored are most likely a mistake, so ``dropped`` hears of the first one.
    """

    __slots__ = ("_done", "_dropped", "_subscription", "when_over")

    def __init__(
        self,
        done: Callable[[BaseException | None], object],
        dropped: Callable[[Any], object] | None = None,
    ) -> None:
        self._done: Callable[[BaseException | None], object] | None = done
        self._dropped = dropped
        self._subscription: Subscription | None = None
        self.when_over: Callable[[HandlerRun], object] | None = None
        """Called when the handler has ended by itself."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Let the handler run."""
        if self._subscription is not None or self._done is None:
            subscription.cancel()  # §2.5
            return
        self._subscription = subscription
        subscription.request(UNBOUNDED)

    def on_next(self, element: Any, /) -> None:
        """Ignore an element. But a publisher among them is a send that nobody runs: an error."""
        if callable(getattr(element, "subscribe", None)):
            subscription, self._subscription = self._subscription, None
            if subscription is not None:
                subscription.cancel()
            self._end(
                NetError(
                    f"the handler emitted {element!r:.80}, which nobody runs: a coroutine has to await what "
                    "it sends (await outbound.send(…)), and a plain function has to return it"
                )
            )
            return
        dropped, self._dropped = self._dropped, None
        if dropped is not None:
            dropped(element)

    def on_error(self, error: BaseException, /) -> None:
        """The handler failed."""
        self._end(error)

    def on_complete(self) -> None:
        """The handler has finished."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        done, self._done = self._done, None
        self._subscription = None
        if done is not None:
            done(error)
        if self.when_over is not None:
            self.when_over(self)

    @property
    def over(self) -> bool:
        """Whether the handler has ended."""
        return self._done is None

    def cancel(self) -> None:
        """The connection is gone: stop the handler."""
        subscription, self._subscription = self._subscription, None
        self._done = None
        if subscription is not None:
            subscription.cancel()


class HandlerAdvice:
    """What the author of a handler should know. Each advice is logged once for a server or client."""

    def __init__(self) -> None:
        self._given: dict[str, object] = {}

    def elements_dropped(self, label: str, returned: Any, element: Any) -> None:
        """Nobody takes the elements of what the handler returned."""
        if not isinstance(element, bytes | bytearray | memoryview | str):
            return  # Most likely the result of a computation.
        self._give(
            label,
            f"the handler returned {_described(returned)}, and nobody sends its elements ({element!r:.40}, "
            "for instance): return outbound.send(…) of it; or add .then(), if they are meant to be dropped",
        )

    def nothing_sent(self, label: str) -> None:
        """The handler has made a send, and ended without running it."""
        self._give(
            label,
            "the handler called outbound.send(…) and ended, but nothing was sent: a send has to be awaited "
            "in a coroutine, and returned from a plain function",
        )

    def _give(self, label: str, text: str) -> None:
        this = object()
        if self._given.setdefault(text[:40], this) is this:  # One step, for handlers on several threads.
            _log.warning("%s %s; this is logged only once", label, text)


def _described(returned: Any) -> str:
    if isinstance(returned, AsyncGenerator):
        return f"the async generator {getattr(returned, '__qualname__', 'of the handler')}()"
    return f"{returned!r:.80}"


@contextmanager
def tells_failure(done: Callable[[BaseException], object]) -> Iterator[None]:
    """Whatever a handler raises when it is called ends its connection. Ctrl-C and exit are raised again."""
    try:
        yield
    except BaseException as fault:
        done(fault)
        if asks_main_thread_to_stop(fault):
            raise


def tell_failure(label: str, error: BaseException, *, lost: bool, stopped: bool) -> bool:
    """Log why a handler failed. Returns whether that is an error to count."""
    if stopped and isinstance(error, ReceiveStopped):
        _log.debug("%s the handler ended, because nothing more is received", label)
        return False
    if not isinstance(error, NetError | ConnectionError):
        _log.error("%s the handler failed: %r", label, error, exc_info=error)
        return True
    # A lost connection has been counted already.
    _log.log(logging.INFO if lost else logging.WARNING, "%s the handler failed: %s", label, error)
    return not lost
