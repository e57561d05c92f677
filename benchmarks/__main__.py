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
from benchmarks.results_page import ResultsPage

RESULTS = Path(__file__).with_name("RESULTS.md")

PROCESSES, SECONDS = 5, 1.5
"""How many processes for each question, and how long each of them measures.

The interpreter adapts code to what it meets, so each question has processes of its own. And part of the luck
lasts as long as a process does: ten that measured the same chain gave ratios from 1.14 to 1.21.
"""
QUICK_PROCESSES, QUICK_SECONDS = 1, 0.6


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for. The exit code is 1 if something could not be measured, or a claim is not met
    and --check was given.
    """
    options = _parser().parse_args(arguments)
    if options.profile:
        for name in options.profile:
            profiles.show(name)
        return 0
    if options.quick and options.update:
        _parser().error("--update needs a thorough measurement: leave out --quick")
    names = options.only or NAMES
    processes, seconds = (QUICK_PROCESSES, QUICK_SECONDS) if options.quick else (PROCESSES, SECONDS)
    is_written = options.update or not (options.quick or options.only)
    # First, so that a missing peer is known before twenty minutes have passed; one question needs few.
    facts = machine.describe() if is_written else {}
    answers = {name: _unanswered(name) for name in names}
    for answer in answers.values():
        _check_python(answer.question)
    failed: dict[str, int] = {}
    for number in range(1, processes + 1):
        print(f"pass {number} of {processes}", file=sys.stderr, flush=True)
        for name in names:
            if number <= (answers[name].question.most_processes or processes):
                try:
                    answers[name].add(**_measured(answers[name].question, seconds, number - 1))
                except subprocess.CalledProcessError as failure:
                    # Its traceback is above. What the other questions take an hour for is not lost with it.
                    failed[name] = failure.returncode
                    print(f"{name} failed in pass {number}", file=sys.stderr, flush=True)
    answers = {name: answer for name, answer in answers.items() if answer.rounds}
    for answer in answers.values():
        print(report.answer_text(answer))
    findings = examine(answers)
    if findings:
        print(report.findings_text(findings))
    if is_written:
        page = ResultsPage.read(RESULTS.read_text()) if options.update else ResultsPage()
        page.update(facts, answers.values(), findings, failed)
        RESULTS.write_text(page.text())
        print(f"written to {RESULTS.parent.name}/{RESULTS.name}")
    if failed:
        print(f"failed, in one pass at least: {', '.join(failed)}", file=sys.stderr)
        return 1
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
    parser.add_argument(
        "--update", action="store_true", help="replace the tables of what was measured in RESULTS.md"
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a claim is not met")
    return parser


if __name__ == "__main__":
    sys.exit(main())
