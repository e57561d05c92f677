"""How the parts of the demo talk to the director: a line of JSON on standard output now and then."""

from __future__ import annotations

import json
import resource
import sys
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["listen", "tell"]

_lock = threading.Lock()


def tell(**facts: Any) -> None:
    """Say something to the director; the peak memory of this process is said along with it."""
    facts["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with _lock:
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


def listen(on_word: Callable[[str], object]) -> threading.Event:
    """Call ``on_word`` for each line from the director; the event is set when it has no more to say."""
    over = threading.Event()

    def read() -> None:
        for line in sys.stdin:
            on_word(line.strip())
        over.set()

    threading.Thread(target=read, daemon=True).start()
    return over
