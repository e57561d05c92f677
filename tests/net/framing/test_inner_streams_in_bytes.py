"""Large elements of streams that are opened while another one runs, and of streams that are split."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from penstock.net.framing import length_prefixed
from penstock.spec import Subscriber
from penstock.streams import Flux, Mono, schedulers
from penstock.streams.operators import splitter
from penstock.streams.spi import Pausable, PublisherSource, flux_of

LARGE = 1 << 20
CHUNK = 1 << 16


class Sent:
    """Frames of these sizes; ``taken`` counts the bytes that were read of them."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        for size in self.sizes:
            frame = size.to_bytes(4, "big") + bytes(size)
            for at in range(0, len(frame), CHUNK):
                self.taken += len(frame[at : at + CHUNK])
                yield frame[at : at + CHUNK]

    async def steps(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk
            await asyncio.sleep(0)


def framed(sent: Sent) -> Flux[bytes]:
    """Cut on the thread that requests them, by a stage that can be paused."""
    return Flux.from_iterable(sent).transform(length_prefixed())


def framed_on_a_loop(sent: Sent) -> Flux[bytes]:
    """The same, from chunks that come on an event loop."""
    return Flux.from_async_iterable(sent.steps).transform(length_prefixed())


class Peer:
    """A publisher that is not a stage of ours, so that it cannot be paused."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent

    def subscribe(self, subscriber: Subscriber[bytes]) -> None:
        subscriber.on_subscribe(_PeerSubscription(self.sent, subscriber))


class _PeerSubscription:
    def __init__(self, sent: Sent, subscriber: Subscriber[bytes]) -> None:
        self.sent = sent
        self.subscriber = subscriber
        self.left = deque(sent.sizes)
        self.demand = 0
        self.busy = self.over = False

    def request(self, n: int, /) -> None:
        self.demand += n
        if self.busy:
            return
        self.busy = True
        while self.demand and self.left and not self.over:
            self.demand -= 1
            size = self.left.popleft()
            self.sent.taken += size
            self.subscriber.on_next(bytes(size))
        self.busy = False
        if not self.left and not self.over:
            self.over = True
            self.subscriber.on_complete()

    def cancel(self) -> None:
        self.over = True


def of_a_peer(sent: Sent) -> Flux[bytes]:
    source = PublisherSource(Peer(sent))
    source.ahead = 2
    return flux_of(source)


class PausablePeer:
    """Another one, whose subscription can be paused. It ends with its last element, paused or not."""

    def __init__(self, sent: Sent, element_of: Callable[[int], Any]) -> None:
        self.sent = sent
        self.element_of = element_of

    def subscribe(self, subscriber: Subscriber[Any]) -> None:
        subscriber.on_subscribe(_PausablePeerSubscription(self.sent, self.element_of, subscriber))


class _PausablePeerSubscription(Pausable):
    def __init__(self, sent: Sent, element_of: Callable[[int], Any], subscriber: Subscriber[Any]) -> None:
        self.sent = sent
        self.element_of = element_of
        self.subscriber = subscriber
        self.size: int | None = None
        self.left = deque(sent.sizes)
        self.demand = 0
        self.busy = self.paused = self.over = False

    def request(self, n: int, /) -> None:
        self.demand += n
        self.work()

    def can_pause(self) -> bool:
        return True

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.work()

    def size_of_one(self) -> int | None:
        return self.size

    def work(self) -> None:
        if self.busy:
            return
        self.busy = True
        while self.demand and self.left and not self.over and not self.paused:
            self.demand -= 1
            self.size = self.left.popleft()
            self.sent.taken += self.size
            self.subscriber.on_next(self.element_of(self.size))
        self.busy = False
        if not self.left and not self.over:
            self.over = True
            self.subscriber.on_complete()

    def cancel(self) -> None:
        self.over = True


def of_a_pausable_peer(sent: Sent, element_of: Callable[[int], Any] = bytes) -> Flux[Any]:
    source = PublisherSource(PausablePeer(sent, element_of))
    source.ahead = 2
    return flux_of(source)


SOURCES = {"framed": framed, "framed on a loop": framed_on_a_loop, "of a peer": of_a_peer}
every_source = pytest.mark.parametrize("source", SOURCES)

Way = Callable[[Flux[Any]], Flux[Any]]


def in_turn(groups: int) -> Callable[[Any], int]:
    """A key that deals the elements out to so many groups."""
    numbers = iter(range(10**9))
    return lambda _: next(numbers) % groups


async def itself(frame: bytes) -> bytes:
    return frame


def part(stream: Flux[Any]) -> Flux[Any]:
    return stream


OPENED: dict[str, Way] = {
    "flat_map": lambda f: Flux.just(1).flat_map(lambda _: f),
    "flat_map of a mapped stream": lambda f: Flux.just(1).flat_map(lambda _: f.map(part)),
    "flat_map_sequential": lambda f: Flux.just(1).flat_map_sequential(lambda _: f),
    "concat_map": lambda f: Flux.just(1).concat_map(lambda _: f),
    "concat_map after a list": lambda f: Flux.just(0, 1).concat_map(lambda n: f if n else Flux.just(b"")),
    "switch_map": lambda f: Flux.just(1).switch_map(lambda _: f),
    "flat_map in flat_map": lambda f: Flux.just(1).flat_map(lambda _: Flux.just(1).flat_map(lambda _: f)),
    "flat_map in concat_map": lambda f: Flux.just(1).concat_map(lambda _: Flux.just(1).flat_map(lambda _: f)),
    "concat_map in switch_map": lambda f: Flux.just(1).switch_map(
        lambda _: Flux.just(1).concat_map(lambda _: f)
    ),
    "published": lambda f: Flux.just(1).flat_map(lambda _: f).publish_on(schedulers.shared_pool()),
    "subscribed elsewhere": lambda f: (
        Flux.just(1).flat_map(lambda _: f).subscribe_on(schedulers.shared_pool())
    ),
    "one subscribed elsewhere": lambda f: (
        Flux.just(1).concat_map(lambda _: f).subscribe_on(schedulers.shared_pool()).map(part)
    ),
    "awaited": lambda f: Flux.just(1).flat_map(lambda _: f).map_async(itself, concurrency=2),
    "merged": lambda f: Flux.merge(Flux.just(1).concat_map(lambda _: f), Flux.empty()),
    "zipped": lambda f: Flux.zip(Flux.just(1).flat_map(lambda _: f), Flux.range(10**6)).map(lambda x: x[0]),
    "in time": lambda f: Flux.just(1).concat_map(lambda _: f).timeout(1000),
    "defer": lambda f: Flux.defer(lambda: f),
    "using": lambda f: Flux.using(lambda: 1, lambda _: f, lambda _: None),
    "using_when": lambda f: Flux.using_when(Mono.just(1), lambda _: f, lambda _: Mono.empty()),
    "on_error_resume": lambda f: Flux.error(ValueError()).on_error_resume(lambda _: f),
    "switch_if_empty": lambda f: Flux.empty().switch_if_empty(f),
}
SPLIT: dict[str, Way] = {
    "one group": lambda f: f.group_by(in_turn(1)).flat_map(part),
    "groups": lambda f: f.group_by(in_turn(4)).flat_map(part),
    "windows": lambda f: f.window(100).flat_map(part),
    "windows in order": lambda f: f.window(100).concat_map(part),
    "short windows in order": lambda f: f.window(2).concat_map(part),
    "windows up to an element": lambda f: f.window_until(lambda _: False).flat_map(part),
    "windows in time": lambda f: f.window_timeout(100, 10_000).concat_map(part),
    "partition": lambda f: Flux.merge(*f.partition(in_turn(2))),
    "groups of an opened stream": lambda f: (
        Flux.just(1).flat_map(lambda _: f).group_by(in_turn(4)).flat_map(part)
    ),
    "windows of an opened stream": lambda f: Flux.just(1).concat_map(lambda _: f).window(100).flat_map(part),
    "rails": lambda f: f.parallel(4).map(part).sequential(),
    "rails of an opened stream": lambda f: (
        Flux.just(1).flat_map(lambda _: f).parallel(4).map(part).sequential()
    ),
    "rails with nothing on them": lambda f: Flux.just(1).concat_map(lambda _: f).parallel(2).sequential(),
    "rails with workers": lambda f: (
        Flux.just(1).flat_map(lambda _: f).parallel(2).run_on(schedulers.shared_pool()).map(part).sequential()
    ),
    "rails by size": lambda f: Flux.just(1).concat_map(lambda _: f).parallel(2).ordered(key=len),
}
PARTS = 4
"""No more parts are read at the same time."""


async def at_rest(number: Callable[[], int]) -> int:
    """A number when it has stopped growing."""
    before, quiet = -1, 0
    while quiet < 5:
        now = number()
        quiet = quiet + 1 if now == before else 0
        before = now
        await asyncio.sleep(0.02)
    return before


async def held_by_a_slow_loop(
    sent: Sent, stream: Flux[bytes], at_a_stop: Callable[[], object] = lambda: None
) -> int:
    """The most bytes that wait for a loop that stands still, at two of its large elements."""
    used = large = most = 0
    async for frame in stream:
        used += len(frame)
        large += len(frame) >= LARGE
        if len(frame) >= LARGE and large in (1, 5):
            await at_rest(lambda: sent.taken)
            at_a_stop()
            most = max(most, await at_rest(lambda: sent.taken) - used)
    assert used == sum(sent.sizes)
    return most


@every_source
@pytest.mark.parametrize("way", OPENED)
def test_few_large_elements_of_a_stream_that_is_opened_later_wait(way: str, source: str) -> None:
    """Also after small ones, which let the window grow. The queues: the inner stream's, and the loop's."""
    sent = Sent([10] * 2000 + [LARGE] * 40)

    assert asyncio.run(held_by_a_slow_loop(sent, OPENED[way](SOURCES[source](sent)))) < 6 * LARGE


@every_source
@pytest.mark.parametrize("way", SPLIT)
def test_few_large_elements_wait_in_the_parts_of_a_stream(way: str, source: str) -> None:
    """Two for each part that is read, and as many for the parts together, the loop, and the framing."""
    sent = Sent([10] * 2000 + [LARGE] * 40)
    monitored = SPLIT[way](SOURCES[source](sent))

    assert asyncio.run(held_by_a_slow_loop(sent, monitored)) < (2 * PARTS + 6) * LARGE


@every_source
@pytest.mark.parametrize("way", [*OPENED, *SPLIT])
def test_everything_arrives_whatever_its_size(way: str, source: str) -> None:
    chance = random.Random(way + source)
    sizes = [chance.choice([0, 1, 100, 2_000, 50_000, 300_000]) for _ in range(600)]
    stream = {**OPENED, **SPLIT}[way](SOURCES[source](Sent(sizes)))

    async def main() -> list[int]:
        got = []
        async for frame in stream:
            got.append(len(frame))
            if chance.random() < 0.05:
                await asyncio.sleep(0)
        return got

    got = asyncio.run(main())
    if way == "concat_map after a list":
        assert got.pop(0) == 0
    if way in OPENED or way == "one group" or way.endswith("in order"):
        assert got == sizes
    assert sorted(got) == sorted(sizes)


@pytest.mark.parametrize("way", [way for way in (*OPENED, *SPLIT) if way != "short windows in order"])
def test_small_elements_are_still_read_ahead_by_the_full_number(way: str) -> None:
    given: list[bytes] = []

    async def main() -> None:
        frames = framed_on_a_loop(Sent([10] * 3000)).do_on_next(given.append)
        async for frame in {**OPENED, **SPLIT}[way](frames):
            if frame:
                assert await at_rest(lambda: len(given)) >= 255
                break

    asyncio.run(main())


def test_a_number_that_is_given_for_the_parts_means_elements() -> None:
    given: list[bytes] = []

    async def main() -> None:
        frames = framed_on_a_loop(Sent([LARGE] * 40)).do_on_next(given.append)
        async for _ in frames.group_by(len, prefetch=12).flat_map(part, prefetch=4).to_async_iterable(2):
            assert 12 <= await at_rest(lambda: len(given)) <= 12 + 4 + 2
            break

    asyncio.run(main())


FOLLOWED: dict[str, Callable[[Flux[Sent]], Flux[bytes]]] = {
    "concat_map": lambda several: several.concat_map(of_a_pausable_peer),
    "switch_map": lambda several: several.switch_map(of_a_pausable_peer),
}


@pytest.mark.parametrize("way", FOLLOWED)
def test_a_stream_that_follows_one_at_a_pause_is_paused_by_its_first_element(way: str) -> None:
    """It is opened while the stage is paused, and sends this element inside of the stage's resume()."""
    first, second = Sent([LARGE]), Sent([LARGE] * 40)
    elements = iter(FOLLOWED[way](Flux.just(first, second)))

    most = 0
    for count, _ in enumerate(elements, 1):
        most = max(most, first.taken + second.taken - count * LARGE)

    assert count == 41
    assert most <= 4 * LARGE


@pytest.mark.parametrize("way", ["one group", "groups", "rails", "rails with nothing on them"])
def test_an_object_in_a_part_is_as_large_as_what_it_was_made_of(way: str) -> None:
    """So as many wait as make up the bound, also of a source that is not a stage of ours."""
    sent = Sent([2000] * 600)
    elements = iter(SPLIT[way](of_a_pausable_peer(sent, lambda size: [size])))

    next(elements)

    assert sent.taken > 100 * 2000


# ------------------------------------------------------------------------- programs that need what is behind
@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standstill is noticed after a millisecond."""
    monkeypatch.setattr(splitter, "STANDSTILL", 0.001)


class Timer:
    """Calls what is due when the test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], object]] = []

    def submit_after(self, delay: float, task: Callable[[], object]) -> None:
        assert delay in (splitter.STANDSTILL, splitter.UNREAD_AFTER)
        self.due.append(task)

    def ring(self) -> None:
        """Twice: after the first time it is known that nothing has moved."""
        for _ in range(2):
            due, self.due = self.due, []
            for task in due:
                task()


