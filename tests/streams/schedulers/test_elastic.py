"""The scheduler that timers ring on: never all of its threads are held up."""

from __future__ import annotations

import threading

import pytest

from penstock.streams.schedulers import ElasticScheduler, SharedSchedulerError, shared_timer, threads
from tests.streams.schedulers.rigs import PATIENCE


def test_a_task_gets_a_thread_although_all_others_block() -> None:
    blocked, release = threading.Semaphore(0), threading.Event()
    scheduler = ElasticScheduler("test")

    def block() -> None:
        blocked.release()
        release.wait(PATIENCE)

    try:
        for _ in range(40):
            scheduler.submit(block)
        for _ in range(40):
            assert blocked.acquire(timeout=PATIENCE)
        done = threading.Event()
        scheduler.submit_after(0.001, done.set)
        assert done.wait(PATIENCE)
    finally:
        release.set()
        scheduler.close(PATIENCE)


def test_short_tasks_do_not_start_a_thread_each() -> None:
    scheduler = ElasticScheduler("test")
    names: set[str] = set()
    left = threading.Semaphore(0)

    def work() -> None:
        names.add(threading.current_thread().name)
        left.release()

    for _ in range(2000):
        scheduler.submit(work)
    for _ in range(2000):
        assert left.acquire(timeout=PATIENCE)
    scheduler.close(PATIENCE)
    assert len(names) < 200


def test_threads_without_work_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_FOR", 0.01)
    scheduler = ElasticScheduler("test")
    ran: list[threading.Thread] = []
    done = threading.Event()
    scheduler.submit(lambda: (ran.append(threading.current_thread()), done.set()))
    assert done.wait(PATIENCE)
    ran[0].join(PATIENCE)
    assert not ran[0].is_alive()
    again = threading.Event()
    scheduler.submit(again.set)
    assert again.wait(PATIENCE)
    scheduler.close(PATIENCE)


def test_the_shared_one_stays_open() -> None:
    with pytest.raises(SharedSchedulerError):
        shared_timer().close()
    assert shared_timer() is shared_timer()
