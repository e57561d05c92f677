"""One command and all that it starts, as one process to wait for: ``python -m tests.whole_cost COMMAND…``.

The processor time of a process is known to the one that waits for it. A test run leaves processes behind for
which it does not wait: Spark's Java ends when the run has ended, a killed command's children live on. They
become children of this process, which waits for them, so that its own processor time has theirs in it. That
needs Linux. Elsewhere the time of these processes is not counted.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from types import FrameType

__all__ = ["command_for"]

_BECOME_SUBREAPER = 36
"""``PR_SET_CHILD_SUBREAPER`` of ``prctl``."""
_TERMINATION = {signal.SIGTERM}
_PATIENCE = 120.0
"""Seconds for processes that outlive the command; what takes longer is not counted."""


def command_for(command: list[str]) -> list[str]:
    """The command that runs this one and waits for what it leaves behind."""
    return [sys.executable, "-m", "tests.whole_cost", *command]


def main(command: list[str]) -> int:
    """Run it; its exit code, or 128 and the signal that has ended it, as in a shell."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)
    # One that comes before there is somebody to pass it on to has to wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINATION)
    process = subprocess.Popen(
        command, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _TERMINATION)
    )

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(process.pid, number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TERMINATION)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The terminal has sent it to the command as well.
    code = _wait_for(process.pid)
    # From here on the number may be another process's.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    process.returncode = code
    _wait_for_the_others()
    return code if code >= 0 else 128 - code


def _wait_for(number: int) -> int:
    """The exit code of the command; orphans that end before it are waited for as they come."""
    while True:
        ended, status = os.wait()
        if ended == number:
            return os.waitstatus_to_exitcode(status)


def _wait_for_the_others() -> None:
    until = time.monotonic() + _PATIENCE
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        left = until - time.monotonic()
        if ended == 0 and (left <= 0 or signal.sigtimedwait({signal.SIGCHLD}, left) is None):
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
