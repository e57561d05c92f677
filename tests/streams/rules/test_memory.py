"""Long streams run in flat memory. Each runs in a process of its own, whose resident set is measured."""

from __future__ import annotations

import subprocess
import sys

import pytest

PREAMBLE = """
import gc, resource, threading
from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Sinks, schedulers

class Counting:
    def __init__(self, portion):
        self.seen = 0
        self.portion = portion
        self.left = portion
        self.finished = threading.Event()
        self.error = None
    def on_subscribe(self, subscription):
        self.subscription = subscription
        subscription.request(self.portion)
    def on_next(self, element):
        self.seen += 1
        self.left -= 1
        if not self.left:
            self.left = self.portion
            self.subscription.request(self.portion)
    def on_error(self, error):
        self.error = error
        self.finished.set()
    def on_complete(self):
        self.finished.set()

def run(flux, portion=1000):
    counting = Counting(portion)
    flux.subscribe(counting)
    assert counting.finished.wait(120)
    if counting.error is not None:
        raise counting.error
    return counting.seen

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def flat(make, small, large):
    run(make(small))
    gc.collect()
    before = peak()
    seen = run(make(large))
    print(seen, peak() - before)
"""


def growth(make: str, small: int, large: int) -> tuple[int, int]:
    """Elements seen, and by how many KB the process grew from the short run to the long one."""
    script = f"{PREAMBLE}\nflat(lambda n: {make}, {small}, {large})\n"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr
    seen, grown = out.stdout.split()
    return int(seen), int(grown)


@pytest.mark.slow
@pytest.mark.rare(4, kind="flat memory")
@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform == "win32", reason="the resident set is measured with getrusage")
@pytest.mark.parametrize(
    ("make", "elements", "seen"),
    [
        ("Flux.range(n).map(lambda x: x + 1).filter(lambda x: x % 2)", 10_000_000, 5_000_000),
        ("Flux.range(n).publish_on(schedulers.shared_pool())", 2_000_000, 2_000_000),
        ("Flux.range(n).publish_on(schedulers.shared_single(), prefetch=8)", 500_000, 500_000),
        ("Flux.range(n).flat_map(lambda x: Flux.just(x))", 300_000, 300_000),
        ("Flux.range(n).concat_map(lambda x: Flux.just(x))", 300_000, 300_000),
        ("Flux.range(n).flat_map_sequential(lambda x: Flux.just(x))", 300_000, 300_000),
        ("Flux.range(n).share()", 500_000, 500_000),
        ("Flux.range(n).cache(16)", 500_000, 500_000),
        ("Flux.just(1).repeat(n - 1)", 200_000, 200_000),
        ("Flux.merge(Flux.range(n // 2), Flux.range(n // 2))", 500_000, 500_000),
        ("Flux.zip(Flux.range(n), Flux.range(n))", 300_000, 300_000),
        ("Flux.range(n).timeout(60)", 300_000, 300_000),
    ],
)
def test_memory_stays_flat(make: str, elements: int, seen: int) -> None:
    got, grown = growth(make, 20_000, elements)
    assert got == seen
    assert grown < 5_000, f"{grown} KB"


def test_flat_map_takes_no_more_than_may_wait_however_short_the_inner_streams() -> None:
    """Room for a further inner stream is there only when the elements of an ended one have been taken."""
    from itertools import count

    from penstock.streams import Flux
    from tests.streams.recording import Recorder

    for operator in ("flat_map", "flat_map_sequential", "concat_map"):
        taken: list[int] = []
        numbers = Flux.from_iterable(count()).do_on_next(taken.append)
        recorder = Recorder.of(getattr(numbers, operator)(Flux.just), 1)
        assert recorder.check().items == [0]
        assert len(taken) <= 18
        recorder.cancel()
