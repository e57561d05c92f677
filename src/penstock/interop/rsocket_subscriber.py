"""Our Subscribers as rsocket-py calls them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.spec import Subscriber, non_positive_request, none_subscription
from penstock.streams.dropped import drop_error

try:
    from reactivestreams.subscriber import Subscriber as TheirSubscriber  # type: ignore[import-untyped]
    from rsocket.frame import MAX_REQUEST_N  # type: ignore[import-untyped]
    from rsocket.payload import Payload  # type: ignore[import-untyped]
except ImportError as missing:
    raise ImportError(
        "penstock.interop.rsocket_bridge needs rsocket: pip install 'penstock-streams[interop]'"
    ) from missing

__all__ = ["RSocketSubscriber", "running_loop"]


class RSocketSubscriber(TheirSubscriber):  # type: ignore[misc]
    """Passes the signals of rsocket-py on to a Subscriber of ours, and its requests back.

    Made by :func:`penstock.interop.rsocket_bridge.to_rsocket_subscriber`. It takes the end out of the last
    element, sends nothing after the end, keeps requests within what a frame can hold, and sees to it that
    rsocket-py is called on its event loop, not after its end, and to cancel only once.
    """

    def __init__(self, subscriber: Subscriber[Any]) -> None:
        """Serve ``subscriber``."""
        self._ours: Subscriber[Any] | None = subscriber
        self._theirs: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._empty_is_end = False
        self._granted = 0
        """Elements that are on their way although our Subscriber has not requested them yet."""
        self._asked = 0
        """Elements that rsocket-py has been asked for and has not sent."""
        self._owed = 0
        """Elements that it could not be asked for yet, because a frame holds no such number."""

    def granted(self, n: int) -> None:
        """Count ``n`` elements as requested already: those that a request of a socket starts with."""
        self._granted += n
        self._asked += n

    def take_empty_for_end(self) -> None:
        """Take a last element without data and metadata for the end, not for an element."""
        self._empty_is_end = True

    # ---------------------------------------------------------------- signals, from rsocket-py
    def on_subscribe(self, subscription: Any) -> None:
        """Keep their Subscription, and be the one that our Subscriber gets."""
        if subscription is None:
            raise none_subscription()
        ours = self._ours
        if ours is None or self._theirs is not None:
            subscription.cancel()  # §2.5
            return
        self._theirs = subscription
        self._loop = running_loop()
        ours.on_subscribe(self)

    def on_next(self, value: Any, is_complete: bool = False) -> None:
        """Pass the element on, and the end that may come with it."""
        ours = self._ours
        if ours is None:
            return
        if not (is_complete and self._is_no_element(value)):
            self._asked -= 1
            ours.on_next(value)
        if is_complete:
            self.on_complete()
        elif self._owed and not self._asked:
            self._ask()

    def _is_no_element(self, value: Any) -> bool:
        if value is None:
            return True
        return (
            self._empty_is_end
            and isinstance(value, Payload)
            and value.data is None
            and value.metadata is None
        )

    def on_error(self, exception: BaseException) -> None:
        """Pass the error on; one that comes after the end goes to the hook for dropped errors."""
        ours = self._end()
        if ours is not None:
            ours.on_error(exception)
        else:
            drop_error(exception, "a publisher of rsocket, after its end")

    def on_complete(self) -> None:
        """Pass the end on, once."""
        ours = self._end()
        if ours is not None:
            ours.on_complete()

    def _end(self) -> Subscriber[Any] | None:
        """Let go of both sides (§3.13); only the first who asks gets the Subscriber."""
        ours, self._ours = self._ours, None
        self._theirs = None
        return ours

    # ---------------------------------------------------------------- demand, from our Subscriber
    def request(self, n: int) -> None:
        """Ask for more, on the event loop."""
        legal = isinstance(n, int) and n > 0
        if not self._on_loop(lambda: self._more(n) if legal else self._refuse(n)):
            ours = self._end()
            if ours is not None:
                ours.on_error(RuntimeError("the event loop of this rsocket publisher is closed"))

    def cancel(self) -> None:
        """Leave, on the event loop; nothing is sent from now on."""
        theirs = self._theirs
        self._end()
        if theirs is not None:
            self._on_loop(lambda: _cancel(theirs))

    def _more(self, n: int) -> None:
        already = min(n, self._granted)
        self._granted -= already
        self._owed += n - already
        self._ask()

    def _ask(self) -> None:
        n = min(self._owed, MAX_REQUEST_N - self._asked)
        if n > 0 and self._theirs is not None:
            self._owed -= n
            self._asked += n
            self._theirs.request(n)

    def _refuse(self, n: Any) -> None:
        theirs, ours = self._theirs, self._end()
        if theirs is not None:
            _cancel(theirs)
        if ours is not None:
            ours.on_error(non_positive_request(n))  # §3.9; rsocket-py itself says nothing

    def _on_loop(self, action: Callable[[], None]) -> bool:
        """Run ``action`` on the event loop, now or soon; False if the loop is closed."""
        loop = self._loop
        if loop is None or loop is running_loop():
            action()
            return True
        try:
            loop.call_soon_threadsafe(action)
        except RuntimeError:
            return False
        return True


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _cancel(theirs: Any) -> None:
    try:
        theirs.cancel()
    except AttributeError:
        # A stream over a generator that has not been started yet stops its tasks, and then stumbles over the
        # generator that it does not have. There is nothing left to stop.
        return
    except Exception as error:
        drop_error(error, "a publisher of rsocket that was cancelled")
