"""``python -m benchmarks.worker SECONDS QUESTION...``: one process that measures; the figures as JSON."""

from __future__ import annotations

import json
import sys

from benchmarks.measuring import measure
from benchmarks.questions import QUESTIONS

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """For each question, for each of its alternatives, a figure for each round."""
    seconds = float(arguments[0])
    figures = {}
    for name in arguments[1:]:
        with QUESTIONS[name]() as question:
            figures[name] = measure(question, seconds).rounds
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
