"""What the figures were taken on: enough to judge them, nothing that tells whose machine it is."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import penstock

__all__ = ["PEERS", "describe"]

PEERS = (
    "reactivex",
    "aiostream",
    "streamz",
    "janus",
    "pyzmq",
    "msgspec",
    "uvloop",
    "anyio",
    "trio",
    "pyspark",
)


def describe() -> dict[str, str]:
    """The machine, the interpreter and the versions, by what they are."""
    facts = {
        "Date": datetime.now(UTC).date().isoformat(),
        "Processor": f"{_processor()}, {os.cpu_count()} cores",
        "System": f"{platform.system()} on {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Penstock": penstock.__version__,
    }
    return facts | {peer: metadata.version(peer) for peer in PEERS}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or "unknown"
