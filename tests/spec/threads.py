"""Threads that meet where the test wants them to, without a single sleep."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

PATIENCE = 60
"""Seconds after which a thread that does not come is taken for lost."""


class Gate:
    """A place where a thread stops until the test lets it go on."""

    def __init__(self):
        self.reached = threading.Event()
        self.opened = threading.Event()

    def stop(self):
        self.reached.set()
        assert self.opened.wait(PATIENCE)


@contextmanager
def held(gate, function, *arguments):
    """Run a function on another thread until it stands at the gate; let it go on at the end of the block."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(function, *arguments)
        assert gate.reached.wait(PATIENCE)
        try:
            yield
        finally:
            gate.opened.set()
        running.result(PATIENCE)


def elsewhere(function, *arguments):
    """Run a function on another thread and wait for it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result(PATIENCE)


def together(*functions):
    """Run functions at the same time, each on a thread of its own."""
    barrier = threading.Barrier(len(functions))

    def start(function):
        barrier.wait(PATIENCE)
        function()

    with ThreadPoolExecutor(len(functions)) as pool:
        for running in [pool.submit(start, function) for function in functions]:
            running.result(PATIENCE)


class Lonely:
    """Notices when two threads are inside of it at the same time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.met = False

    @contextmanager
    def alone(self):
        if not self.lock.acquire(blocking=False):
            self.met = True
            self.lock.acquire()
        try:
            yield
        finally:
            self.lock.release()
