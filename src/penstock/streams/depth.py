"""How deep a stack a stream needs, asked before it runs.

Synchronous operators share one loop, so a thousand of them cost one frame. An operator with a queue of its
own calls the next one, and a chain of hundreds of these would end in a RecursionError somewhere in the middle
of a signal. So a stream says before it starts whether the stack will do.
"""

from __future__ import annotations

import sys

from penstock.streams.source import Source

__all__ = ["frames_needed", "too_deep"]

SAFE = 400
"""Streams that need no more than this are not looked at any further."""
RESERVE = 150
"""Frames left to the user's own functions."""


def too_deep(source: Source, below: int = 0) -> RecursionError | None:
    """The error to fail with if the present stack cannot hold this stream.

    ``below`` are the frames that an element needs from here down to the subscriber. A stream that is defined
    by recursion adds a stage below with each step, and no look at what stands above would find that.
    """
    needed = source.stack or frames_needed(source)
    if needed + below <= SAFE:
        return None
    room = sys.getrecursionlimit() - RESERVE - needed
    if below <= room and not _is_deeper_than(room):
        return None
    if below > needed:
        return RecursionError(
            f"this stream leads to another, and that to another, so deep that an element would need about "
            f"{below + needed} stack frames, and Python allows {sys.getrecursionlimit()}; use generate() or "
            "expand() instead of a stream that calls itself, or raise sys.setrecursionlimit()"
        )
    return RecursionError(
        f"this stream has so many asynchronous operators above each other that it needs about {needed} stack "
        f"frames, and Python allows {sys.getrecursionlimit()}; call sys.setrecursionlimit({needed * 2}) "
        "before subscribing, or break it with publish_on()"
    )


def frames_needed(source: Source) -> int:
    """The frames of this source and of all above it on the same stack; worked out without recursion."""
    unknown = [source]
    while unknown:
        top = unknown[-1]
        above = [stream._source for stream in top.upstreams()]
        missing = [each for each in above if not each.stack]
        if missing:
            unknown += missing
            continue
        top.stack = top.frames_on_top_of(max((each.stack for each in above), default=0))
        unknown.pop()
    return source.stack


def _is_deeper_than(frames: int) -> bool:
    """Whether the present stack has more frames than these."""
    if frames < 0:
        return True
    # Not by f_back, which makes an object of each frame: each inner stream of a deep chain asks this.
    try:
        sys._getframe(frames)
    except ValueError:
        return False
    return True
