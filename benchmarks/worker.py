"""``python -m benchmarks.worker QUESTION SECONDS``: one process that measures; the figures as JSON."""

from __future__ import annotations

import json
import sys

from benchmarks.measuring import measure
from benchmarks.questions import ask

__all__ = ["main"]


def main(name: str, seconds: float) -> None:
    """For each alternative, a figure for each round."""
    with ask(name) as question:
        json.dump(measure(question, seconds).rounds, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
