"""A member of a reader group in a process of its own; it writes down what it handles, and may be killed.

``python -m tests.aquifer.group_member ENDPOINT GROUP FILE [--pause SECONDS]`` reads until the end of the
stream, or until SIGTERM. Each line of the file is the time of the whole machine, the offset and the key.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time

from penstock.aquifer import AquiferPublisher, GroupSubscription, Record
from penstock.spec import Subscription


class Worker:
    """Handles one record after the other."""

    def __init__(self, path: str, pause: float, over: threading.Event) -> None:
        self.over = over
        self.error: BaseException | None = None
        self.subscription: GroupSubscription
        self._pause = pause
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert isinstance(subscription, GroupSubscription)
        self.subscription = subscription
        subscription.request(20)

    def on_next(self, record: Record, /) -> None:
        assert record.offset is not None
        key = record.key.decode() if record.key is not None else "-"
        # One call: a process that is killed leaves whole lines.
        os.write(self._file, f"{time.monotonic_ns()} {record.offset} {key}\n".encode())
        time.sleep(self._pause)  # The work.
        self.subscription.ack(record.offset)
        self.subscription.request(1)

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        self.over.set()

    def on_complete(self) -> None:
        self.over.set()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("group")
    parser.add_argument("file")
    parser.add_argument("--pause", type=float, default=0.001)
    options = parser.parse_args()
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    worker = Worker(options.file, options.pause, over)  # From here on the file is there.
    AquiferPublisher(
        options.endpoint,
        group=options.group,
        records=True,
        acknowledge="each",
        patience=60,
        window=200,
        max_window=200,
    ).subscribe(worker)
    worker.over.wait()
    worker.subscription.cancel()
    if not worker.subscription.join(60):
        print("the member did not leave", file=sys.stderr)
        return 1
    if worker.error is not None:
        print(f"failed: {worker.error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
