"""The kit does not depend on the clock: on a busy machine it says what it says on an idle one."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.tck import Environment, PublisherVerification, run
from penstock.tck.probe import Probe
from tests.tck.legal.publishers import ThreadedPublisher
from tests.tck.legal.serving import RangePublisher
from tests.tck.loaded import busy, main
from tests.tck.test_kills import BROKEN

ROOT = Path(__file__).parents[2]

BROKEN_AT_A_TIME = 60
"""Each run of the tests takes others; all of them, and the legal ones, are verified without loops as well."""


@pytest.mark.rare(60)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_broken_subjects_fail_and_correct_ones_pass_beside_two_busy_loops() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    kills = "tests/tck/test_kills.py::test_a_broken_subject_fails_with_the_rule_that_it_breaks"
    broken = [f"{kills}[{one.id}]" for one in random.sample(BROKEN, BROKEN_AT_A_TIME)]

    with busy(2):
        done = subprocess.run(
            [*command, *broken, "tests/tck/test_correct_subjects.py"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )

    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.rare(120)
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_of_all_legal_subjects_beside_four_busy_loops_raises_no_alarm(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["--time-limit", "600"]) == 0, capfd.readouterr().out

    assert "1 of 1 runs beside 4 busy loops" in capfd.readouterr().out


class SendsWhenTheTestIsOver(RangePublisher):
    """Its request never returns; a thread of its own sends an element when the test has given up."""

    over = threading.Event()
    sent: ClassVar[list[threading.Thread]] = []

    class Subscription(RangePublisher.Subscription):
        def request(self, n: int, /) -> None:
            late = threading.Thread(target=self.send_late, daemon=True)
            SendsWhenTheTestIsOver.sent.append(late)
            late.start()
            SendsWhenTheTestIsOver.over.wait(30)

        def send_late(self) -> None:
            SendsWhenTheTestIsOver.over.wait(30)
            self.subscriber.on_next(0)


class StuckVerification(PublisherVerification):
    environment = Environment(timeout=2)

    def create_publisher(self, elements: int) -> Any:
        return SendsWhenTheTestIsOver(elements)


def test_a_late_signal_of_a_stuck_subject_raises_nothing_on_a_thread_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)

    (result,) = run(StuckVerification, lambda name: "_spec101_" in name)
    SendsWhenTheTestIsOver.over.set()
    for late in SendsWhenTheTestIsOver.sent:
        late.join(30)

    assert "request(1) did not return within 2 s" in result.message
    assert SendsWhenTheTestIsOver.sent
    assert raised == []


class Preempted(ThreadedPublisher):
    """Keeps every rule; it notes on which threads it is cancelled."""

    cancelled_on: ClassVar[list[str]] = []

    class Subscription(ThreadedPublisher.Subscription):
        def cancel(self) -> None:
            Preempted.cancelled_on.append(threading.current_thread().name)
            super().cancel()


def test_a_test_ends_after_what_it_does_inside_a_signal_although_the_thread_there_is_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[Any] = []
    settled = threading.Event()
    monkeypatch.setattr(threading, "excepthook", raised.append)

    def held_up(probe: Probe) -> None:
        """The machine has no time for this thread until the test believes that all is silent."""
        settled.wait(30)
        time.sleep(0.1)

    monkeypatch.setattr(Probe, "_stop_runaway", held_up)

    class QuickVerification(PublisherVerification):
        environment = Environment(timeout=5)

        def create_publisher(self, elements: int) -> Any:
            return Preempted(elements)

        def settle(self) -> None:
            settled.set()

    (result,) = run(QuickVerification, lambda name: name.endswith("while_on_next_runs_on_another_thread"))

    assert result.verdict == "pass", result.message
    assert "tck-elsewhere" in Preempted.cancelled_on
    assert raised == []
