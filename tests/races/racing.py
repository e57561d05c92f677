"""Race again and again for a bounded time, and wait for what other threads do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import monotonic


def rounds(seconds: float, most: int = 10_000) -> Iterator[int]:
    """Numbers, for ``seconds`` seconds."""
    end = monotonic() + seconds
    for number in range(most):
        if monotonic() > end:
            return
        yield number


def eventually(condition: Callable[[], bool], timeout: float = 60) -> None:
    """Wait for what another thread brings about by itself."""
    end, tick = monotonic() + timeout, threading.Event()
    while not condition():
        assert monotonic() < end, "it did not happen"
        tick.wait(0.0005)
