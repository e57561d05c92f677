"""Start several threads at the same moment, again and again for a bounded time."""

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


def together(*actions: Callable[[], object]) -> None:
    """Run all actions at once, each on its own thread; raises what any of them raised."""
    barrier = threading.Barrier(len(actions))
    errors: list[BaseException] = []

    def run(action: Callable[[], object]) -> None:
        barrier.wait()
        try:
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "deadlock"
    if errors:
        raise errors[0]


def eventually(condition: Callable[[], bool], timeout: float = 5) -> None:
    """Wait for what another thread brings about by itself."""
    end, tick = monotonic() + timeout, threading.Event()
    while not condition():
        assert monotonic() < end, "it did not happen"
        tick.wait(0.0005)
