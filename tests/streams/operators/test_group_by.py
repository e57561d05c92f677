"""``group_by``: a stream for each key, and a bound for all of them together."""

from __future__ import annotations

import gc
import logging
import sys
import threading
from collections import defaultdict
from itertools import count
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, GroupedFlux, TooManyGroups, schedulers
from penstock.streams.operators import splitter
from tests.streams.operators.rigs import Counting, Oops, oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


def parity(x: int) -> int:
    return x % 2


class Warned(logging.Handler):
    """Waits for the first warning about a stream that the calling test has assembled.

    What earlier tests have left behind may be reported meanwhile.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._test = sys._getframe(1).f_code.co_name
        self.texts: list[str] = []
        self.there = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self._test in text:
            self.texts.append(text)
            self.there.set()

    def __enter__(self) -> Warned:
        logging.getLogger("penstock.streams").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("penstock.streams").removeHandler(self)


def test_each_group_has_the_elements_of_its_key_in_order() -> None:
    pairs = Flux.range(10).group_by(lambda x: x % 3).flat_map(lambda g: g.map(lambda x: (g.key, x)))

    groups: dict[int, list[int]] = defaultdict(list)
    for key, element in pairs:
        groups[key].append(element)

    assert groups == {0: [0, 3, 6, 9], 1: [1, 4, 7], 2: [2, 5, 8]}


def test_a_group_has_its_key_and_what_an_operator_makes_of_it_has_none() -> None:
    group = Flux.just("a").group_by(str.upper).first().block()

    assert isinstance(group, GroupedFlux)
    assert group.key == "A"
    assert type(group.map(str.upper)) is Flux


def test_none_can_be_a_key() -> None:
    assert Flux.just(1).group_by(lambda _: None).map(lambda g: g.key is None).collect_list().block() == [True]


def test_group_by_with_more_groups_than_the_bound_says_so_and_cancels() -> None:
    source = Counting(1000)
    groups = Recorder.of(Flux.from_iterable(source).group_by(lambda x: x, max_groups=3), UNBOUNDED)

    assert isinstance(groups.error, TooManyGroups)
    assert "has 3 groups open and met another key, 4" in str(groups.error)
    assert [group.key for group in groups.items] == [1, 2, 3]
    assert source.closed
    assert source.taken == 4


def test_open_groups_fail_as_well_when_there_are_too_many() -> None:
    source = Driven()
    parts: list[Recorder] = []
    groups = source.flux().group_by(lambda x: x, max_groups=2)
    groups.subscribe(lambda g: parts.append(Recorder.of(g, UNBOUNDED)), on_error=lambda error: None)

    source.emit(1, 2, 3)

    assert [type(part.error) for part in parts] == [TooManyGroups, TooManyGroups]
    assert source.cancelled


def test_too_many_groups_are_found_without_demand_for_them() -> None:
    source = Driven()
    groups = Recorder.of(source.flux().group_by(lambda x: x, max_groups=2))
    source.emit(1, 2, 3)
    assert source.cancelled

    groups.request(5)

    assert [group.key for group in groups.items] == [1, 2]
    assert isinstance(groups.error, TooManyGroups)


def test_a_group_that_nobody_reads_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitter, "UNREAD_AFTER", 0.001)
    with Warned() as warned:
        groups = Recorder.of(Flux.range(1000).group_by(parity, prefetch=8), UNBOUNDED)
        odd = Recorder.of(groups.items[1], UNBOUNDED)
        assert warned.there.wait(20)

    assert "the group 0 of group_by(parity)" in warned.texts[0]
    assert "nobody has subscribed" in warned.texts[0]
    assert not odd.terminated

    even = Recorder.of(groups.items[0], UNBOUNDED).wait()

    assert even.items == list(range(0, 1000, 2))
    assert odd.wait().items == list(range(1, 1000, 2))


def test_a_group_that_the_program_lets_go_of_does_not_stop_the_source() -> None:
    with Warned() as warned:
        keys = Flux.range(10_000).group_by(parity, prefetch=8).map(lambda g: g.key).collect_list().block()

    assert keys == [0, 1]
    assert "so its elements are left out" in warned.texts[0]
    assert len(warned.texts) == 1


def test_a_group_let_go_of_later_sets_the_source_going_again() -> None:
    groups = Recorder.of(Flux.range(1000).group_by(parity, prefetch=8), UNBOUNDED)
    odd = Recorder.of(groups.items[1], UNBOUNDED)
    assert not odd.terminated

    groups.items.clear()
    gc.collect()

    assert odd.wait().items == list(range(1, 1000, 2))


def test_the_source_is_cancelled_when_nobody_can_read_any_more() -> None:
    cancelled = threading.Event()
    source = Flux.never().start_with(1).do_on_cancel(cancelled.set)
    groups = Recorder.of(source.group_by(parity), UNBOUNDED)
    groups.cancel()
    assert not cancelled.is_set()

    groups.items.clear()
    gc.collect()

    assert cancelled.wait(20)


def test_all_groups_together_wait_for_no_more_than_prefetch_elements() -> None:
    source = Driven()
    groups = Recorder.of(source.flux().group_by(parity, prefetch=8), UNBOUNDED)
    assert source.requests == [8]
    source.emit(*range(8))
    assert source.requests == [8]

    even = Recorder.of(groups.items[0], 1)
    assert source.requests == [8, 1]
    even.request(3)

    assert (even.items, sum(source.requests)) == ([0, 2, 4, 6], 12)
    even.check()


def test_a_group_gets_no_more_than_it_asked_for() -> None:
    groups = Recorder.of(Flux.range(100).group_by(parity), UNBOUNDED)
    even, odd = (Recorder.of(group) for group in groups.items)

    even.request(2)
    odd.request(1)

    assert (even.items, odd.items) == ([0, 2], [1])
    even.check()
    odd.check()


def test_no_more_groups_are_sent_than_were_asked_for() -> None:
    source = Driven()
    groups = Recorder.of(source.flux().group_by(lambda x: x), 1)
    source.emit(1, 2, 3)
    assert [group.key for group in groups.items] == [1]

    groups.request(1)

    assert [group.key for group in groups.items] == [1, 2]
    groups.check()


def test_groups_go_on_when_the_stream_of_groups_is_cancelled() -> None:
    first = Flux.range(10).group_by(parity).take(1).flat_map(lambda g: g)

    assert first.collect_list().block() == [0, 2, 4, 6, 8]


def test_the_source_is_cancelled_when_the_last_group_is() -> None:
    source = Driven()
    groups = Recorder.of(source.flux().group_by(parity), UNBOUNDED)
    source.emit(1, 2)
    parts = [Recorder.of(group, UNBOUNDED) for group in groups.items]
    groups.cancel()
    parts[0].cancel()
    assert not source.cancelled

    parts[1].cancel()

    assert source.cancelled


def test_a_cancelled_group_makes_room_and_its_key_opens_a_new_one() -> None:
    firsts = Flux.range(9).group_by(lambda x: x % 3, max_groups=1).flat_map(lambda g: g.take(1))

    assert firsts.collect_list().block() == list(range(9))


def test_an_error_of_the_source_ends_all_groups_after_what_waits() -> None:
    source = Driven()
    groups = Recorder.of(source.flux().group_by(parity), UNBOUNDED)
    source.emit(1, 2, 3)
    odd = Recorder.of(groups.items[0], 1)

    source.fail(Oops("gone"))

    assert isinstance(groups.error, Oops)
    assert (odd.items, odd.error) == ([1], None)
    odd.request(1)
    assert (odd.items, type(odd.error)) == ([1, 3], Oops)
    late = Recorder.of(groups.items[1], UNBOUNDED)
    assert (late.items, type(late.error)) == ([2], Oops)


def test_a_group_can_be_read_after_the_source_has_completed() -> None:
    groups = Flux.range(6).group_by(parity).collect_list().block()

    assert groups is not None
    assert [group.collect_list().block() for group in groups] == [[0, 2, 4], [1, 3, 5]]


def test_a_group_can_be_read_once() -> None:
    group = Flux.just(1).group_by(parity).first().block()
    assert group is not None
    group.block_last()

    with pytest.raises(RuntimeError, match=r"the group 1 of group_by\(parity\) was subscribed to before"):
        group.block_last()


def test_an_error_in_the_key_ends_everything() -> None:
    source = Driven()
    groups = Recorder.of(source.flux().group_by(oops), UNBOUNDED)

    source.emit(1)

    assert isinstance(groups.error, Oops)
    assert "group_by(oops), assembled at" in groups.error.__notes__[0]
    assert source.cancelled


def test_a_key_that_cannot_be_one_is_an_error() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        Flux.just(1).group_by(lambda x: [x]).block_last()


def test_ctrl_c_in_the_key_reaches_the_caller() -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Flux.just(1).group_by(interrupted).block_last()


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_bound_is_positive(wrong: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Flux.just(1).group_by(parity, max_groups=wrong)
    with pytest.raises(ValueError, match="at least 1"):
        Flux.just(1).group_by(parity, prefetch=wrong)


def test_a_reader_that_asks_and_cancels_inside_on_next() -> None:
    def three_then_leave(reader: Recorder, _: Any) -> None:
        if len(reader.items) == 3:
            reader.cancel()
        else:
            reader.request(1)

    source = Counting(1000)
    readers: list[Recorder] = []

    def read(group: GroupedFlux[int, int]) -> None:
        reader = Recorder(1, three_then_leave)
        readers.append(reader)
        group.subscribe(reader)

    Flux.from_iterable(source).group_by(parity).take(2).subscribe(read)

    assert [reader.items for reader in readers] == [[1, 3, 5], [2, 4, 6]]
    assert source.closed
    assert source.taken <= 7


@pytest.mark.parametrize("prefetch", [1, 16, 256])
def test_groups_on_threads_of_their_own_lose_nothing(prefetch: int) -> None:
    count, keys = 3000, 5
    with schedulers.pool(4, "groups") as pool:
        pairs = (
            Flux.range(count)
            .publish_on(pool)
            .group_by(lambda x: x % keys, prefetch=prefetch)
            .flat_map(lambda g: g.publish_on(pool, prefetch=3).map(lambda x: (g.key, x)))
        )
        got = pairs.collect_list().block(30)

    assert got is not None
    assert sorted(x for _, x in got) == list(range(count))
    for key in range(keys):
        assert [x for k, x in got if k == key] == list(range(key, count, keys))


def test_groups_cancelled_on_other_threads_while_elements_come() -> None:
    with schedulers.pool(4, "groups") as pool:
        for _ in range(30):
            stream = (
                Flux.range(500)
                .publish_on(pool)
                .group_by(lambda x: x % 7, prefetch=4)
                .flat_map(lambda g: g.publish_on(pool, prefetch=2).take(3))
            )
            assert len(stream.collect_list().block(30) or ()) >= 21


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_of_a_million_keys_against_max_groups() -> None:
    source = Counting(1_000_000)
    with pytest.raises(TooManyGroups):
        Flux.from_iterable(source).group_by(lambda x: x, max_groups=1000).flat_map(
            lambda g: g, concurrency=1000
        ).block_last()
    assert source.taken <= 1001
    blocks: list[int] = []

    def sample(x: int) -> None:
        if x % 20_000 == 0:
            blocks.append(sys.getallocatedblocks())

    # Each group is left after its first element, so a thousand places are enough for all keys.
    firsts = (
        Flux.range(200_000)
        .group_by(lambda x: x, max_groups=1000)
        .flat_map(lambda g: g.take(1), concurrency=1000)
        .do_on_next(sample)
        .count()
        .block()
    )

    assert firsts == 200_000
    assert max(blocks) - blocks[0] < 200_000  # all of the groups would be many times as much


@pytest.mark.parametrize("concurrency", [1, 4, 16])
@pytest.mark.parametrize("operator", ["flat_map", "flat_map_sequential", "flat_map_delay_error"])
def test_a_cancel_below_the_groups_opens_no_further_group_and_is_not_reported(
    operator: str, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Groups that wait for their turn have no reader, which is no mistake of the program."""
    keys: list[int] = []
    groups = Flux.from_iterable(count()).group_by(lambda x: x % 10).do_on_next(lambda g: keys.append(g.key))
    for _ in range(20):
        keys.clear()
        recorder = Recorder.of(getattr(groups, operator)(lambda group: group, concurrency=concurrency), 3)
        recorder.cancel()
        gc.collect()
        assert len(keys) == len(set(keys)) <= 10

    # What other tests have left behind may be reported meanwhile.
    assert [one.message for one in caplog.records if "test_a_cancel_below" in one.message] == []


def test_a_group_that_is_let_go_of_is_still_reported(caplog: pytest.LogCaptureFixture) -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().group_by(lambda x: x).map(lambda group: group.key), 10)
    source.emit(1, 1)
    gc.collect()
    source.emit(2)

    assert recorder.check().items == [1, 2]
    assert "nobody reads the group 1" in caplog.text
