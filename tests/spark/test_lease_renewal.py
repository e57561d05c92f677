"""One thread renews the leases of all tasks of a process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from penstock.aquifer import GatewayUnreachable
from penstock.spark.source.lease_renewal import LeaseRenewal, renewed

PATIENCE = 60.0


class Renewed:
    """A lease that notes when it was renewed, and by which threads."""

    def __init__(self, *failures: BaseException) -> None:
        self.threads: set[threading.Thread] = set()
        self.twice = threading.Event()
        self._failures = list(failures)
        self._count = 0

    def __call__(self) -> None:
        self.threads.add(threading.current_thread())
        self._count += 1
        if self._count >= 2:
            self.twice.set()
        if self._failures:
            raise self._failures.pop()


def test_a_lease_is_renewed_again_and_again_while_its_task_runs() -> None:
    lease = Renewed()
    with LeaseRenewal().each(0.01, lease):
        assert lease.twice.wait(PATIENCE)


def test_a_lease_with_a_short_interval_does_not_wait_for_one_with_a_long_interval() -> None:
    leases, long, short = LeaseRenewal(), Renewed(), Renewed()
    with leases.each(3600, long), leases.each(0.01, short):
        assert short.twice.wait(PATIENCE)
    assert not long.threads


def test_one_thread_renews_for_many_tasks_at_once() -> None:
    renewal, leases = LeaseRenewal(), [Renewed() for _ in range(20)]

    def task(lease: Renewed) -> bool:
        with renewal.each(0.005, lease):
            return lease.twice.wait(PATIENCE)

    with ThreadPoolExecutor(len(leases)) as tasks:
        assert all(tasks.map(task, leases))
    assert len(set[threading.Thread]().union(*(lease.threads for lease in leases))) == 1


@pytest.mark.parametrize("failure", [GatewayUnreachable("gone"), ZeroDivisionError("a defect")])
def test_a_renewal_that_fails_is_tried_again_and_keeps_nobody_from_theirs(failure: Exception) -> None:
    renewal, fails, other = LeaseRenewal(), Renewed(failure), Renewed()
    with renewal.each(0.01, fails), renewal.each(0.01, other):
        assert fails.twice.wait(PATIENCE)
        assert other.twice.wait(PATIENCE)


def test_a_task_that_is_done_is_not_renewed_any_more() -> None:
    renewal, done, other = LeaseRenewal(), Renewed(), Renewed()
    with renewal.each(3600, done):
        pass
    with renewal.each(0.01, other):
        assert other.twice.wait(PATIENCE)
    assert not done.threads


def test_a_task_that_raises_is_not_renewed_any_more() -> None:
    renewal, lease = LeaseRenewal(), Renewed()
    with pytest.raises(ZeroDivisionError), renewal.each(3600, lease):
        raise ZeroDivisionError
    assert not renewal._due


def test_the_thread_ends_when_there_was_no_task_for_long_and_another_one_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.spark.source.lease_renewal._KEEPS", 0.01)
    renewal, first, second = LeaseRenewal(), Renewed(), Renewed()
    with renewal.each(0.005, first):
        assert first.twice.wait(PATIENCE)
    (thread,) = first.threads
    thread.join(PATIENCE)
    assert not thread.is_alive()
    with renewal.each(0.005, second):
        assert second.twice.wait(PATIENCE)


def test_a_fork_renews_its_leases_itself() -> None:
    lease = Renewed()
    with ExitStack() as stack:
        stack.enter_context(renewed(0.01, lease))
        assert lease.twice.wait(PATIENCE)  # The thread of this process runs.
        child = _forked(_renews)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def _renews() -> bool:
    lease = Renewed()
    with renewed(0.01, lease):
        return lease.twice.wait(PATIENCE)


def _forked(function: Callable[[], bool]) -> int:
    child = os.fork()
    if child:
        return child
    outcome = 1
    try:
        outcome = 0 if function() else 1
    finally:
        os._exit(outcome)
