"""What a run of tests has cost has the processes in it for which nobody else waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.whole_cost import command_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's subreapers")

COMPUTES = "import time\nwhile time.process_time() < 0.5: pass"


def ended(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Its exit code and its processor time."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_utime + used.ru_stime


def test_a_process_that_outlives_the_command_is_counted() -> None:
    leaves_it = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {COMPUTES!r}])"

    code, used = ended(subprocess.Popen(command_for([sys.executable, "-c", leaves_it])))

    assert code == 0
    assert used >= 0.5


@pytest.mark.parametrize(("end", "code"), [("exit 3", 3), ("kill -KILL $$", 128 + signal.SIGKILL)])
def test_the_exit_code_is_that_of_the_command(end: str, code: int) -> None:
    assert ended(subprocess.Popen(command_for(["sh", "-c", end])))[0] == code


def test_a_termination_is_passed_on() -> None:
    command = command_for(["sh", "-c", "echo started; exec sleep 600"])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        process.terminate()

        assert process.wait(60) == 128 + signal.SIGTERM
