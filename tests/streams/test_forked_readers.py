"""A forked child that goes on with a stream that its parent has started."""

from __future__ import annotations

import os

import pytest

from tests.streams.schedulers.child import IN_CHILD, run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

FORK = f"""{IN_CHILD}
import asyncio, threading
from penstock.streams import Flux, Mono, Sinks, schedulers

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


ELSEWHERE = (
    FORK
    + """
class Elsewhere:
    '''Another thread brings what is requested, and perhaps the end, before request() returns.'''

    def __init__(self, count, *, own=0):
        self.left, self.own = list(range(count)), own

    def subscribe(self, subscriber):
        self.subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n):
        while self.own and n:
            self.own, n = self.own - 1, n - 1
            self.subscriber.on_next(self.left.pop(0))
        other = threading.Thread(target=self.bring, args=(n,))
        other.start()
        other.join()

    def bring(self, n):
        for number in self.left[:n]:
            self.subscriber.on_next(number)
        del self.left[:n]
        if not self.left:
            self.subscriber.on_complete()

    def cancel(self):
        pass

def read(source, prefetch, taken):
    elements = iter(Flux.from_publisher(source).to_iterable(prefetch=prefetch))
    print([next(elements) for _ in range(taken)])
    in_child(lambda: list(elements))
    print(list(elements))

async def read_async(source, prefetch, taken):
    elements = Flux.from_publisher(source).to_async_iterable(prefetch)
    print([await anext(elements) for _ in range(taken)])
    def all_others():
        async def rest():
            return [element async for element in elements]
        rest().send(None)
    in_child(all_others)
    print([element async for element in elements])
"""
)


@pytest.mark.parametrize("way", ["{}", "asyncio.run({})"], ids=["for", "async for"])
@pytest.mark.parametrize("prefetch", [256, 4], ids=["with the end", "before the end"])
def test_a_child_is_not_given_what_came_from_another_thread_before_the_first_look(
    way: str, prefetch: int
) -> None:
    function = "read_async" if "async" in way else "read"
    printed = run_script(f"""{ELSEWHERE}
{way.format(f"{function}(Elsewhere(5), {prefetch}, 1)")}
""")

    assert printed == "[0]\nchild True\n[1, 2, 3, 4]\n"


@pytest.mark.parametrize("way", ["{}", "asyncio.run({})"], ids=["for", "async for"])
@pytest.mark.parametrize("taken", [3, 5], ids=["before the second request", "after it"])
def test_a_child_is_not_given_what_another_thread_has_brought_after_the_readers_own(
    way: str, taken: int
) -> None:
    function = "read_async" if "async" in way else "read"
    printed = run_script(f"""{ELSEWHERE}
{way.format(f"{function}(Elsewhere(8, own=4 if {taken} == 5 else 2), 4, {taken})")}
""")

    numbers = list(range(8))
    assert printed == f"{numbers[:taken]}\nchild True\n{numbers[taken:]}\n"


SYNCHRONOUS = [
    "Flux.range(9)",
    "Flux.range(9).map(lambda n: n)",
    "Flux.range(3).flat_map(lambda n: Flux.range(3 * n, 3))",
    "Flux.range(3).concat_map(lambda n: Flux.range(3 * n, 3))",
    "Flux.range(9).publish_on(schedulers.immediate())",
]


@pytest.mark.parametrize("prefetch", [256, 2])
@pytest.mark.parametrize("stream", SYNCHRONOUS)
def test_a_child_goes_on_with_a_loop_over_what_runs_in_its_thread_only(stream: str, prefetch: int) -> None:
    printed = run_script(f"""{FORK}
elements = iter({stream}.to_iterable(prefetch={prefetch}))
print([next(elements), next(elements)])
in_child(lambda: list(elements))
print(list(elements))
""")

    rest = list(range(2, 9))
    assert printed == f"[0, 1]\nchild {rest}\n{rest}\n"


@pytest.mark.parametrize("stream", SYNCHRONOUS)
def test_a_child_goes_on_with_a_coroutine_over_what_runs_in_its_thread_only(stream: str) -> None:
    # A stream on an event loop lets others run after some milliseconds, and then the loop goes on with it. On
    # a busy machine they pass before the first element has come.
    printed = run_script(f"""{FORK}
from penstock.streams import home
from penstock.streams.fusion import codegen

home.FAIR_TIME = codegen.FAIR_TIME = 3600.0

async def main():
    elements = aiter({stream})
    print([await anext(elements), await anext(elements)])
    def all_others():
        rest = []
        async def read():
            rest.extend([element async for element in elements])
        reading = read()
        try:
            while True:
                reading.send(None)  # it lets other tasks run now and then
        except StopIteration:
            return rest
    in_child(all_others)
    print([element async for element in elements])

asyncio.run(main())
""")

    rest = list(range(2, 9))
    assert printed == f"[0, 1]\nchild {rest}\n{rest}\n"