def zipped_groups(frames: Flux[bytes]) -> Flux[Any]:
    """The first group has its elements before the second one has any; ``zip`` needs one of each."""
    groups = frames.group_by(len).take(2).collect_list()
    return groups.flat_map_many(lambda two: Flux.zip(*two))


def windows_first(frames: Flux[bytes]) -> Flux[Any]:
    """Collects the windows, and reads them when there are no more."""
    return frames.window(4).collect_list().flat_map_many(lambda all_of_them: Flux.concat(*all_of_them))


def unread_groups(frames: Flux[bytes]) -> Flux[Any]:
    """Reads one group to its end before the next."""
    return frames.group_by(in_turn(4)).concat_map(lambda group: group.collect_list())


def window_pairs(frames: Flux[bytes]) -> Flux[Any]:
    """Needs the second window before it goes on with the first."""
    return frames.window(5).buffer(2).concat_map(lambda two: Flux.zip(*two))


@every_source
@pytest.mark.parametrize(
    ("program", "sizes", "results"),
    [
        (zipped_groups, [LARGE] * 10 + [LARGE - 1] * 10, 10),
        (windows_first, [LARGE] * 20, 20),
        (unread_groups, [LARGE] * 20, 4),
        (window_pairs, [LARGE] * 20, 10),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_the_bound_in_bytes_gives_way_when_a_reader_needs_what_comes_behind(
    program: Way, sizes: list[int], results: int, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> int:
        return sum([1 async for _ in program(SOURCES[source](Sent(sizes)))])

    with caplog.at_level(logging.WARNING, "penstock.streams"):
        assert asyncio.run(asyncio.wait_for(main(), 60)) == results
    assert "bounded in elements only" in caplog.text


@every_source
@pytest.mark.parametrize("way", [way for way in SPLIT if way != "windows in time"])
def test_the_bound_in_bytes_does_not_give_way_to_a_slow_reader(
    way: str, source: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = Timer()
    monkeypatch.setattr(splitter, "shared_timer", lambda: timer)
    sent = Sent([LARGE] * 40)
    stream = SPLIT[way](SOURCES[source](sent))

    with caplog.at_level(logging.WARNING, "penstock.streams"):
        held = asyncio.run(held_by_a_slow_loop(sent, stream, timer.ring))
    assert held < (2 * PARTS + 6) * LARGE
    assert not caplog.text


@every_source
def test_a_group_that_is_cancelled_frees_its_bytes(source: str) -> None:
    """The source goes on for the others, and for the next group with that key."""
    frames = SOURCES[source](Sent([LARGE, LARGE - 1] * 20))
    read = frames.group_by(len).flat_map(lambda group: group.take(1) if group.key < LARGE else group)

    async def main() -> list[int]:
        return [len(frame) async for frame in read]

    got = asyncio.run(asyncio.wait_for(main(), 60))
    assert sorted(got) == [LARGE - 1] * 20 + [LARGE] * 20


@every_source
def test_a_window_that_is_let_go_of_frees_its_bytes(source: str) -> None:
    """Nobody can read it any more, so it cannot hold the source."""
    windows = SOURCES[source](Sent([LARGE] * 30)).window(3)

    async def main() -> int:
        count = 0
        async for _ in windows.to_async_iterable(prefetch=1):
            count += 1
            gc.collect()
        return count

    assert asyncio.run(asyncio.wait_for(main(), 60)) == 10


@every_source
@pytest.mark.parametrize("way", SPLIT)
def test_a_loop_that_leaves_cancels_the_source_while_it_is_held(way: str, source: str) -> None:
    left: list[bool] = []
    sent = Sent([LARGE] * 40)

    async def main() -> None:
        frames = SOURCES[source](sent).do_on_cancel(lambda: left.append(True))
        async with SPLIT[way](frames).stream() as elements:
            async for _ in elements:
                await at_rest(lambda: sent.taken)
                break

    asyncio.run(asyncio.wait_for(main(), 60))
    assert left == [True]
