"""The interpreter exits at once and in silence, whatever the schedulers are doing."""

from __future__ import annotations

import pytest

from tests.streams.schedulers.child import run_script

MAKERS = ["single()", "pool(3)", "shared_pool()", "shared_single()", "shared_timer()", "background_loop()"]
TIMER_MAKERS = [*MAKERS, "immediate()", "trampoline()"]


@pytest.mark.parametrize("maker", MAKERS)
def test_with_an_idle_scheduler_left_open(maker: str) -> None:
    printed = run_script(f"""
        import threading
        from penstock.streams.schedulers import *

        done = threading.Event()
        scheduler = {maker}
        scheduler.submit(done.set)
        print(done.wait(10))
    """)

    assert printed == "True\n"


@pytest.mark.parametrize("maker", TIMER_MAKERS)
def test_with_delays_pending(maker: str) -> None:
    printed = run_script(f"""
        from penstock.streams.schedulers import *

        scheduler = {maker}
        timers = [scheduler.submit_after(3600, print) for _ in range(100)]
        print("ends")
    """)

    assert printed == "ends\n"


@pytest.mark.parametrize("maker", MAKERS)
def test_with_tasks_running_and_queued(maker: str) -> None:
    printed = run_script(f"""
        import threading
        from penstock.streams.schedulers import *

        begun = threading.Event()
        scheduler = {maker}

        def again():
            scheduler.submit(again)

        for _ in range(20):
            scheduler.submit(again)
        scheduler.submit(begun.set)
        print(begun.wait(10))
    """)

    assert printed == "True\n"


@pytest.mark.parametrize("maker", MAKERS)
def test_with_a_task_that_blocks_for_ever(maker: str) -> None:
    printed = run_script(f"""
        import threading
        from penstock.streams.schedulers import *

        begun = threading.Event()
        scheduler = {maker}
        scheduler.submit(lambda: (begun.set(), threading.Event().wait()))
        print(begun.wait(10))
    """)

    assert printed == "True\n"


def test_with_coroutines_on_the_background_loop() -> None:
    printed = run_script("""
        import asyncio, threading
        from penstock.streams.schedulers import background_loop

        begun = threading.Event()

        async def numbers():
            try:
                yield 1
                await asyncio.sleep(3600)
            finally:
                print("generator closed")

        async def wait():
            try:
                async for _ in numbers():
                    begun.set()
            except asyncio.CancelledError:
                print("coroutine cancelled")
                raise

        future = asyncio.run_coroutine_threadsafe(wait(), background_loop().loop)
        print(begun.wait(10))
    """)

    assert printed == "True\ngenerator closed\ncoroutine cancelled\n"


def test_tasks_submitted_while_exiting_are_refused_or_dropped() -> None:
    printed = run_script("""
        import atexit
        from penstock.streams.schedulers import SchedulerClosed, background_loop

        def at_exit():
            try:
                background_loop().submit(print)
            except SchedulerClosed as error:
                print(error.name)

        atexit.register(at_exit)  # runs after whatever is registered later
        background_loop().submit(lambda: None)
    """)

    assert printed == "background-loop\n"


def test_with_a_loop_scheduler_that_outlives_its_loop() -> None:
    printed = run_script("""
        import asyncio
        from penstock.streams.schedulers import loop

        async def main():
            scheduler = loop()
            scheduler.submit_after(3600, print)
            return scheduler

        print(asyncio.run(main()))
    """)

    assert printed == "<LoopScheduler 'loop' closed>\n"


def test_when_the_background_loop_has_already_ended_itself() -> None:
    printed = run_script("""
        import asyncio, threading
        from penstock.streams.schedulers.event_loop import BackgroundLoopScheduler

        class EndsFirst(asyncio.SelectorEventLoop):
            '''Does not run before it winds down, and is told to stop when it has.'''

            winds_down, ended = False, threading.Event()

            def run_forever(self):
                if self.winds_down:
                    super().run_forever()

            def run_until_complete(self, future):
                self.winds_down = True
                return super().run_until_complete(future)

            def close(self):
                super().close()
                self.ended.set()

            def call_soon_threadsafe(self, *arguments, **context):
                print(self.ended.wait(10))
                return super().call_soon_threadsafe(*arguments, **context)

        BackgroundLoopScheduler(EndsFirst)
    """)

    assert printed == "True\n"


@pytest.mark.parametrize(
    "stream",
    [
        "Flux.range(10**9).map_async(fetch)",
        "Flux.range(10**9).map_async(fetch, ordered=False).filter(bool)",
        "Flux.from_async_iterable(rows)",
        "Flux.range(10**9).flat_map(fetch)",
        "Flux.range(10**9).concat_map(fetch).publish_on(schedulers.shared_pool())",
        "Mono.from_callable(for_ever)",
    ],
)
def test_with_coroutines_of_a_stream_at_work_on_the_background_loop(stream: str) -> None:
    printed = run_script(f"""
        import asyncio, threading
        from penstock.streams import Flux, Mono, schedulers

        begun = threading.Event()

        async def fetch(x):
            begun.set()
            await asyncio.sleep(0.001)
            return x

        async def rows():
            while True:
                yield await fetch(1)

        async def for_ever():
            begun.set()
            await asyncio.Event().wait()

        running = {stream}.subscribe(lambda x: None)
        print(begun.wait(10))
    """)

    assert printed == "True\n"
