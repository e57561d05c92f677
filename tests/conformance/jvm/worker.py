"""The process in which Java runs: reads jobs from its input, a line of JSON each, and answers with lines.

A job is either tests of the kit on one subject, or a function to be called. Started by workers.py, with the
class path as its arguments.
"""

import json
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.interop.jvm import start
from tests.conformance.jvm.subject import Kind, load, resolve
from tests.conformance.jvm.verdict import Verdict

# Small and quick to start. The simple collector also is the quickest to run when asked to.
OPTIONS = ("-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


def verdicts(job: dict[str, Any]) -> Iterator[tuple[str, Verdict]]:
    """Run the job; give each test's name as soon as there is a verdict."""
    if "call" in job:
        yield job["call"], _call(job["call"])
        return
    from tests.conformance.jvm.verifying import verify

    try:
        subject = load(job["subject"], Kind(job["kind"]) if job["kind"] else None, job["failed"])
    except Exception:
        problem = traceback.format_exc()
        yield from ((method, Verdict("failed", problem)) for method in job["methods"])
        return
    for method in job["methods"]:
        verdict = verify(subject, method, job["timeout"])
        yield method, verdict
        if job["until_failed"] and verdict.outcome == "failed":
            return


def _call(place: str) -> Verdict:
    try:
        resolve(place)()
    except BaseException:
        return Verdict("failed", traceback.format_exc())
    return Verdict("passed")


def main(class_path: list[str]) -> None:
    """Answer jobs until the input ends."""
    # The answers have a way of their own: whatever prints, here or in Java, prints to the error output.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    start(*map(Path, class_path), options=OPTIONS)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        for name, verdict in verdicts(json.loads(line)):
            print(json.dumps({"name": name, **asdict(verdict)}), file=answers, flush=True)
        print(json.dumps({"done": True}), file=answers, flush=True)
    # A subject may have left threads, in either language, that nobody will stop.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
