"""``python -m benchmarks.worker QUESTION SECONDS NUMBER``: one process that measures; the figures as JSON."""

from __future__ import annotations

import json
import sys

from benchmarks.measuring import measure
from benchmarks.questions import ask

__all__ = ["main"]


def main(name: str, seconds: float, number: int) -> None:
    """For each alternative, a figure for each round; ``number`` says how many processes were before."""
    with ask(name) as question:
        answer = measure(question, seconds, number * question.fewest_rounds)
        json.dump({"rounds": answer.rounds, "facts": answer.facts}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
