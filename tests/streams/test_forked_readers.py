"""A forked child that goes on with a stream that its parent has started."""

from __future__ import annotations

import os

import pytest

from tests.streams.schedulers.child import run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

FORK = """
import asyncio, os, signal, sys, threading, warnings
from penstock.streams import Flux, Mono, Sinks, schedulers

warnings.simplefilter("ignore", DeprecationWarning)

def in_child(check):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        signal.alarm(20)  # a child that hangs must not outlive the test
        try:
            print("child", check(), flush=True)
        except RuntimeError as refused:
            print("child", "before a fork" in str(refused), flush=True)
        os._exit(0)
    os.waitpid(child, 0)

gate = threading.Event()

async def later(number):
    while number and not gate.is_set():
        await asyncio.sleep(0.001)
    return number

def blocked(number):
    if number:
        gate.wait()
    return number
"""


@pytest.mark.parametrize(
    "stream",
    ["Flux.range(3).map_async(later)", "Flux.range(3).publish_on(schedulers.shared_pool()).map(blocked)"],
)
def test_a_child_that_would_wait_for_its_parents_threads_is_told_so(stream: str) -> None:
    printed = run_script(f"""{FORK}
elements = iter({stream})
print(next(elements))
in_child(lambda: next(elements))
gate.set()
print(list(elements))
""")

    assert printed == "0\nchild True\n[1, 2]\n"


def test_a_child_that_would_wait_for_a_timer_of_its_parent_is_told_so() -> None:
    printed = run_script(f"""{FORK}
elements = iter(Flux.just("first").concat_with(Flux.interval(3600)))
print(next(elements))
in_child(lambda: next(elements))
elements.close()
""")

    assert printed == "first\nchild True\n"


def test_a_child_that_waits_for_a_subscription_of_its_parent_is_told_so() -> None:
    printed = run_script(f"""{FORK}
running = Flux.range(3).publish_on(schedulers.shared_pool()).subscribe(lambda n: gate.wait())
in_child(running.wait)
in_child(lambda: (running.cancel(), running.wait()))
gate.set()
print(running.wait())
""")

    assert printed == "child True\nchild (None, True)\nTrue\n"


def test_a_child_goes_on_with_a_synchronous_stream_of_its_parent() -> None:
    printed = run_script(f"""{FORK}
elements = iter(Flux.range(5).map(lambda n: n * n))
print(next(elements))
in_child(lambda: list(elements))
print(list(elements))
""")

    assert printed == "0\nchild [1, 4, 9, 16]\n[1, 4, 9, 16]\n"


@pytest.mark.parametrize(
    "stream",
    ["Flux.interval(0.01).take(5)", "Flux.range(5).map_async(later)", "Flux.range(5).delay_elements(0.01)"],
)
def test_a_child_starts_streams_of_its_own(stream: str) -> None:
    printed = run_script(f"""{FORK}
gate.set()
print(list({stream}))
in_child(lambda: list({stream}))
""")

    assert printed == "[0, 1, 2, 3, 4]\nchild [0, 1, 2, 3, 4]\n"


def test_a_child_is_not_given_the_elements_that_its_parent_has_in_its_queue() -> None:
    printed = run_script(f"""{FORK}
came = threading.Event()
elements = iter(Flux.range(9).do_on_complete(came.set).publish_on(schedulers.shared_pool()))
print(next(elements))
came.wait()
in_child(lambda: next(elements))
print(list(elements))
""")

    assert printed == "0\nchild True\n[1, 2, 3, 4, 5, 6, 7, 8]\n"


def test_a_child_that_goes_on_without_the_stream_of_its_parent_hears_nothing_of_it() -> None:
    printed = run_script(f"""{FORK}
for element in Flux.range(2).publish_on(schedulers.shared_pool()):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        print("child", element, flush=True)
        sys.exit()
    os.waitpid(child, 0)
print("parent")
""")

    assert printed == "child 0\nchild 1\nparent\n"


def test_a_child_that_goes_on_with_a_coroutine_is_not_given_what_its_parent_has() -> None:
    printed = run_script(f"""{FORK}
async def main():
    elements = aiter(Flux.range(9).publish_on(schedulers.shared_pool()))
    print(await anext(elements))
    def one_more():
        elements.asend(None).send(None)
    in_child(one_more)
    print([element async for element in elements])

asyncio.run(main())
""")

    assert printed == "0\nchild True\n[1, 2, 3, 4, 5, 6, 7, 8]\n"
