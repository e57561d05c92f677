"""What all ways out of a stream have in common: one subscription, a first request, a way to stop.

And one duty: an error that comes when its reader is leaving, or has left, is reported. It comes from another
thread, perhaps at the same moment, so it is laid down in one place and taken out of it once: by the reader,
who raises it, or by whoever finds it there after the cancel.
"""

from __future__ import annotations

import sys

from penstock.spec import Subscription, none_subscription
from penstock.streams.dropped import drop_error
from penstock.streams.home import home_here
from penstock.streams.stages.read_ahead import ReadAhead

__all__ = ["Reader"]


class Reader:
    """Keeps the first subscription it gets and asks for ``first`` elements at once."""

    __slots__ = ("_ahead", "_cancelled", "_first", "_over", "_subscription", "_unheard", "home")

    def __init__(self, first: int) -> None:
        self._first = first
        self._ahead: ReadAhead | None = None
        """How it asks for elements that can be large."""
        self.home = home_here()
        """Where the stream's coroutines run."""
        self._subscription: Subscription | None = None
        self._cancelled = False
        self._over = False
        """The stream has ended by itself: its subscription is not to be touched any more (§2.4)."""
        self._unheard: list[BaseException] = []
        """The error of the stream, until somebody takes it."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Ask for the first elements; a second subscription is cancelled (§2.5)."""
        if subscription is None:
            raise none_subscription()
        if self._subscription is not None or self._cancelled:
            subscription.cancel()
            return
        self._subscription = subscription
        if self._cancelled:
            subscription.cancel()  # by another thread meanwhile
            return
        if self._ahead is None:
            subscription.request(self._first)
        else:
            self._ahead.begin(subscription)

    def cancel(self) -> None:
        """Stop the stream; any number of times, from any thread."""
        self._cancelled = True
        if self._subscription is not None and not self._over:
            self._subscription.cancel()
        self._report_unheard()

    def _keep(self, error: BaseException) -> None:
        """Lay an error down for the reader; if that one has left, report it (§2.8: it may still come)."""
        self._unheard.append(error)
        self._over = True  # not before: whoever sees the end must find the error
        if self._cancelled:
            self._report_unheard()

    def _take_error(self) -> BaseException | None:
        """The error, for the one who is going to raise it; None if there is none."""
        try:
            return self._unheard.pop()
        except IndexError:
            return None

    def _report_unheard(self) -> None:
        error = self._take_error()
        if error is not None and error is not sys.exception():  # which is on its way to the reader already
            drop_error(error, "a stream after its reader left")
