"""What becomes of an exception that leaves a task."""

from __future__ import annotations

import logging
import threading

import pytest

from penstock.streams.schedulers import Scheduler, immediate, scheduler, single
from tests.streams.schedulers.rigs import PATIENCE


def fail() -> None:
    raise ValueError("from the task")


def test_by_default_it_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with single("writer") as writer:
        writer.submit(fail)

    # What an earlier test has left behind may write to the log as well.
    (record,) = [record for record in caplog.records if record.threadName == "penstock-writer"]
    assert record.name == "penstock.streams"
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "a task on scheduler 'writer' raised"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)
    assert "in fail" in caplog.text


def test_a_hook_that_fails_harms_no_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(error: BaseException, where: Scheduler) -> None:
        raise SystemExit("from the hook")

    monkeypatch.setattr(scheduler, "on_task_error", hook)
    done = threading.Event()
    with single("hooked") as one:
        one.submit(fail)
        one.submit(done.set)
        assert done.wait(PATIENCE)

    told = [record.getMessage() for record in caplog.records if record.threadName == "penstock-hooked"]
    assert told == ["a task on scheduler 'hooked' raised", "the on_task_error hook itself raised"]


def test_an_exit_from_the_hook_on_the_main_thread_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def hook(error: BaseException, where: Scheduler) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(scheduler, "on_task_error", hook)

    with pytest.raises(KeyboardInterrupt):
        immediate().submit(fail)
