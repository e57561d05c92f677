"""Readers that share a stream by key, over real sockets: members come, leave, are slow and refuse."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from penstock.aquifer import (
    AquiferPublisher,
    CurveClient,
    CurveServer,
    EpochChanged,
    Evicted,
    Gateway,
    GatewayStatus,
    GatewayUnreachable,
    GroupSubscription,
    Limits,
    MemoryJournal,
    ProtocolViolation,
    Record,
    Redelivery,
    Refused,
    SourceFailed,
    SqliteJournal,
    generate_keys,
    partition_of,
)
from penstock.aquifer.client import group
from penstock.aquifer.client.demand import Turns
from penstock.aquifer.log import Log
from penstock.aquifer.protocol import extended_reader
from penstock.spec import Subscription
from penstock.streams import Flux, on_dropped
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import (
    ANYWHERE,
    UNBOUNDED,
    ByHand,
    eventually,
    free_endpoint,
    our_threads,
    stays,
)

PATIENT = Limits(member_timeout=20.0)
"""Nobody is killed in most of these tests, and a busy machine may keep a thread waiting for seconds."""
KEYS = 40


def record(number: int) -> Record:
    return Record(str(number).encode(), key=b"k%d" % (number % KEYS))


def records(count: int) -> list[Record]:
    return list(map(record, range(count)))


class Member:
    """A Subscriber that keeps what it gets and, unless it is told otherwise, settles it at once."""

    def __init__(self, first: int = UNBOUNDED, judge: Callable[[Record], str | None] | None = None) -> None:
        self.first = first
        self.judge = judge
        self.got: list[int] = []
        self.error: BaseException | None = None
        self.completed = False
        self.over = threading.Event()
        self.subscription: GroupSubscription
        self._busy = threading.Lock()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert isinstance(subscription, GroupSubscription)
        self.subscription = subscription
        if self.first:
            subscription.request(self.first)

    def on_next(self, element: Record, /) -> None:
        assert self._busy.acquire(blocking=False), "one signal at a time (§1.3)"
        assert not self.over.is_set(), "nothing follows the end (§1.7)"
        assert element.offset is not None
        self.got.append(element.offset)
        reason = None if self.judge is None else self.judge(element)
        self._busy.release()
        if reason is None:
            self.subscription.ack(element.offset)
        elif reason:
            self.subscription.nack(element.offset, reason)

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        self.over.set()

    def on_complete(self) -> None:
        self.completed = True
        self.over.set()

    @property
    def partitions(self) -> tuple[int, ...]:
        return self.subscription.partitions

    def leave(self) -> None:
        self.subscription.cancel()
        assert self.subscription.join(60)


def join(endpoint: str, member: Member | None = None, **settings: Any) -> Member:
    member = member or Member()
    settings = {"group": "g", "records": True, "acknowledge": "each", **settings}
    AquiferPublisher(endpoint, **settings).subscribe(member)
    return member


@contextmanager
def members(endpoint: str, count: int, **settings: Any) -> Iterator[list[Member]]:
    joined = [join(endpoint, **settings) for _ in range(count)]
    try:
        yield joined
    finally:
        for member in joined:
            member.leave()


def shared(joined: Iterable[Member], partitions: int = 8) -> Callable[[], bool]:
    """Whether all partitions are read, each by one of these, evenly."""

    def look() -> bool:
        read = [member.partitions for member in joined]
        sizes = sorted(map(len, read))
        return sorted(sum(read, ())) == list(range(partitions)) and sizes[-1] - sizes[0] <= 1

    return look


def is_acknowledged(gateway: Gateway, upto: int) -> Callable[[], bool]:
    """Whether the gateway has heard that everything was settled."""

    def look() -> bool:
        groups = gateway.status().groups or []
        return {one.acknowledged for group in groups for one in group.partitions} == {upto}

    return look


def handled(joined: Iterable[Member]) -> Counter[int]:
    return Counter(offset for member in joined for offset in member.got)


def once(count: int) -> Counter[int]:
    return Counter(range(count))


def assert_in_order(joined: Iterable[Member]) -> None:
    for member in joined:
        for key in range(KEYS):
            offsets = [offset for offset in member.got if offset % KEYS == key]
            assert offsets == sorted(offsets)


def test_members_share_all_records_once_and_by_key() -> None:
    with Gateway(Flux.from_iterable(records(5000)), ANYWHERE, limits=PATIENT) as gateway:
        joined = [join(gateway.endpoint) for _ in range(3)]
        for member in joined:
            assert member.over.wait(60)
            assert member.error is None
            assert member.completed
        assert handled(joined) == once(5000)
        assert_in_order(joined)
        eventually(gateway.drained)
        group = gateway.status().groups
        assert isinstance(group, list)
        assert {one.acknowledged for one in group[0].partitions} == {5000}
    eventually(lambda: our_threads() == [], "a thread is left")


@pytest.mark.parametrize("settings", [{"acknowledge": "auto"}, {"acknowledge": "auto", "batches": True}])
def test_delivered_records_are_acknowledged_without_a_word(settings: dict[str, Any]) -> None:
    with Gateway(Flux.from_iterable(records(3000)), ANYWHERE, limits=PATIENT) as gateway:
        publisher = AquiferPublisher(gateway.endpoint, group="g", **settings)
        got = publisher.flux().collect_list().block(60)
    values = [value for batch in got for value in batch] if "batches" in settings else got
    assert sorted(map(int, values)) == list(range(3000))


def test_records_without_a_key_are_spread_by_their_offsets() -> None:
    with (
        Gateway(Flux.from_iterable([b"x"] * 90), ANYWHERE, limits=PATIENT) as gateway,
        members(gateway.endpoint, 3, partitions=3) as joined,
    ):
        for member in joined:
            assert member.over.wait(60)
    assert handled(joined) == once(90)


def test_a_member_that_comes_gets_its_part_and_one_that_leaves_gives_it_back() -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        first = join(gateway.endpoint)
        source.give(*records(200))
        eventually(lambda: len(first.got) == 200)
        eventually(shared([first]))
        second = join(gateway.endpoint)
        eventually(shared([first, second]))
        source.give(*map(record, range(200, 600)))
        eventually(lambda: handled([first, second]).total() == 600)
        assert second.got, "it has work, too"
        second.leave()
        eventually(shared([first]))
        source.give(*map(record, range(600, 800)))
        eventually(lambda: handled([first, second]).total() == 800)
        assert handled([first, second]) == once(800), "nothing that was acknowledged comes again"
        assert_in_order([first, second])
        first.leave()


def test_more_members_than_partitions_stand_by() -> None:
    source = ByHand()
    with (
        Gateway(source, ANYWHERE, limits=PATIENT) as gateway,
        members(gateway.endpoint, 3, partitions=2) as joined,
    ):
        eventually(shared(joined, 2))
        standby = next(member for member in joined if not member.partitions)
        next(member for member in joined if member.partitions).leave()
        eventually(lambda: len(standby.partitions) == 1)
        source.give(*records(100))
        eventually(lambda: handled(joined) == once(100))


def test_demand_bounds_each_member() -> None:
    with Gateway(Flux.from_iterable(records(2000)), ANYWHERE, limits=PATIENT) as gateway:
        joined = [join(gateway.endpoint, Member(first)) for first in (5, 9)]
        try:
            eventually(lambda: [len(member.got) for member in joined] == [5, 9])
            stays(lambda: [len(member.got) for member in joined] == [5, 9])
            joined[0].subscription.request(300)
            eventually(lambda: len(joined[0].got) == 305)
            stays(lambda: [len(member.got) for member in joined] == [305, 9])
        finally:
            for member in joined:
                member.leave()


def test_a_wrong_request_is_an_error() -> None:
    with Gateway(ByHand(), ANYWHERE, limits=PATIENT) as gateway:
        member = join(gateway.endpoint)
        member.subscription.request(0)
        assert member.over.wait(30)
        assert "3.9" in str(member.error)


def test_what_was_delivered_is_settled_before_a_partition_changes_hands() -> None:
    source = ByHand()
    held = threading.Event()

    def judge(element: Record) -> str | None:
        return None if held.is_set() else ""  # The second is neither yes nor no.

    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        first = join(gateway.endpoint, Member(judge=judge), partitions=2)
        source.give(*records(KEYS))
        eventually(lambda: len(first.got) == KEYS)
        held.set()
        second = join(gateway.endpoint, partitions=2)
        eventually(lambda: first.partitions == (0,), "it gives up the other one")
        stays(lambda: second.partitions == (), "but it is not done with it")
        for offset in range(KEYS):
            first.subscription.ack(offset)
        eventually(shared([first, second], 2))
        source.give(*map(record, range(KEYS, 2 * KEYS)))
        eventually(lambda: handled([first, second]) == once(2 * KEYS))
        first.leave()
        second.leave()


def test_what_is_settled_is_told_at_once_when_somebody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acknowledgement may wait for the next credit, but not when a partition changes hands, or at the end.

    Here it would wait for a third of the lease, which is 200 s.
    """
    monkeypatch.setattr(extended_reader, "_LINGER", 1000.0)
    monkeypatch.setattr(extended_reader, "_REPEAT", 1000.0)
    source = ByHand()
    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        first = join(gateway.endpoint, lease=600.0)
        eventually(shared([first]))
        source.give(*records(KEYS))
        eventually(lambda: len(first.got) == KEYS)
        second = join(gateway.endpoint, lease=600.0)
        eventually(shared([first, second]), "what was handled is not told")
        source.give(*map(record, range(KEYS, 2 * KEYS)))
        eventually(lambda: handled([first, second]) == once(2 * KEYS))
        source.complete()
        for member in (first, second):
            assert member.over.wait(60), "the end is not told"
            assert member.completed


