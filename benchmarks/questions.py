"""All questions, by name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from benchmarks import (
    asynchronous,
    chain,
    hot_push,
    inner_monos,
    inner_streams,
    starting,
    subscriber,
    thread_hop,
    thread_to_loop,
)
from benchmarks.measuring import Question

__all__ = ["QUESTIONS"]

QUESTIONS: dict[str, Callable[[], AbstractContextManager[Question]]] = {
    "chain": chain.question,
    "subscriber": subscriber.question,
    "asynchronous": asynchronous.question,
    "thread_hop": thread_hop.question,
    "thread_to_loop": thread_to_loop.question,
    "starting": starting.question,
    "inner_streams": inner_streams.question,
    "inner_monos": inner_monos.question,
    "hot_push": hot_push.question,
}
