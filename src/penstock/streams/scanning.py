"""Look into a running stream."""

from __future__ import annotations

from typing import Any

from penstock.streams.listening import StageState

__all__ = ["scan"]


def scan(subscription: Any) -> list[StageState]:
    """The stages behind a subscription, from the subscriber up to the sources.

    Works with the subscription that any of this package's publishers gave to a Subscriber.
    """
    found: list[StageState] = []
    waiting = [subscription]
    seen: set[int] = set()
    while waiting:
        stage = waiting.pop(0)
        if stage is None or id(stage) in seen:
            continue
        seen.add(id(stage))
        if hasattr(stage, "state"):
            found.append(stage.state())
        if hasattr(stage, "upstreams"):
            waiting += stage.upstreams()
    return found