def test_who_has_nothing_left_to_read_does_not_wait_long_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not longer than they take: here it would look at the group again after 100 s."""
    source, at_work, done = ByHand(), threading.Event(), threading.Event()

    def judge(element: Record) -> str | None:
        at_work.set()
        assert done.wait(60)
        return None

    with Gateway(source, ANYWHERE, limits=Limits(member_timeout=400.0)) as gateway:
        quick = join(gateway.endpoint, partitions=2)
        slow = join(gateway.endpoint, Member(judge=judge), partitions=2)
        eventually(shared([quick, slow], 2))
        monkeypatch.setattr(group, "_USUALLY", 1000.0)
        source.give(*records(KEYS))
        source.complete()
        assert at_work.wait(30)
        eventually(lambda: quick.partitions == ())
        assert not quick.over.is_set(), "not all is read"
        done.set()
        for member in (slow, quick):
            assert member.over.wait(60)
            assert member.completed


def test_what_was_not_settled_comes_to_the_next_member() -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        first = join(gateway.endpoint, Member(judge=lambda element: "" if element.offset == 7 else None))
        source.give(*records(40))
        eventually(lambda: len(first.got) == 40)
        seventh = partition_of(b"k7", 0, 8)

        def others_are_acknowledged() -> bool:
            (group,) = gateway.status().groups or []
            return all(one.acknowledged == 40 for one in group.partitions if one.number != seventh)

        eventually(others_are_acknowledged)
        first.leave()
        second = join(gateway.endpoint)
        eventually(lambda: 7 in second.got)
        again = {offset for offset in range(40) if partition_of(record(offset).key, 0, 8) == seventh}
        assert set(second.got) <= {offset for offset in again if offset >= 7}
        second.leave()


def test_a_refused_record_comes_again_to_the_same_member() -> None:
    seen: Counter[int] = Counter()

    def judge(element: Record) -> str | None:
        seen[element.offset or 0] += 1
        return "not yet" if element.offset == 3 and seen[3] < 3 else None

    with Gateway(Flux.from_iterable(records(50)), ANYWHERE, limits=PATIENT) as gateway:
        member = join(gateway.endpoint, Member(judge=judge), redelivery=Redelivery(delay=0.05))
        assert member.over.wait(60)
    assert member.completed
    assert handled([member]) == once(50) + Counter({3: 2})


def test_a_subscriber_that_raises_leaves_and_another_gets_the_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def judge(element: Record) -> str | None:
        if element.offset == 11:
            raise ArithmeticError("no good")
        return None

    source = ByHand()
    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        bad = join(gateway.endpoint, Member(judge=judge))
        eventually(shared([bad]))
        source.give(*records(20))
        assert bad.subscription.join(60)
        good = join(gateway.endpoint)
        eventually(lambda: 11 in good.got)
        eventually(lambda: set(bad.got) | set(good.got) == set(range(20)))
        good.leave()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_a_subscriber_raises_at_the_end_is_reported(kind: type[BaseException]) -> None:
    class Leaving(Member):
        def on_complete(self) -> None:
            super().on_complete()
            raise kind("on purpose")

    dropped: list[BaseException] = []
    with (
        on_dropped(error=lambda error, where: dropped.append(error)),
        Gateway(Flux.from_iterable(records(10)), ANYWHERE, limits=PATIENT) as gateway,
    ):
        member = join(gateway.endpoint, Leaving())
        assert member.subscription.join(60)
    assert [str(error) for error in dropped] == ["on purpose"]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_member_whose_thread_is_asked_to_stop_ends_with_that(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def stop(self: GroupSubscription) -> float:
        raise kind("on purpose")

    monkeypatch.setattr(GroupSubscription, "_take_part", stop)
    with Gateway(Flux.from_iterable(records(10)), ANYWHERE, limits=PATIENT) as gateway:
        member = join(gateway.endpoint)
        assert member.over.wait(60)
        assert isinstance(member.error, kind)
        assert member.subscription.join(60)


@pytest.mark.slow
def test_a_member_that_is_at_work_for_long_keeps_its_partitions() -> None:
    """Longer than the lease and the timeout: the member is there, although its partition says nothing."""
    source, at_work, done = ByHand(), threading.Event(), threading.Event()

    def judge(element: Record) -> str | None:
        if element.offset == 0:
            at_work.set()
            assert done.wait(60)
        return None

    limits = Limits(member_timeout=6.0)
    with Gateway(source, ANYWHERE, limits=limits) as gateway:
        slow = join(gateway.endpoint, Member(judge=judge), partitions=1, lease=1.0)
        source.give(record(0))
        assert at_work.wait(30)
        standby = join(gateway.endpoint, partitions=1)
        stays(lambda: not standby.got, seconds=8.0)
        done.set()
        source.give(record(1))
        eventually(lambda: slow.got == [0, 1])
        assert not standby.got
        slow.leave()
        standby.leave()


def test_a_new_group_begins_where_it_is_told() -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        source.give(*records(100))
        eventually(lambda: gateway.status().head == 100)
        with members(gateway.endpoint, 1, start="latest") as (member,):
            eventually(shared([member]))
            source.give(*map(record, range(100, 150)))
            eventually(lambda: sorted(member.got) == list(range(100, 150)))
            eventually(is_acknowledged(gateway, 150))
        with members(gateway.endpoint, 1, start=20) as (again,):
            source.give(record(150))
            eventually(lambda: again.got == [150], "the group is there: it does not begin again")
        with members(gateway.endpoint, 1, group="other", start=20) as (other,):
            eventually(lambda: sorted(other.got) == list(range(20, 151)))


def test_records_wait_for_partitions_that_nobody_reads_yet() -> None:
    """The log has space for 50 records; the group keeps what its members have not requested."""
    source = ByHand()
    with Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=50), limits=PATIENT) as gateway:
        member = join(gateway.endpoint, Member(0))
        source.give(*records(50))
        eventually(shared([member]))
        stays(lambda: source.asked == 0)
        member.subscription.request(UNBOUNDED)
        source.give(*map(record, range(50, 200)))
        eventually(lambda: handled([member]) == once(200))
        member.leave()


def test_a_failed_source_fails_all_members_after_the_last_record() -> None:
    broken = Flux.concat(Flux.from_iterable(records(500)), Flux.error(OSError("unplugged")))
    with Gateway(broken, ANYWHERE, limits=PATIENT) as gateway:
        joined = [join(gateway.endpoint) for _ in range(2)]
        for member in joined:
            assert member.over.wait(60)
            assert isinstance(member.error, SourceFailed)
    assert handled(joined) == once(500)


def test_two_restarts_of_the_gateway_lose_nothing_and_bring_nothing_twice(tmp_path: Path) -> None:
    endpoint, path = free_endpoint(), tmp_path / "log.db"
    arguments = (
        f"lambda done: Flux.from_iterable([Record(str(n).encode(), key=b'k%d' % (n % {KEYS})) "
        f"for n in range(done, 6000)]), {endpoint!r}, journal=SqliteJournal({str(path)!r}), "
        "limits=Limits(member_timeout=10.0)"  # The partitions that nobody read wait for as long at the end.
    )
    joined = [join(endpoint, Member(500), patience=60) for _ in range(2)]
    for _ in range(2):
        with GatewayProcess(arguments) as gateway:
            eventually(lambda: {len(member.got) for member in joined} == {joined[0].first})
            gateway.kill()
        for member in joined:
            member.first += 1000
            member.subscription.request(1000)
    with GatewayProcess(arguments):
        for member in joined:
            member.subscription.request(UNBOUNDED)
        for member in joined:
            assert member.over.wait(60)
    assert [member.error for member in joined] == [None, None]
    assert handled(joined) == once(6000)
    assert_in_order(joined)


def test_a_partition_that_a_member_is_done_with_is_not_read_again_after_a_kill_of_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first gateway stores no cursor, as if it was killed before the next transaction of its journal."""
    endpoint, path = free_endpoint(), tmp_path / "log.db"
    last = max(offset for offset in range(KEYS) if partition_of(record(offset).key, 0, 2) == 1)

    def gateway() -> Gateway:
        journal = SqliteJournal(path)
        return Gateway(
            lambda done: Flux.from_iterable(records(KEYS)[done:]), endpoint, journal=journal, limits=PATIENT
        )

    def judge(element: Record) -> str | None:
        return "" if element.offset == last else None

    with monkeypatch.context() as patch, gateway():
        patch.setattr(Log, "_hand_over_cursors", lambda log: 0)
        member = join(endpoint, Member(judge=judge), partitions=2, patience=60)
        eventually(lambda: len(member.got) == KEYS)
        eventually(lambda: member.partitions == (1,), "it is done with the other one")
    with gateway():
        member.subscription.ack(last)
        assert member.over.wait(60)
    assert member.error is None
    assert handled([member]) == once(KEYS)


