"""Part three: a gateway for the results, and a reader behind it that can be told to be slow."""

from __future__ import annotations

import threading
import time
from typing import Any

from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
from penstock.cli.showcase.telling import listen, tell
from penstock.spec import Subscription

__all__ = ["main"]

_LOG = 16
"""Results that the log holds: those of two seconds."""
_SLOWLY = 0.5
"""Seconds for each result, while the reader is slow."""


class Reader:
    """Asks for one result after the other, and keeps the latest of each window and sensor."""

    def __init__(self) -> None:
        self.slow = False
        self.received = 0
        self.error: BaseException | None = None
        self._latest: dict[tuple[str, int], dict[str, Any]] = {}
        self._mutex = threading.Lock()
        self._subscription: Subscription | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Ask for the first."""
        self._subscription = subscription
        subscription.request(1)

    def on_next(self, result: dict[str, Any], /) -> None:
        """A window has changed."""
        if self.slow:
            time.sleep(_SLOWLY)
        with self._mutex:
            self.received += 1
            self._latest[result["start"], result["sensor"]] = result
        assert self._subscription is not None
        self._subscription.request(1)

    def on_error(self, error: BaseException, /) -> None:
        """Kept for the verdict."""
        self.error = error

    def on_complete(self) -> None:
        """The gateway's stream has no end."""

    def totals(self) -> tuple[int, int]:
        """How many readings the results speak of, and their fingerprint."""
        with self._mutex:
            latest = list(self._latest.values())
        return sum(result["count"] for result in latest), sum(result["fingerprint"] for result in latest)


def main() -> None:
    """Serve and read until the director has heard enough."""
    reader = Reader()

    def obey(word: str) -> None:
        reader.slow = word == "slow"

    over = listen(obey)
    journal = MemoryJournal(max_records=_LOG)
    with Gateway(None, "tcp://127.0.0.1:0", writable=True, journal=journal) as gateway:
        # A small window: what waits shall wait in the gateway, where it can be seen.
        AquiferPublisher(gateway.endpoint, codec="json", window=1, max_window=1).subscribe(reader)
        tell(endpoint=gateway.endpoint)
        while not over.wait(0.25):
            status = gateway.status()
            count, fingerprint = reader.totals()
            tell(
                received=reader.received,
                counted=count,
                fingerprint=fingerprint,
                held=status["head"] - status["floor"],
                capacity=_LOG,
                slow=reader.slow,
                error=repr(reader.error) if reader.error is not None else None,
            )


if __name__ == "__main__":
    main()
