"""Schedulers in a forked child, where the parent's threads are gone."""

from __future__ import annotations

import os

import pytest

from tests.streams.schedulers.child import run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

# In the child nobody prints but the script itself; the parent waits for it and then says how it went on.
FORK = """
import os, sys, threading, warnings
from penstock.streams.schedulers import *

# Newer interpreters warn of a fork beside threads, which is the very thing to be tried here.
warnings.simplefilter("ignore", DeprecationWarning)

def works(scheduler):
    submitted, delayed = threading.Event(), threading.Event()
    scheduler.submit(submitted.set)
    scheduler.submit_after(0.01, delayed.set)
    return submitted.wait(10) and delayed.wait(10)

def in_child(check):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        # In one piece, even if Python does not buffer: threads of the parent may write meanwhile.
        print(f"child {check()}\\n", end="", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""

MAKERS = [
    "immediate()",
    "trampoline()",
    "single()",
    "pool(2)",
    "shared_pool()",
    "shared_single()",
    "background_loop()",
]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_scheduler_from_before_the_fork_works_on_both_sides(maker: str) -> None:
    printed = run_script(f"""{FORK}
scheduler = {maker}
print("before", works(scheduler))
in_child(lambda: works(scheduler))
print("after", works(scheduler))
""")

    assert printed == "before True\nchild True\nafter True\n"


@pytest.mark.parametrize("maker", ["single()", "pool(2)", "background_loop()"])
def test_what_the_parent_queued_is_not_run_twice(maker: str) -> None:
    printed = run_script(f"""{FORK}
scheduler = {maker}
gate, written = threading.Event(), threading.Semaphore(0)
for _ in range(3):
    scheduler.submit(gate.wait)
    scheduler.submit(lambda: (os.write(1, b"queued\\n"), written.release()))
scheduler.submit_after(0.05, lambda: (os.write(1, b"delayed\\n"), written.release()))
in_child(lambda: (gate.set(), works(scheduler))[1])
gate.set()
for _ in range(4):
    written.acquire(timeout=50)
""")

    assert sorted(printed.splitlines()) == ["child True", "delayed", "queued", "queued", "queued"]


def test_a_timer_from_before_the_fork_may_be_cancelled_in_the_child() -> None:
    printed = run_script(f"""{FORK}
makers, written = [immediate(), single(), background_loop()], threading.Semaphore(0)
write = lambda: (os.write(1, b"parent\\n"), written.release())
timers = [scheduler.submit_after(0.05, write) for scheduler in makers]
in_child(lambda: [timer.cancel() for timer in timers])
for _ in range(3):
    written.acquire(timeout=50)
""")

    assert sorted(printed.splitlines()) == ["child [None, None, None]", "parent", "parent", "parent"]


def test_the_child_does_not_touch_the_loop_of_the_parent() -> None:
    printed = run_script(f"""{FORK}
scheduler = background_loop()
works(scheduler)
of_the_parent = scheduler.loop
timer = scheduler.submit_after(3600, print)

def check():
    touched = []
    of_the_parent.call_soon_threadsafe = lambda *_: touched.append(1)
    timer.cancel()
    return touched, works(scheduler), touched

in_child(check)
""")

    assert printed == "child ([], True, [])\n"


def test_locks_held_by_other_threads_at_the_fork_do_not_block_the_child() -> None:
    printed = run_script(f"""{FORK}
from penstock.streams.schedulers.timers import shared_timers

held, release = threading.Event(), threading.Event()
makers = [single(), pool(2), immediate(), background_loop(), shared_timer()]

def hold():
    locks = makers[0]._lock, makers[1]._lock, makers[3]._timers.lock, makers[4]._changed
    with shared_timers._heap.lock, locks[0], locks[1], locks[2], locks[3]:
        held.set()
        release.wait(10)

holder = threading.Thread(target=hold)
holder.start()
held.wait(10)
in_child(lambda: [works(scheduler) for scheduler in makers])
release.set()
holder.join()
""")

    assert printed == "child [True, True, True, True, True]\n"


def test_a_closed_scheduler_stays_closed() -> None:
    printed = run_script(f"""{FORK}
scheduler = single()
scheduler.submit(lambda: None)
scheduler.close()

def refused():
    try:
        scheduler.submit(print)
    except SchedulerClosed:
        return "refused"

in_child(refused)
""")

    assert printed == "child refused\n"


def test_the_child_gets_a_loop_and_a_thread_of_its_own() -> None:
    printed = run_script(f"""{FORK}
before = background_loop().loop

def check():
    same = background_loop().loop is before
    names = sorted(thread.name for thread in threading.enumerate())
    return same, names

in_child(check)
print(background_loop().loop is before)
""")

    assert printed == "child (False, ['MainThread', 'penstock-loop'])\nTrue\n"


def test_a_child_that_exits_normally_is_as_silent() -> None:
    printed = run_script(f"""{FORK}
scheduler = background_loop()
works(scheduler)
child = os.fork()
if not child:
    works(scheduler)
    sys.exit(0)
print(os.waitpid(child, 0)[1], works(scheduler))
""")

    assert printed == "0 True\n"
