"""Spark's own connector for Kafka: its jars for the installed Spark, and a setting that has them.

The connector needs ``spark-token-provider-kafka``, of which Maven has no release for Spark 4.1 to 4.3.
"""

from __future__ import annotations

from pathlib import Path

from penstock.spark.versions import installed
from tests.maven_jars import ROOT, JarsUnavailable, fetched, pinned_in
from tests.required_tools import missing_part, require_tool

__all__ = ["is_released", "settings"]

_HERE = Path(__file__).parent
_PART = "Spark's connector for Kafka"


def is_released() -> bool:
    """Whether there is one for the installed Spark."""
    return installed() == (4, 0)


def settings() -> dict[str, str]:
    """What a session needs."""
    pinned, library = pinned_in(_HERE / "spark-4.0.sha256"), ROOT / "build" / "spark-kafka-4.0"
    if not all((library / name).exists() for name in pinned):
        require_tool("mvn", part=_PART, install="apt-get install maven")
    try:
        jars = fetched(_HERE / "spark-4.0.xml", pinned, library, "-DexcludeTransitive=true")
    except JarsUnavailable as problem:
        missing_part(_PART, str(problem))
    return {"spark.jars": ",".join(map(str, jars))}