def test_a_group_that_began_with_the_newest_record_skips_nothing_after_a_kill_of_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first gateway is killed before it has stored the group, and more comes before its members do."""
    endpoint, path = free_endpoint(), tmp_path / "log.db"

    def gateway(source: Flux[Record], at: str = endpoint) -> Gateway:
        return Gateway(source, at, journal=SqliteJournal(path), limits=PATIENT)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "_hand_over_cursors", lambda log: 0)
        with gateway(Flux.from_iterable(records(10)).concat_with(Flux.never())) as first:
            eventually(lambda: first.status().head == 10)
            member = join(endpoint, partitions=2, start="latest", patience=60)
            eventually(shared([member], 2))
    with gateway(Flux.from_iterable(map(record, range(10, 20))), ANYWHERE) as unseen:
        assert unseen.join(60)
    with gateway(Flux.empty()):
        assert member.over.wait(60)
    assert member.error is None
    assert sorted(member.got) == list(range(10, 20))


def test_what_a_member_has_settled_before_it_left_survives_a_kill_of_the_gateway(tmp_path: Path) -> None:
    endpoint, path = free_endpoint(), tmp_path / "log.db"
    arguments = (
        f"lambda done: Flux.from_iterable([Record(b'', key=b'k%d' % (n % {KEYS})) for n in range(done, 300)])"
        f".concat_with(Flux.never()), {endpoint!r}, journal=SqliteJournal({str(path)!r}), "
        "limits=Limits(member_timeout=2.0)"  # The next member waits for so long after each restart.
    )
    for number in range(1, 4):
        with GatewayProcess(arguments) as gateway:
            member = join(endpoint, Member(100), partitions=1, patience=60)
            eventually(has_handled(member, 100))
            member.leave()
            gateway.kill()
        assert sorted(member.got) == list(range(number * 100 - 100, number * 100))


def has_handled(member: Member, count: int) -> Callable[[], bool]:
    return lambda: len(member.got) == count


def test_members_of_a_log_that_is_gone_are_told() -> None:
    endpoint = free_endpoint()
    with Gateway(ByHand(), endpoint, limits=PATIENT) as gateway:
        joined = [join(endpoint, partitions=1) for _ in range(2)]
        eventually(shared(joined, 1))
        assert gateway.status().groups
    with Gateway(ByHand(), endpoint, limits=PATIENT):
        for member in joined:
            assert member.over.wait(60)
            assert isinstance(member.error, EpochChanged)


def test_nobody_answers() -> None:
    member = join(free_endpoint(), patience=0.5)
    assert member.over.wait(60)
    assert isinstance(member.error, GatewayUnreachable)


def test_members_share_a_key() -> None:
    server, alice, bob = (generate_keys() for _ in range(3))
    as_alice, as_bob = (CurveClient(keys, server.public) for keys in (alice, bob))
    curve = CurveServer(server, {alice.public: "read", bob.public: "read, write"})
    source = ByHand()
    with (
        Gateway(source, None, curve=curve, curve_control=ANYWHERE, limits=PATIENT) as gateway,
        members(gateway.endpoint, 2, curve=as_alice) as joined,
    ):
        eventually(shared(joined))
        stranger = join(gateway.endpoint, curve=as_bob)
        assert stranger.over.wait(60)
        assert isinstance(stranger.error, Refused)
        assert "'g' belongs to another key" in str(stranger.error)
        source.give(*records(50))
        eventually(lambda: handled(joined) == once(50))


def test_another_number_of_partitions_is_refused() -> None:
    with Gateway(ByHand(), ANYWHERE, limits=PATIENT) as gateway, members(gateway.endpoint, 1, partitions=4):
        eventually(lambda: gateway.status().groups)
        other = join(gateway.endpoint, partitions=5)
        assert other.over.wait(60)
        assert "has 4 partitions, and 5 were asked for" in str(other.error)
        with members(gateway.endpoint, 1) as (third,):
            eventually(lambda: len(third.partitions) == 2)


def test_who_reads_what_is_shown_and_can_be_ended() -> None:
    with Gateway(ByHand(), ANYWHERE, limits=PATIENT) as gateway, members(gateway.endpoint, 2) as joined:
        eventually(shared(joined))
        listed = {one.id: one.member for one in gateway.ids().ids}
        for member in joined:
            for number in member.partitions:
                assert listed[f"g/{number}-of-8"] == member.subscription.member
        gateway.evict(f"g/{joined[0].partitions[0]}-of-8")
        assert joined[0].over.wait(60)
        assert isinstance(joined[0].error, Evicted)
        eventually(shared([joined[1]]))


def test_an_eviction_is_told_although_the_member_asks_for_its_group_before_it_hears_of_it() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(record: Record) -> str | None:
        begun.set()
        assert go_on.wait(60)
        return None

    source = ByHand()
    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        member = join(gateway.endpoint, Member(judge=wait), partitions=1)
        eventually(lambda: member.partitions == (0,))
        source.give(record(0))
        assert begun.wait(60)  # The thread that would hear of the eviction is at work.
        gateway.evict("g/0-of-1")
        member.subscription.wake()
        eventually(lambda: [one for group in gateway.status().groups for one in group.members] == [])
        go_on.set()
        assert member.over.wait(60)
        assert isinstance(member.error, Evicted)


class EarlierGateway(threading.Thread):
    """Answers a question about a group as a gateway does that knows nothing of groups: with its status."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.endpoint = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.start()

    def run(self) -> None:
        *envelope, _ = self.socket.recv_multipart()
        x = {"v": 1, "epoch": "e", "first": 0, "head": 0, "status": GatewayStatus().to_dict()}
        answer = {"jsonClass": "OnSubscribe", "size": 2**63 - 1, "port": 0, "x": x}
        self.socket.send_multipart([*envelope, json.dumps(answer).encode()])

    def close(self) -> None:
        self.join(10)
        self.context.destroy(linger=0)


