"""``python -m benchmarks``: measure, print the tables and the claims, write RESULTS.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks import (
    asynchronous,
    chain,
    hot_push,
    inner_monos,
    inner_streams,
    machine,
    report,
    starting,
    subscriber,
    thread_hop,
    thread_to_loop,
)
from benchmarks.claims import examine
from benchmarks.measuring import Answer, Question, measure

RESULTS = Path(__file__).with_name("RESULTS.md")

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
SECONDS = 10.0
"""For each question."""
QUICK_SECONDS = 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for. The exit code is 1 only with --check and a claim that is not met."""
    options = _parser().parse_args(arguments)
    seconds = QUICK_SECONDS if options.quick else SECONDS
    answers: dict[str, Answer] = {}
    for name in options.only or QUESTIONS:
        with QUESTIONS[name]() as question:
            answers[name] = measure(question, seconds)
        print(report.answer_text(answers[name]), flush=True)
    findings = examine(answers)
    if findings:
        print(report.findings_text(findings))
    if not options.quick and not options.only:
        RESULTS.write_text(report.page(machine.describe(), list(answers.values()), findings))
        print(f"written to {RESULTS.parent.name}/{RESULTS.name}")
    return int(options.check and not all(finding.met for finding in findings))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ten seconds instead of ninety; writes no file")
    parser.add_argument(
        "--only",
        action="append",
        choices=QUESTIONS,
        metavar="NAME",
        help=f"one of {', '.join(QUESTIONS)}; repeatable",
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a claim is not met")
    return parser


if __name__ == "__main__":
    sys.exit(main())
