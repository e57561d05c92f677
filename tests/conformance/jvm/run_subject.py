"""Run the JVM kit on anything, in a process of its own, and print the verdicts as JSON.

    python -m tests.conformance.jvm.run_subject tests.conformance.jvm.publishers:PUBLISHERS.map
    python -m tests.conformance.jvm.run_subject --kind publisher my.module:create --failed my.module:fail

A subject is "package.module:name": a `Subject` (see subject.py), or a function that makes a fresh one: a
Publisher from the number of its elements, a Processor from its buffer size, a Subscriber from nothing. A test
that hangs is killed and has failed; the tests after it go on in a new process.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.conformance.jvm import kit
from tests.conformance.jvm.subject import Kind, load, methods
from tests.conformance.jvm.verdict import Verdict
from tests.conformance.jvm.workers import KILL_AFTER, PATIENCE, Worker


def verify(
    place: str,
    *,
    kind: Kind | None = None,
    failed: str | None = None,
    only: Iterable[str] | None = None,
    patience: float = PATIENCE,
    kill_after: float = KILL_AFTER,
    worker: Worker | None = None,
) -> dict[str, Verdict]:
    """Return the verdict of each test of the kit (or of those in `only`) on the subject at `place`.

    A test may take `patience` seconds, all of them together `kill_after`. Many subjects are quicker with one
    `worker` for all; without it, a process is started for this one.
    """
    if worker is None:
        with Worker(kit.class_path()) as own:
            return verify(
                place,
                kind=kind,
                failed=failed,
                only=only,
                patience=patience,
                kill_after=kill_after,
                worker=own,
            )
    names = methods(load(place, kind, failed).kind) if only is None else only
    return worker.verify(place, names, kind=kind, failed=failed, patience=patience, kill_after=kill_after)


def outcomes(verdicts: dict[str, Verdict]) -> dict[str, str]:
    """Return what the JSON has: "passed", "failed" or "skipped", by the name of the test."""
    return {name: verdict.outcome for name, verdict in verdicts.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print {subject: {test: outcome}}; the messages of failures go to the error output."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("subjects", nargs="+", metavar="module:name")
    parser.add_argument("--kind", type=Kind, choices=Kind, help="what the functions make")
    parser.add_argument("--failed", metavar="module:name", help="makes a Publisher that fails at once")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds for one test (%(default)g)")
    parser.add_argument(
        "--kill-after", type=float, default=KILL_AFTER, help="seconds for one subject (%(default)g)"
    )
    parser.add_argument("--results", type=Path, help="a file for the JSON, instead of the output")
    chosen = parser.parse_args(arguments)

    results = {}
    with Worker(kit.class_path()) as worker:
        for place in chosen.subjects:
            verdicts = verify(
                place,
                kind=chosen.kind,
                failed=chosen.failed,
                patience=chosen.patience,
                kill_after=chosen.kill_after,
                worker=worker,
            )
            results[place] = outcomes(verdicts)
            for name, verdict in verdicts.items():
                if verdict.outcome == "failed":
                    print(f"{place} {name}: {verdict.why}", file=sys.stderr)
    text = json.dumps(results, indent=2)
    if chosen.results is None:
        print(text)
    else:
        chosen.results.write_text(text + "\n")
    return int(any("failed" in verdicts.values() for verdicts in results.values()))


if __name__ == "__main__":
    sys.exit(main())
