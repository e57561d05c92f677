"""``python -m benchmarks``: measure, print the tables and the claims, write RESULTS.md."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import machine, profiles, report
from benchmarks.claims import examine
from benchmarks.measuring import Answer, Question
from benchmarks.questions import NAMES, ask

RESULTS = Path(__file__).with_name("RESULTS.md")

PROCESSES, SECONDS = 5, 1.5
"""How many processes for each question, and how long each of them measures.

The interpreter adapts code to what it meets, so each question has processes of its own. And part of the luck
lasts as long as a process does: ten that measured the same chain gave ratios from 1.14 to 1.21.
"""
QUICK_PROCESSES, QUICK_SECONDS = 1, 0.6


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for. The exit code is 1 only with --check and a claim that is not met."""
    options = _parser().parse_args(arguments)
    if options.profile:
        for name in options.profile:
            profiles.show(name)
        return 0
    names = options.only or NAMES
    processes, seconds = (QUICK_PROCESSES, QUICK_SECONDS) if options.quick else (PROCESSES, SECONDS)
    is_whole = not options.quick and not options.only
    # First, so that a missing peer is known before twenty minutes have passed; one question needs few.
    facts = machine.describe() if is_whole else {}
    answers = {name: _unanswered(name) for name in names}
    for answer in answers.values():
        _check_python(answer.question)
    for number in range(1, processes + 1):
        print(f"pass {number} of {processes}", file=sys.stderr, flush=True)
        for name in names:
            if number <= (answers[name].question.most_processes or processes):
                answers[name].add(**_measured(answers[name].question, seconds, number - 1))
    for answer in answers.values():
        print(report.answer_text(answer))
    findings = examine(answers)
    if findings:
        print(report.findings_text(findings))
    if is_whole:
        RESULTS.write_text(report.page(facts, list(answers.values()), findings))
        print(f"written to {RESULTS.parent.name}/{RESULTS.name}")
    return int(options.check and not all(finding.met for finding in findings))


def _unanswered(name: str) -> Answer:
    with ask(name) as question:
        return Answer(question)


def _check_python(question: Question) -> None:
    if question.python is not None and not question.python.exists():
        environment = question.python.parents[1].name
        raise SystemExit(f"{question.name} needs {environment}: run make {environment}/.installed")


def _measured(question: Question, seconds: float, before: int) -> dict[str, Any]:
    python = str(question.python or sys.executable)
    command = [python, "-m", "benchmarks.worker", question.name, str(seconds), str(before)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one minute instead of five; writes no file")
    parser.add_argument(
        "--only",
        action="append",
        choices=NAMES,
        metavar="NAME",
        help=f"one of {', '.join(NAMES)}; repeatable",
    )
    parser.add_argument(
        "--profile",
        action="append",
        choices=profiles.NAMES,
        metavar="NAME",
        help=f"show where the time goes instead; one of {', '.join(profiles.NAMES)}; repeatable",
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a claim is not met")
    return parser


if __name__ == "__main__":
    sys.exit(main())
