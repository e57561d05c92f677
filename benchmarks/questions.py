"""All questions, by name."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from importlib import import_module

from benchmarks.measuring import Question

__all__ = ["NAMES", "ask"]

_NET = ("net.echo", "net.lines", "net.small_elements", "net.idle_connections")
"""Those that put load on servers, which the load generator does on Linux only."""

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
    "operators",
    "journal_append",
    "aquifer_throughput",
    "aquifer_fan_out",
    "aquifer_round_trip",
    "aquifer_groups",
    "journals",
    "compression",
    "observed_chain",
    "observed_gateway",
    "scrape",
    "telemetry",
    "spark_throughput",
    "spark_json",
    "spark_trigger",
    "spark_latency",
    "spark_kafka",
    "spark_kafka_trigger",
    "spark_kafka_latency",
    *(_NET if sys.platform == "linux" else ()),
)


def ask(name: str) -> AbstractContextManager[Question]:
    """The question of the module with this name, which imports no peers but its own."""
    question: AbstractContextManager[Question] = import_module(f"benchmarks.{name}").question()
    return question
