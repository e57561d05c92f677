"""What all ways out of a stream have in common: one subscription, a first request, a way to stop."""

from __future__ import annotations

from penstock.spec import Subscription, none_subscription

__all__ = ["Reader"]


class Reader:
    """Keeps the first subscription it gets and asks for ``first`` elements at once."""

    __slots__ = ("_cancelled", "_first", "_over", "_subscription")

    def __init__(self, first: int) -> None:
        self._first = first
        self._subscription: Subscription | None = None
        self._cancelled = False
        self._over = False
        """The stream has ended by itself: its subscription is not to be touched any more (§2.4)."""

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
        subscription.request(self._first)

    def cancel(self) -> None:
        """Stop the stream; any number of times, from any thread."""
        self._cancelled = True
        if self._subscription is not None and not self._over:
            self._subscription.cancel()