def test_an_earlier_gateway_knows_no_groups() -> None:
    earlier = EarlierGateway()
    member = join(earlier.endpoint, patience=60.0)
    assert member.over.wait(60)
    assert isinstance(member.error, ProtocolViolation)
    assert "knows nothing of reader groups" in str(member.error)
    earlier.close()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"group": ""}, "a name that is not empty"),
        ({"group": None, "partitions": 4}, "needs group="),
        ({"partitions": 0}, "partitions=0"),
        ({"id": "me"}, "group=… and id=… do not go together"),
        ({"keys": ["k"]}, "group=… and keys=… do not go together"),
        ({"stop": 7}, "group=… and stop=… do not go together"),
        ({"keep": False, "acknowledge": "auto"}, "keep=False"),
        ({"acknowledge": "manual"}, "acknowledge='each'"),
        ({"dialect": "plain"}, "the plain dialect has no groups"),
    ],
)
def test_options_that_make_no_sense_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AquiferPublisher(
            "tcp://127.0.0.1:1", **{"group": "g", "records": True, "acknowledge": "each", **settings}
        )


def test_an_offset_that_is_none_is_refused() -> None:
    with Gateway(ByHand(), ANYWHERE, limits=PATIENT) as gateway, members(gateway.endpoint, 1) as (member,):
        with pytest.raises(ValueError, match=r"give record\.offset"):
            member.subscription.ack("7")  # type: ignore[arg-type]
        member.subscription.ack(10**6)  # Nobody knows of it any more: as if it was settled.


