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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.conformance.jvm import kit
from tests.conformance.jvm.subject import Kind
from tests.conformance.jvm.verdict import Verdict

SIDE_BY_SIDE = 2
PATIENCE = 60.0
"""Seconds without a verdict, after which a test hangs. The slowest take two on an idle machine."""
KILL_AFTER = 240.0
"""Seconds for all tests of one subject."""
TIMEOUT = 2000
"""Milliseconds that the kit itself waits for a signal; waited for in full only if something is wrong."""
TAIL = 4000
"""Characters of a crashed process's error output that are worth reading."""


class Worker:
    """One process, started when there is something to do, and again after it had to be killed."""

    def __init__(self, class_path: Sequence[Path]) -> None:
        self._class_path = class_path
        self._process: subprocess.Popen[str] | None = None
        self._errors: Any = None
        self._closed = False

    def verify(
        self,
        place: str,
        methods: Iterable[str],
        *,
        kind: Kind | None = None,
        failed: str | None = None,
        patience: float = PATIENCE,
        kill_after: float = KILL_AFTER,
        timeout: int = TIMEOUT,
        until_failed: bool = False,
    ) -> dict[str, Verdict]:
        """Return the verdicts of these tests on the subject at `place`, or those up to the first failure."""
        limits = {"timeout": timeout, "until_failed": until_failed}
        left = list(methods)
        verdicts: dict[str, Verdict] = {}
        with _Deadline(kill_after) as deadline:
            while left and not deadline.passed and not self._closed:
                job = {"subject": place, "kind": kind, "failed": failed, "methods": left, **limits}
                answered = self._answers(job, patience, deadline)
                verdicts |= answered
                if until_failed and any(verdict.outcome == "failed" for verdict in answered.values()):
                    return verdicts
                left = [method for method in left if method not in answered]
                if left:  # the process is gone, and the first of these did it; the others have a chance
                    verdicts[left[0]] = Verdict("failed", self._bury())
                    del left[0]
                    if until_failed:
                        return verdicts
        late = Verdict("failed", f"not run: {place} had used up its {kill_after:g} seconds")
        return verdicts | dict.fromkeys(left, late)

    def call(self, place: str, patience: float = PATIENCE) -> Verdict:
        """Call the function at `place`, without arguments."""
        with _Deadline(patience) as deadline:
            answered = self._answers({"call": place}, patience, deadline)
        return answered.get(place) or Verdict("failed", self._bury())

    def _answers(self, job: dict[str, Any], patience: float, deadline: "_Deadline") -> dict[str, Verdict]:
        """Return the verdicts that come before the end of the job, or of the process."""
        starting = self._process is None
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        deadline.kills(process)
        answers: dict[str, Verdict] = {}
        try:
            if starting:  # Java takes its time on a busy machine, and that is nobody's fault
                with _Deadline(max(patience, PATIENCE)) as silence:
                    silence.kills(process)
                    process.stdout.readline()
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
        self._end()
        how = "it hung, and was killed" if code == -9 else f"its process ended with {code}"
        return f"{how}; error output:\n{output}"

    def close(self) -> None:
        """End the process, and start no other."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, self._errors):
            with suppress(BrokenPipeError):  # a job that it had not read yet goes with it
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Workers:
    """Several workers side by side, for many subjects."""

    def __init__(self, class_path: Sequence[Path]) -> None:
        self._class_path = class_path
        self._workers: list[Worker] = []
        self._of_this_thread = threading.local()
        self._threads = ThreadPoolExecutor(SIDE_BY_SIDE)

    def submit(self, place: str, methods: Iterable[str], **limits: Any) -> Future[dict[str, Verdict]]:
        """Verify in the background; see `Worker.verify`. Who comes first is served first."""
        return self._threads.submit(self._verify, place, methods, limits)

    def _verify(self, place: str, methods: Iterable[str], limits: dict[str, Any]) -> dict[str, Verdict]:
        if not hasattr(self._of_this_thread, "worker"):
            self._of_this_thread.worker = Worker(self._class_path)
            self._workers.append(self._of_this_thread.worker)
        return self._of_this_thread.worker.verify(place, methods, **limits)

    def close(self) -> None:
        """End the processes; a run that was interrupted does not wait for the rest."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.close()

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
