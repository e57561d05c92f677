"""Parts two and four of the demo: a gateway for the readings, and one for the results with a slow reader.

``python -m penstock.cli.demo.gateways intake JOURNAL`` listens for the sensors, and ``… results`` serves what
Spark writes. Each is a process of its own.
"""

from __future__ import annotations

import argparse
import threading
import time
from dataclasses import replace
from typing import Any, Final

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal, SqliteJournal
from penstock.cli.demo.ipc import IntakeReport, ResultsReport, listen, tell
from penstock.cli.demo.sensors import BUFFER
from penstock.spec import Subscription

__all__ = ["ResultReader", "main", "serve_readings", "serve_results"]

_READINGS: Final = 60_000
"""Readings that the journal holds: when Spark is that far behind, the sensors have to wait."""
_RESULTS: Final = 16
"""Results that the log holds: those of two seconds."""
_SLOWLY: Final = 0.5
"""Seconds for each result, while the reader is slow."""
_TELL_EVERY: Final = 0.25


def serve_readings(journal: str) -> None:
    """Put the lines that the sensors send into a journal on the disk, until the director closes the pipe."""
    over = listen(lambda word: None)
    feed = feeds.TcpListenFeed("127.0.0.1", 0, feeds.FeedOptions(max_line=4096), buffer=BUFFER)
    log = SqliteJournal(journal, max_records=_READINGS)
    with feed, Gateway(feed, "tcp://127.0.0.1:0", journal=log, prefetch=2048) as gateway:
        report = IntakeReport(endpoint=gateway.endpoint, port=feed.port, capacity=_READINGS)
        tell(report)
        while not over.wait(_TELL_EVERY):
            status = gateway.status()
            tell(
                replace(
                    report,
                    open_demand=status.source.requested - status.source.received,
                    journalled=status.head,
                    held=status.head - status.low_watermark,
                )
            )


class ResultReader:
    """Requests one result after the other, and keeps the latest of each window and sensor."""

    def __init__(self) -> None:
        self.slow = False
        self.received = 0
        self.error: BaseException | None = None
        self._latest: dict[tuple[str, int], dict[str, Any]] = {}
        self._mutex = threading.Lock()
        self._subscription: Subscription | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Request the first result."""
        self._subscription = subscription
        subscription.request(1)

    def on_next(self, result: dict[str, Any], /) -> None:
        """Keep the new result of a window."""
        if self.slow:
            time.sleep(_SLOWLY)
        with self._mutex:
            self.received += 1
            self._latest[result["start"], result["sensor"]] = result
        assert self._subscription is not None
        self._subscription.request(1)

    def on_error(self, error: BaseException, /) -> None:
        """Keep it for the verdict."""
        self.error = error

    def on_complete(self) -> None:
        """Do nothing: the stream of this gateway has no end."""

    def totals(self) -> tuple[int, int]:
        """Return how many readings the results count, and their fingerprint."""
        with self._mutex:
            latest = list(self._latest.values())
        return sum(result["count"] for result in latest), sum(result["fingerprint"] for result in latest)


def serve_results() -> None:
    """Serve what Spark writes, and read it, until the director closes the pipe."""
    reader = ResultReader()

    def obey(word: str) -> None:
        reader.slow = word == "slow"

    over = listen(obey)
    journal = MemoryJournal(max_records=_RESULTS)
    with Gateway(None, "tcp://127.0.0.1:0", writable=True, journal=journal) as gateway:
        # A small window, so that results wait in the gateway, where they can be seen.
        AquiferPublisher(gateway.endpoint, codec="json", window=1, max_window=1).subscribe(reader)
        report = ResultsReport(endpoint=gateway.endpoint, capacity=_RESULTS)
        tell(report)
        while not over.wait(_TELL_EVERY):
            status = gateway.status()
            count, fingerprint = reader.totals()
            tell(
                replace(
                    report,
                    received=reader.received,
                    counted=count,
                    fingerprint=fingerprint,
                    held=status.head - status.low_watermark,
                    error=repr(reader.error) if reader.error is not None else None,
                )
            )


def main() -> None:
    """Run the gateway that the first argument names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=("intake", "results"))
    parser.add_argument("journal", nargs="?", default="")
    arguments = parser.parse_args()
    if arguments.which == "intake":
        serve_readings(arguments.journal)
    else:
        serve_results()


if __name__ == "__main__":
    main()