# ---------------------------------------------------------------- whose turn it is
class Signaller:
    """A thread that signals a number of times, when it is its turn."""

    def __init__(self, turns: Turns, log: list[int], number: int, times: int) -> None:
        self.may_go_on = threading.Event()
        self.turns, self.log, self.number, self.times = turns, log, number, times
        self.thread = threading.Thread(target=self.run, daemon=True)

    def wake(self) -> None:
        self.may_go_on.set()

    def run(self) -> None:
        for _ in range(self.times):
            while not self.turns.take(self):
                assert self.may_go_on.wait(30)
                self.may_go_on.clear()
            self.log.append(self.number)
            self.log.append(self.number)
            self.turns.give_back(self)


def test_one_signals_at_a_time_and_everybody_has_a_turn() -> None:
    turns, log = Turns(), list[int]()
    threads = [Signaller(turns, log, number, 300) for number in range(4)]
    for one in threads:
        one.thread.start()
    for one in threads:
        one.thread.join(60)
    assert Counter(log) == dict.fromkeys(range(4), 600)
    assert all(log[at] == log[at + 1] for at in range(0, len(log), 2)), "nobody comes in between"


def test_turns_are_taken_in_order_and_can_be_given_up() -> None:
    turns, log = Turns(), list[int]()
    one, two, three = (Signaller(turns, log, number, 0) for number in range(3))
    assert turns.take(one)
    assert not turns.take(two)
    assert not turns.take(three)
    assert not turns.take(two), "to ask twice changes nothing"
    turns.give_back(two)
    turns.give_back(one)
    assert three.may_go_on.is_set()
    assert not two.may_go_on.is_set()
    assert turns.take(three)
    turns.give_back(three)
    assert turns.take(two)
