"""The gateway as its users know it: sources in, the same sequence out to everybody, and memory in bounds."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer import (
    AquiferPublisher,
    Gateway,
    Limits,
    MemoryJournal,
    Overtaken,
    Record,
    SourceFailed,
    SqliteJournal,
)
from penstock.spec import Publisher, Subscriber, Subscription
from penstock.streams import Flux, schedulers
from tests.aquifer.faults.rigs import (
    ANYWHERE,
    UNBOUNDED,
    ByHand,
    Numbers,
    Peer,
    counted,
    eventually,
    file_descriptors,
    free_endpoint,
    has,
    our_threads,
    read,
    reading,
    session_of,
    stays,
)
from tests.streams.recording import Recorder


# ---------------------------------------------------------------- with and async with
def test_a_gateway_serves_what_its_source_gives() -> None:
    with Gateway(Flux.just(b"one", b"two"), ANYWHERE) as gateway:
        assert list(AquiferPublisher(gateway.endpoint).flux()) == [b"one", b"two"]


def test_a_source_that_blocks_and_is_read_ahead_does_not_hold_up_the_start_on_a_thread_of_its_own() -> None:
    there = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b"one"
        assert there.wait(60)
        yield b"two"

    thread = schedulers.single()
    source = Flux.from_iterable(lines()).subscribe_on(thread).buffer_timeout(10, 0.01, thread)
    with Gateway(source, ANYWHERE, batched=True) as gateway:
        there.set()  # Only now: the gateway serves before its source has said all.
        assert list(AquiferPublisher(gateway.endpoint).flux()) == [b"one", b"two"]
    thread.close()


def test_a_gateway_in_an_event_loop_serves_a_source_of_that_loop() -> None:
    async def count() -> AsyncIterator[int]:
        for number in range(1000):
            if number % 100 == 0:
                await asyncio.sleep(0)
            yield number

    async def serve() -> list[int]:
        async with Gateway(Flux.from_async_iterable(count), ANYWHERE, codec="msgpack") as gateway:
            await asyncio.wait_for(gateway.wait_until_ended(), 60)
            return [number async for number in AquiferPublisher(gateway.endpoint, codec="msgpack").flux()]

    assert asyncio.run(serve()) == list(range(1000))
    eventually(lambda: our_threads() == [], "a thread is left")


def test_an_event_loop_is_not_held_up_while_a_gateway_closes() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    async def serve() -> None:
        ticking = asyncio.create_task(tick())
        gate = threading.Event()
        source = Blocking(gate)
        gateway = Gateway(source, ANYWHERE).start()
        eventually(lambda: source.is_asked)
        before = ticks
        await gateway.aclose()
        # It waits a moment for its source. A loop that was held up would not have ticked once.
        assert ticks - before >= 3
        assert source.is_asked, "it does not wait until the source comes back"
        gate.set()
        ticking.cancel()

    asyncio.run(serve())


def test_join_says_when_the_whole_source_is_in_the_log() -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE) as gateway:
        source.give(b"one")
        assert not gateway.join(0.05)
        source.complete()
        assert gateway.join(60)
        assert (gateway.status()["head"], gateway.status()["end"]) == (1, 1)


def test_drained_says_when_everybody_has_everything() -> None:
    with Gateway(Numbers(1000), ANYWHERE) as gateway:
        assert gateway.join(60)
        assert not gateway.drained()
        with reading(gateway.endpoint, 10, id="slow") as slow:
            eventually(has(slow, 10))
            assert not gateway.drained()
            slow.request(UNBOUNDED).wait()
        eventually(gateway.drained)


def test_a_source_can_be_made_when_it_is_known_where_the_log_ends(tmp_path: Path) -> None:
    asked: list[int] = []

    def lines_from(head: int) -> Flux[bytes]:
        asked.append(head)
        return Flux.just(*[b"%d" % number for number in range(head, head + 3)])

    for _ in range(3):
        with Gateway(lines_from, ANYWHERE, journal=SqliteJournal(tmp_path / "log.db")) as gateway:
            assert gateway.join(60)

    assert asked == [0, 3, 6]


# ---------------------------------------------------------------- the same for everybody (rule 1.12)
def test_subscribers_at_different_rates_get_the_same_sequence() -> None:
    source = Numbers(30_000)
    with Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=5000), prefetch=512) as gateway:
        portions = (UNBOUNDED, 7000, 100, 999, UNBOUNDED)
        recorders = [Recorder(on_element=_asking_again(portion)) for portion in portions]
        for number, recorder in enumerate(recorders):
            dialect = "plain" if number == 4 else "extended"
            AquiferPublisher(gateway.endpoint, dialect=dialect, window=2000 // (number + 1)).subscribe(
                recorder
            )
        # The log is shorter than the stream: whoever comes after others have read does not get all of it.
        eventually(lambda: len(gateway.status()["subscribers"]) == len(recorders))
        for recorder, portion in zip(recorders, portions, strict=True):
            recorder.request(portion)
        for recorder in recorders:
            assert recorder.wait(60).items == source.values()
    assert source.asked <= 30_000 + 5000


def _asking_again(portion: int) -> Any:
    def on_element(recorder: Recorder, _: Any) -> None:
        if portion < UNBOUNDED and len(recorder.items) % portion == 0:
            recorder.request(portion)

    return on_element


def test_who_comes_later_gets_the_oldest_that_is_still_there() -> None:
    source = Numbers(10_000)
    with Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=1000), prefetch=100) as gateway:
        assert read(gateway.endpoint).wait().items == source.values()

        late = read(gateway.endpoint, records=True).wait()

        first = gateway.status()["first"]
        assert 9000 <= first < 10_000
        assert [record.value for record in late.items] == source.values(first)
        assert [record.offset for record in late.items] == list(range(first, 10_000))


def test_whoever_comes_while_the_log_moves_on_gets_all_from_where_it_was_promised() -> None:
    source = Numbers()
    with (
        Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=500), prefetch=50) as gateway,
        reading(gateway.endpoint, id="steady") as steady,
    ):
        eventually(has(steady, 2000))
        for _ in range(40):
            with reading(gateway.endpoint, 500, records=True, patience=60) as newcomer:
                eventually(lambda it=newcomer: len(it.items) >= 100 or it.terminated)
                assert newcomer.error is None
                offsets = [record.offset for record in newcomer.items]
                assert all(after == before + 1 for before, after in pairwise(offsets))


# ---------------------------------------------------------------- the source is held back
def test_the_source_waits_for_a_kept_subscriber_that_is_a_full_journal_behind() -> None:
    source = Numbers()
    with (
        Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=1000), prefetch=100) as gateway,
        reading(gateway.endpoint, 10, window=50) as reader,
    ):
        eventually(has(reader, 10))
        eventually(lambda: gateway.status()["records"] >= 900)
        stays(lambda: source.asked <= len(reader.items) + 1000)
        waiting_at = source.asked

        reader.request(2000)

        eventually(has(reader, 2010))
        eventually(lambda: source.asked >= waiting_at + 1500)
        stays(lambda: source.asked <= len(reader.items) + 1000, seconds=0.2)
        assert reader.items == source.values(0, 2010)


def test_the_source_waits_when_the_bytes_of_the_journal_are_used_up() -> None:
    source = Numbers(width=1000)
    journal = MemoryJournal(max_bytes=200_000)
    with (
        Gateway(source, ANYWHERE, journal=journal, prefetch=50) as gateway,
        reading(gateway.endpoint, 10, window=10) as reader,
    ):
        eventually(has(reader, 10))
        eventually(lambda: gateway.status()["bytes"] >= 140_000)
        stays(lambda: gateway.status()["bytes"] <= 200_000 and source.given <= 10 + 200 + 50)
        before = source.given

        reader.request(1000)

        eventually(has(reader, 1010))
        eventually(lambda: source.given >= before + 900)
        stays(lambda: gateway.status()["bytes"] <= 200_000, seconds=0.1)
        assert reader.items == source.values(0, 1010)


def test_with_nobody_there_the_gateway_fills_its_journal_and_waits() -> None:
    source = Numbers()
    with Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=1000), prefetch=100) as gateway:
        eventually(lambda: gateway.status()["records"] == 1000)
        stays(lambda: source.asked == 1000)
        with reading(gateway.endpoint, 3000) as reader:
            eventually(has(reader, 3000))
            assert reader.items == source.values(0, 3000)


def test_an_element_larger_than_the_journal_still_passes() -> None:
    elements = [b"a" * 50_000, b"b" * 5, b"c" * 50_000, b"d" * 50_000]
    with Gateway(Flux.just(*elements), ANYWHERE, journal=MemoryJournal(max_bytes=1000)) as gateway:
        assert read(gateway.endpoint).wait().items == elements


def test_a_source_that_blocks_while_it_is_asked_does_not_hold_back_what_it_gave_before() -> None:
    gate: queue.Queue[bytes | None] = queue.Queue()
    with Gateway(FromQueue(gate), ANYWHERE) as gateway, reading(gateway.endpoint) as reader:
        for count in range(1, 6):
            gate.put(b"%d" % count)
            eventually(has(reader, count))
        gate.put(None)
        reader.wait()


def test_a_source_that_blocks_while_it_is_asked_does_not_hold_up_the_end() -> None:
    gate = threading.Event()
    source = Blocking(gate)
    gateway = Gateway(source, ANYWHERE).start()
    eventually(lambda: source.is_asked)
    gateway.close()
    assert source.is_asked, "it does not wait until the source comes back"
    gate.set()
    eventually(lambda: our_threads() == [])


class FromQueue(Publisher[bytes]):
    """Waits inside ``request`` for somebody to put something into a queue; None is the end."""

    def __init__(self, elements: queue.Queue[bytes | None]) -> None:
        self._elements = elements

    def subscribe(self, subscriber: Subscriber[bytes], /) -> None:
        elements = self._elements

        class FromQueueSubscription(Subscription):
            def request(self, n: int, /) -> None:
                for _ in range(n):
                    element = elements.get(timeout=60)
                    if element is None:
                        subscriber.on_complete()
                        break
                    subscriber.on_next(element)

            def cancel(self) -> None:
                elements.put(None)

        subscriber.on_subscribe(FromQueueSubscription())


class Blocking(Publisher[bytes]):
    """Does not come back from ``request`` until a gate opens."""

    def __init__(self, gate: threading.Event) -> None:
        self._gate = gate
        self.is_asked = False
        """Whether somebody waits in ``request``."""

    def subscribe(self, subscriber: Subscriber[bytes], /) -> None:
        source, gate = self, self._gate

        class BlockingSubscription(Subscription):
            def request(self, n: int, /) -> None:
                source.is_asked = True
                gate.wait(60)
                source.is_asked = False

            def cancel(self) -> None:
                pass

        subscriber.on_subscribe(BlockingSubscription())


# ---------------------------------------------------------------- best effort, leases
def test_a_best_effort_subscriber_that_is_overtaken_learns_where_the_log_begins() -> None:
    source = ByHand()
    with (
        Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=500), prefetch=50) as gateway,
        reading(gateway.endpoint, 10, window=10, keep=False) as slow,
    ):
        eventually(lambda: gateway.status()["subscribers"])
        source.give(*Numbers().values(0, 3000))
        eventually(lambda: gateway.status()["head"] == 3000)

        slow.request(1000)

        slow.wait()
        assert isinstance(slow.error, Overtaken)
        assert slow.error.first == gateway.status()["first"]
        assert slow.items == Numbers().values(0, len(slow.items))


def test_a_best_effort_subscriber_may_rather_be_told_of_the_gap_and_go_on() -> None:
    gaps: list[tuple[int, int]] = []
    source = ByHand()
    with (
        Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=500), prefetch=50) as gateway,
        reading(
            gateway.endpoint,
            10,
            window=10,
            keep=False,
            records=True,
            on_gap=lambda missing, available: gaps.append((missing, available)),
        ) as slow,
    ):
        eventually(lambda: gateway.status()["subscribers"])
        source.give(*Numbers().values(0, 3000))
        source.complete()
        assert gateway.join(60)
        first = gateway.status()["first"]
        assert first > 2000

        slow.request(UNBOUNDED)

        slow.wait()
        offsets = [record.offset for record in slow.items]
        jumps = [(before + 1, after) for before, after in pairwise([-1, *offsets]) if after != before + 1]
        assert gaps == jumps
        assert offsets[-1] == 2999
        assert offsets.count(first) == 1


def test_the_source_goes_on_when_the_lease_of_one_who_fell_silent_ends() -> None:
    source = Numbers()
    journal = MemoryJournal(max_records=1000)
    with (
        Gateway(source, ANYWHERE, journal=journal, prefetch=100) as gateway,
        Peer(gateway.endpoint) as dead,
        reading(gateway.endpoint) as alive,
    ):
        dead.subscribe(lease=600)
        dead.join()
        # Five times what the log may hold for it.
        eventually(has(alive, len(alive.items) + 5000))
        assert counted(gateway, "leases ended") == 1
        assert [session["dialect"] for session in gateway.status()["subscribers"]] == ["extended"]


@pytest.mark.slow
def test_somebody_who_only_asks_is_kept_for_as_long_as_he_does() -> None:
    source = Numbers()
    with (
        Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=100), prefetch=10) as gateway,
        Peer(gateway.endpoint) as peer,
    ):
        # Long enough for a thread that a busy machine does not run, and shorter than all of it.
        peer.subscribe(lease=3000)
        peer.join()
        for _ in range(8):
            stays(lambda: source.asked <= 100, seconds=0.5)
            peer.grant(limit=10, ack=0)
        assert session_of(gateway)["acknowledged"] == 0


# ---------------------------------------------------------------- coming back
def test_a_durable_subscriber_goes_on_where_it_left() -> None:
    source = Numbers(1000)
    with Gateway(source, ANYWHERE) as gateway:
        seen: list[bytes] = []
        while len(seen) < 1000:
            with reading(gateway.endpoint, 130, id="ledger") as reader:
                eventually(lambda it=reader: len(it.items) == 130 or it.terminated)
            seen += reader.items
            eventually(lambda: gateway.status()["subscribers"] == [])

        assert seen == source.values()


def heard(gateway: Gateway) -> int:
    """How far the gateway knows its only subscriber to be."""
    (subscriber,) = gateway.status()["subscribers"]
    return int(subscriber["acknowledged"])


def test_a_durable_subscriber_goes_on_where_it_left_after_the_gateway_was_restarted(tmp_path: Path) -> None:
    seen: list[bytes] = []
    for round_ in range(3):
        journal = SqliteJournal(tmp_path / "log.db")
        with Gateway(lambda head: Numbers(1000 - head), ANYWHERE, journal=journal) as gateway:
            assert gateway.join(60)
            with reading(gateway.endpoint, 300, id="ledger") as reader:
                eventually(has(reader, 300))
                eventually(lambda it=gateway, n=round_: heard(it) == 300 * (n + 1))
                if not round_:  # Whether it said goodbye or was still there when the gateway closed.
                    gateway.close()
            seen += reader.items
            if round_:
                eventually(lambda it=gateway: it.status()["subscribers"] == [])

    assert seen == Numbers().values(0, 900)


def test_subscribers_come_back_when_a_new_gateway_starts_on_the_same_port_and_journal(
    tmp_path: Path,
) -> None:
    source = Numbers(40_000)
    control, data = free_endpoint(), free_endpoint()

    def serve() -> Gateway:
        rest = lambda head: Flux.from_iterable(source.values(head))  # noqa: E731
        return Gateway(
            rest, control, data=data, journal=SqliteJournal(tmp_path / "log.db"), prefetch=1000
        ).start()

    gateway = serve()
    publisher = AquiferPublisher(control, window=500, max_window=500, patience=60)
    steady, durable = Recorder(2000, _asking_again(2000)), Recorder(500, _asking_again(500))
    publisher.subscribe(steady)
    AquiferPublisher(control, window=500, max_window=500, patience=60, id="ledger").subscribe(durable)
    for reached in (2_000, 8_000, 15_000):
        eventually(lambda it=reached: min(len(steady.items), len(durable.items)) > it)
        gateway.close()
        gateway = serve()
    assert steady.wait(60).items == source.values()
    assert durable.wait(60).items == source.values()
    gateway.close()


# ---------------------------------------------------------------- sources that fail
def test_what_came_before_a_failure_of_the_source_is_delivered_first() -> None:
    with Gateway(Numbers(5000, error=OSError("unplugged")), ANYWHERE) as gateway:
        for dialect in ("extended", "plain"):
            reader = read(gateway.endpoint, dialect=dialect).wait()
            assert reader.items == Numbers().values(0, 5000)
            assert "OSError: unplugged" in str(reader.error)
            if dialect == "extended":
                assert isinstance(reader.error, SourceFailed)
        assert gateway.failure == "OSError: unplugged"


def test_a_failure_with_a_text_that_is_no_unicode_reaches_the_subscriber_all_the_same() -> None:
    with Gateway(Numbers(1, error=FileNotFoundError("/caf\udce9")), ANYWHERE) as gateway:
        reader = read(gateway.endpoint).wait()
        assert isinstance(reader.error, SourceFailed)
        assert "/caf\\udce9" in str(reader.error)


def test_an_element_that_cannot_become_a_record_ends_the_stream_after_those_before_it() -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE) as gateway:
        source.give(b"good", b"also good", "a string", b"too late")
        reader = read(gateway.endpoint).wait()
        assert reader.items == [b"good", b"also good"]
        assert isinstance(reader.error, SourceFailed)
        assert "codec='text'" in str(reader.error)
        assert source.cancelled.wait(60)


def test_a_key_that_is_no_bytes_is_refused_with_a_word_about_it() -> None:
    with Gateway(Flux.just(Record(b"x", key="seven")), ANYWHERE) as gateway:  # type: ignore[arg-type]
        reader = read(gateway.endpoint).wait()
        assert "the key of a record is bytes, not str" in str(reader.error)


def test_a_source_that_raises_from_request_has_failed() -> None:
    class Raising(Publisher[bytes]):
        def subscribe(self, subscriber: Subscriber[bytes], /) -> None:
            class RaisingSubscription(Subscription):
                def request(self, n: int, /) -> None:
                    raise LookupError("no such table")

                def cancel(self) -> None:
                    pass

            subscriber.on_subscribe(RaisingSubscription())

    with Gateway(Raising(), ANYWHERE) as gateway:
        assert "no such table" in str(read(gateway.endpoint).wait().error)


# ---------------------------------------------------------------- what is there to know
def test_status_tells_of_the_log_the_source_and_the_subscribers() -> None:
    with Gateway(Numbers(1000), ANYWHERE) as gateway, reading(gateway.endpoint, 100, id="me") as reader:
        assert gateway.join(60)
        eventually(has(reader, 100))
        eventually(lambda: session_of(gateway)["acknowledged"] == 100)
        status = gateway.status()
        assert {name: status[name] for name in ("first", "head", "end", "failure", "floor")} == {
            "first": 0,
            "head": 1000,
            "end": 1000,
            "failure": None,
            "floor": 100,
        }
        assert status["source"]["received"] == 1000
        assert (session_of(gateway)["id"], session_of(gateway)["dialect"]) == ("me", "extended")


def test_a_peer_may_ask_for_the_status_without_a_subscription() -> None:
    with Gateway(Numbers(10), ANYWHERE) as gateway, Peer(gateway.endpoint) as peer:
        assert gateway.join(60)
        answer = peer.subscribe(probe=True)
        assert answer["x"]["status"]["head"] == 10
        assert gateway.status()["subscribers"] == []


# ---------------------------------------------------------------- the end, and what is left
def test_close_may_be_called_again_and_before_start(tmp_path: Path) -> None:
    gateway = Gateway(Numbers(10), ANYWHERE).start()
    gateway.close()
    gateway.close()
    with pytest.raises(RuntimeError, match="make a new one"):
        gateway.start()

    never = Gateway(Numbers(10), ANYWHERE, journal=SqliteJournal(tmp_path / "log.db"))
    never.close()
    with pytest.raises(RuntimeError, match="make a new one"):
        never.start()
    SqliteJournal(tmp_path / "log.db").close()


def test_a_gateway_cannot_be_started_twice() -> None:
    with (
        Gateway(Numbers(10), ANYWHERE) as gateway,
        pytest.raises(RuntimeError, match="started"),
    ):
        gateway.start()


def test_a_gateway_leaves_no_threads_and_no_files_open(tmp_path: Path) -> None:
    counts = []
    for round_ in range(4):
        journal = SqliteJournal(tmp_path / "log.db") if round_ % 2 else None
        with Gateway(Numbers(), ANYWHERE, journal=journal, codec="bytes") as gateway:
            readers = [read(gateway.endpoint, dialect=dialect) for dialect in ("extended", "plain")]
            for reader in readers:
                eventually(has(reader, 100))
            if round_ < 2:
                for reader in readers:
                    reader.cancel()
        for reader in readers:
            reader.cancel()
        eventually(lambda: our_threads() == [], f"left: {our_threads()}")
        counts.append(file_descriptors())
    eventually(lambda: file_descriptors() <= counts[0], f"files were left open: {counts}")


def test_a_gateway_that_cannot_start_leaves_nothing_behind(tmp_path: Path) -> None:
    def no_source(head: int) -> Flux[bytes]:
        raise LookupError("no such table")

    path = tmp_path / "log.db"
    before = file_descriptors()
    for _ in range(3):
        with pytest.raises(LookupError, match="no such table"):
            Gateway(no_source, ANYWHERE, journal=SqliteJournal(path)).start()
        with Gateway(Numbers(1), ANYWHERE) as other, pytest.raises(OSError, match="choose another port"):
            Gateway(Numbers(1), other.endpoint, journal=SqliteJournal(path)).start()
    eventually(lambda: our_threads() == [])
    eventually(lambda: file_descriptors() <= before, "files were left open")


def test_a_gateway_with_a_subscriber_that_does_not_read_closes_in_time() -> None:
    with Peer("tcp://127.0.0.1:1") as peer:
        gateway = Gateway(Numbers(width=10_000), ANYWHERE).start()
        peer.control.connect(gateway.endpoint)
        peer.control.disconnect("tcp://127.0.0.1:1")
        peer.subscribe()
        peer.host, peer.endpoint = gateway.endpoint.rpartition(":")[0], gateway.endpoint
        peer.join(hwm=1, tiny=True)
        peer.grant(limit=UNBOUNDED)
        eventually(lambda: session_of(gateway)["in_flight"] > 4_000_000)
        started = time.monotonic()
        gateway.close()
        assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"control": None}, "needs an endpoint"),
        ({"control": "udp://127.0.0.1:1"}, "tcp://"),
        ({"prefetch": 0}, "prefetch"),
        ({"codec": "xml"}, "no codec named"),
        ({"curve_control": "tcp://127.0.0.1:0"}, "go together"),
    ],
)
def test_settings_that_cannot_be_right_are_refused_at_once(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Gateway(Numbers(1), **settings)


def test_something_that_is_no_source_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="needs a Publisher"):
        Gateway([b"one", b"two"], ANYWHERE)  # type: ignore[arg-type]


def test_limits_of_zero_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Limits(max_subscribers=0)


@pytest.mark.parametrize("lease", [0.001, 7 * 24 * 3600.0, 1e12])
def test_any_lease_can_be_had(lease: float) -> None:
    """The system counts the silence of a connection in a number with a bound of its own."""
    with Gateway(Numbers(10), ANYWHERE, limits=Limits(lease=lease)) as gateway:
        assert list(AquiferPublisher(gateway.endpoint, lease=60.0).flux()) == Numbers(10).values()
