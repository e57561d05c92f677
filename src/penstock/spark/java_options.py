"""The options of the driver's Java, and what the user has chosen for it already.

A user can choose a garbage collector or a heap in many places: in settings, in environment variables, and in
Spark's file of defaults. Java does not start with two collectors, so all of these are looked at. What a
``spark-env.sh`` sets is not known here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["JAVA_OPTIONS", "driver_java_options"]

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
"""The setting that our options go into,"""
_DEFAULT_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""and one that Spark puts in front of them."""
_MEMORY: Final = "spark.driver.memory"

_FAST_FORKS: Final = "-Djdk.lang.Process.launchMechanism=VFORK"
_SERIAL_COLLECTOR: Final = "-XX:+UseSerialGC"
_FEW_PROCESSORS: Final = 4

_WITH_JAVA_OPTIONS: Final = (
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS",
)
"""Variables in which a user may have chosen a collector,"""
_WITH_MEMORY: Final = ("SPARK_DRIVER_MEMORY", "SPARK_MEM")
"""or the size of the heap."""
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_HEAP: Final = re.compile(r"--driver-memory\b|\bspark\.driver\.memory\b")
"""The size of the heap among the arguments of spark-submit."""
_PROPERTY: Final = re.compile(r"\s*([^#!\s=:][^\s=:]*)\s*[\s=:]\s*(.*?)\s*")
"""A line of a file of properties."""


def driver_java_options(overrides: Mapping[str, str]) -> str:
    """Options of the driver's Java, which runs the tasks as well; ``overrides`` are the user's settings.

    The threads of Java's usual collector compete with Spark and Python for the processors. If these are few,
    small batches are faster with a collector that has no threads. Its pauses are short with the usual heap of
    1 GB, and would not be with a large one.
    """
    given = _defaults() | dict(overrides)
    texts = [os.environ.get(name, "") for name in _WITH_JAVA_OPTIONS]
    texts += [given.get(name, "") for name in (_DEFAULT_JAVA_OPTIONS, JAVA_OPTIONS)]
    has_own_collector = any(map(_COLLECTOR.search, texts))
    # Our setting takes the place of the one in the file, so it has to have those options as well.
    ours = " ".join(filter(None, (_FAST_FORKS, given.get(JAVA_OPTIONS))))
    if has_own_collector or _has_own_memory(given) or _processors() > _FEW_PROCESSORS:
        return ours
    return f"{ours} {_SERIAL_COLLECTOR}"


def _has_own_memory(given: Mapping[str, str]) -> bool:
    """Whether the user has chosen the size of the heap, in one of the places that Spark looks at."""
    return (
        bool(given.get(_MEMORY))
        or any(os.environ.get(name) for name in _WITH_MEMORY)
        or _HEAP.search(os.environ.get("PYSPARK_SUBMIT_ARGS", "")) is not None
        or "-Xmx" in os.environ.get("_JAVA_OPTIONS", "")  # The only variable that outdoes Spark's own -Xmx.
    )


def _defaults() -> dict[str, str]:
    """Spark's file of defaults; empty if there is none, or it cannot be read."""
    from pyspark.find_spark_home import _find_spark_home

    home = os.environ.get("SPARK_HOME") or _find_spark_home()
    folder = os.environ.get("SPARK_CONF_DIR") or str(Path(home, "conf"))
    try:
        text = Path(folder, "spark-defaults.conf").read_text("utf-8", errors="replace")
    except OSError:
        return {}
    lines = re.sub(r"\\\r?\n\s*", "", text).splitlines()
    return {found[1]: found[2] for found in map(_PROPERTY.fullmatch, lines) if found is not None}


def _processors() -> int:
    """How many processors this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
