"""All questions, by name."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module

from benchmarks.measuring import Question

__all__ = ["NAMES", "ask"]

NAMES = (
    "chain",
    "subscriber",
    "asynchronous",
    "thread_hop",
    "thread_to_loop",
    "starting",
    "inner_streams",
    "inner_monos",
    "hot_push",
    "aquifer_throughput",
    "aquifer_fan_out",
    "aquifer_round_trip",
)


def ask(name: str) -> AbstractContextManager[Question]:
    """The question of the module with this name, which imports no peers but its own."""
    question: AbstractContextManager[Question] = import_module(f"benchmarks.{name}").question()
    return question
