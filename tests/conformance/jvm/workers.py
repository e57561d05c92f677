"""Processes that run tests of the kit, each with its own Java; a test that hangs or crashes costs one.

Java cannot live in the process of the test run: it cannot be restarted, does not survive a fork, handles
signals itself, and takes everything with it when it crashes.
"""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.conformance.jvm import kit
from tests.conformance.jvm.subject import Kind
from tests.conformance.jvm.verdict import Verdict

PATIENCE = 15.0
"""Seconds without a verdict, after which a test hangs. The slowest take two."""
KILL_AFTER = 120.0
"""Seconds for all tests of one subject."""
TAIL = 4000
"""Characters of a crashed process's error output that are worth reading."""


class Worker:
    """One process, started when there is something to do, and again after it had to be killed."""

    def __init__(self, class_path: Sequence[Path]) -> None:
        self._class_path = class_path
        self._process: subprocess.Popen[str] | None = None
        self._errors: Any = None

    def verify(
        self,
        place: str,
        methods: Iterable[str],
        *,
        kind: Kind | None = None,
        failed: str | None = None,
        patience: float = PATIENCE,
        kill_after: float = KILL_AFTER,
    ) -> dict[str, Verdict]:
        """Return the verdicts of these tests on the subject at `place`."""
        left = list(methods)
        verdicts: dict[str, Verdict] = {}
        with _Deadline(kill_after) as deadline:
            while left and not deadline.passed:
                job = {"subject": place, "kind": kind, "failed": failed, "methods": left}
                answered = self._answers(job, patience, deadline)
                verdicts |= answered
                left = [method for method in left if method not in answered]
                if left:  # the process is gone, and the first of these did it; the others have a chance
                    verdicts[left[0]] = Verdict("failed", self._bury())
                    del left[0]
        late = Verdict("failed", f"not run: {place} had used up its {kill_after:g} seconds")
        return verdicts | dict.fromkeys(left, late)

    def call(self, place: str, patience: float = PATIENCE) -> Verdict:
        """Call the function at `place`, without arguments."""
        with _Deadline(patience) as deadline:
            answered = self._answers({"call": place}, patience, deadline)
        return answered.get(place) or Verdict("failed", self._bury())

    def _answers(self, job: dict[str, Any], patience: float, deadline: "_Deadline") -> dict[str, Verdict]:
        """Return the verdicts that come before the end of the job, or of the process."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        deadline.kills(process)
        answers: dict[str, Verdict] = {}
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            while True:
                with _Deadline(patience) as silence:
                    silence.kills(process)
                    line = process.stdout.readline()
                if not line:
                    return answers
                answer = json.loads(line)
                if "done" in answer:
                    return answers
                name = answer.pop("name")
                answers[name] = Verdict(**answer)
        except BrokenPipeError:
            return answers

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        return subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.jvm.worker", *map(str, self._class_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=kit.ROOT,
            text=True,
        )

    def _bury(self) -> str:
        """Say how the process ended."""
        if self._process is None:
            return "the process was gone before it began"
        self._process.kill()
        code = self._process.wait()
        self._errors.seek(0)
        output = self._errors.read()[-TAIL:]
        self.close()
        how = "it hung, and was killed" if code == -9 else f"its process ended with {code}"
        return f"{how}; error output:\n{output}"

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, self._errors):
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Deadline:
    """Kills a process when time is up."""

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._process: subprocess.Popen[str] | None = None
        self._timer = threading.Timer(seconds, self._up)
        self._timer.daemon = True

    def kills(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        if self.passed:
            process.kill()

    def _up(self) -> None:
        self.passed = True
        if self._process is not None:
            self._process.kill()

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
