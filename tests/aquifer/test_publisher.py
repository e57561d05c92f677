"""AquiferPublisher as its users know it: elements by demand, in order, from where they were asked for."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from penstock.aquifer import (
    AquiferPublisher,
    AquiferSubscription,
    EpochChanged,
    Gateway,
    GatewayUnreachable,
    MemoryJournal,
    OffsetGone,
    ProtocolViolation,
    Record,
    TakenOver,
)
from penstock.spec import RuleViolation
from penstock.streams import Flux
from penstock.streams.errors import on_dropped
from tests.aquifer.faults.rigs import (
    ANYWHERE,
    UNBOUNDED,
    Numbers,
    eventually,
    file_descriptors,
    free_endpoint,
    has,
    our_threads,
    read,
    reading,
    session_of,
    set_patience,
    stays,
)
from tests.streams.recording import Recorder

pyarrow = pytest.importorskip("pyarrow")

NOWHERE = "tcp://127.0.0.1:1"
"""Nobody listens there."""


# ---------------------------------------------------------------- elements
@pytest.mark.parametrize(
    ("codec", "elements"),
    [
        ("bytes", [b"", b"\x00\xff", b"x" * 100_000]),
        ("text", ["", "grün", "水"]),
        ("json", [1, 2.5, "three", [4, None], {"five": True}]),
        ("msgpack", [1, b"two", {"three": [4.5]}, 2**63]),
    ],
)
@pytest.mark.parametrize("dialect", ["extended", "plain"])
def test_elements_come_out_as_they_went_in(codec: str, elements: list[Any], dialect: str) -> None:
    with Gateway(Flux.just(*elements), ANYWHERE, codec=codec) as gateway:
        assert read(gateway.endpoint, codec=codec, dialect=dialect).wait().items == elements


def test_arrow_batches_come_out_row_by_row_the_same() -> None:
    batches = [
        pyarrow.record_batch({"n": range(start, start + 1000), "s": ["x"] * 1000})
        for start in range(0, 10_000, 1000)
    ]
    with Gateway(Flux.just(*batches), ANYWHERE, codec="arrow") as gateway:
        reader = read(gateway.endpoint, codec="arrow", window=300).wait()

    assert pyarrow.Table.from_batches(reader.items) == pyarrow.Table.from_batches(batches)
    assert len(reader.items) > 10


def test_single_records_can_be_had_as_a_table() -> None:
    with Gateway(Flux.just(Record(b"x", key=b"k"), b"y"), ANYWHERE) as gateway:
        rows = [
            row for batch in read(gateway.endpoint, codec="arrow").wait().items for row in batch.to_pylist()
        ]

    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(0, b"k", b"x"), (1, None, b"y")]


def test_a_codec_of_ones_own_is_used_at_both_ends() -> None:
    class Backwards:
        name = "backwards"

        def encode(self, element: str) -> bytes:
            return element[::-1].encode()

        def decode(self, value: bytes) -> str:
            return value.decode()[::-1]

    with Gateway(Flux.just("abc", "de"), ANYWHERE, codec=Backwards()) as gateway:
        assert read(gateway.endpoint, codec=Backwards()).wait().items == ["abc", "de"]
        assert read(gateway.endpoint, codec="text").wait().items == ["cba", "ed"]


def test_records_come_with_offset_time_and_key() -> None:
    before = time.time_ns() // 1000
    elements = [b"plain", Record(b"keyed", key=b"k"), Record(b"timed", timestamp=77), Record(b"bare")]
    with Gateway(Flux.just(*elements), ANYWHERE) as gateway:
        records = read(gateway.endpoint, records=True).wait().items

    assert [(record.offset, record.value, record.key) for record in records] == [
        (0, b"plain", None),
        (1, b"keyed", b"k"),
        (2, b"timed", None),
        (3, b"bare", None),
    ]
    assert records[2].timestamp == 77
    assert all(
        before <= record.timestamp <= time.time_ns() // 1000 for record in records if record.offset != 2
    )


def test_records_keep_their_notes_when_a_frame_has_only_a_part_of_a_batch() -> None:
    elements = [Record(b"%d" % number, key=b"k%d" % number, timestamp=number) for number in range(2000)]
    with Gateway(Flux.just(*elements), ANYWHERE) as gateway:
        assert gateway.join(60)
        records = read(gateway.endpoint, records=True, window=7, max_window=7).wait().items

    assert [(record.value, record.key, record.timestamp, record.offset) for record in records] == [
        (b"%d" % number, b"k%d" % number, number, number) for number in range(2000)
    ]


def test_a_codec_that_does_not_fit_is_named_in_the_error_and_the_gateway_lets_go() -> None:
    with Gateway(Flux.just("one", "two"), ANYWHERE, codec="text") as gateway:
        reader = read(gateway.endpoint, codec="json").wait()
        assert isinstance(reader.error, ValueError)
        assert "does the gateway use another codec?" in str(reader.error)
        eventually(lambda: gateway.status()["subscribers"] == [], "the session is still there")


# ---------------------------------------------------------------- from where to where
@pytest.fixture(scope="module")
def thousand() -> Any:
    """A gateway with the records 500 to 999 of a thousand."""
    source = Numbers(1000)
    with Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=500), prefetch=50) as gateway:
        assert len(read(gateway.endpoint).wait().items) == 1000
        eventually(lambda: gateway.status()["subscribers"] == [])
        first = gateway.status()["first"]
        assert 500 <= first < 600
        yield gateway, first


@pytest.mark.parametrize("dialect", ["extended", "auto"])
@pytest.mark.parametrize("start", [None, "earliest"])
def test_a_subscriber_starts_at_the_oldest(thousand: Any, start: str | None, dialect: str) -> None:
    gateway, first = thousand
    assert read(gateway.endpoint, start=start, dialect=dialect).wait().items == Numbers().values(first, 1000)


def test_a_subscriber_may_start_and_stop_anywhere(thousand: Any) -> None:
    gateway, first = thousand
    for start, stop in ((first, first), (700, 800), (999, 1000), (1000, 1000), (700, 600)):
        reader = read(gateway.endpoint, start=start, stop=stop).wait()
        assert reader.items == Numbers().values(start, stop)
        assert reader.completed


def test_a_range_that_reaches_beyond_the_end_of_the_stream_ends_there(thousand: Any) -> None:
    gateway, _ = thousand
    assert read(gateway.endpoint, start=990, stop=2000).wait(60).items == Numbers().values(990, 1000)


def test_latest_gives_only_what_comes_from_now_on() -> None:
    gate = threading.Event()
    source = Flux.just(b"old").concat_with(
        Flux.from_iterable(iter(lambda: gate.wait(60) and b"new", None)).take(3)
    )
    with Gateway(source, ANYWHERE) as gateway:
        eventually(lambda: gateway.status()["head"] == 1)
        with reading(gateway.endpoint, start="latest") as reader:
            eventually(lambda: gateway.status()["subscribers"])
            gate.set()
            assert reader.wait().items == [b"new"] * 3


@pytest.mark.parametrize("start", [0, 499, 1001, 10**15])
def test_an_offset_that_is_not_there_is_an_error_that_says_which_are(thousand: Any, start: int) -> None:
    gateway, first = thousand
    error = read(gateway.endpoint, start=start).wait().error
    assert isinstance(error, OffsetGone)
    assert (error.first, error.head) == (first, 1000)
    assert f"{first} to 999" in str(error)


def test_offsets_of_another_log_are_refused(thousand: Any) -> None:
    gateway, _ = thousand
    error = read(gateway.endpoint, start=700, epoch="an older one").wait().error
    assert isinstance(error, EpochChanged)
    epoch = gateway.status()["epoch"]
    assert read(gateway.endpoint, start=999, epoch=epoch).wait().items == [b"999"]


def test_an_id_has_one_reader_at_a_time() -> None:
    with (
        Gateway(Numbers(), ANYWHERE, journal=MemoryJournal(max_records=100)) as gateway,
        reading(gateway.endpoint, 10, id="ledger") as first,
    ):
        eventually(has(first, 10))
        with reading(gateway.endpoint, 10, id="ledger") as second:
            eventually(has(second, 10))
            # What it has got already comes first, as always.
            assert isinstance(first.request(UNBOUNDED).wait().error, TakenOver)
            stays(lambda: not second.terminated, seconds=0.2)


# ---------------------------------------------------------------- nobody there
def test_nobody_at_the_endpoint_is_an_error_after_the_patience_that_was_given() -> None:
    error = read(NOWHERE, patience=0.5).wait(25).error  # The usual patience is 30 s.
    assert isinstance(error, GatewayUnreachable)
    assert "no gateway answers at tcp://127.0.0.1:1 after 0.5 s" in str(error)


def test_a_gateway_that_went_for_good_is_an_error_after_the_patience_that_was_given() -> None:
    with Gateway(Numbers(), ANYWHERE, journal=MemoryJournal(max_records=100)) as gateway:
        reader = read(gateway.endpoint, 50)
        eventually(has(reader, 50))
        set_patience(reader.subscription, 0.5)
    assert isinstance(reader.request(UNBOUNDED).wait(25).error, GatewayUnreachable)
    assert "was lost for more than 0.5 s" in str(reader.error)


def test_a_subscriber_may_be_there_before_the_gateway() -> None:
    endpoint = free_endpoint()
    reader = read(endpoint, patience=60)
    stays(lambda: not reader.terminated, seconds=0.2)
    with Gateway(Numbers(10), endpoint):
        assert reader.wait().items == Numbers().values(0, 10)


# ---------------------------------------------------------------- demand
def test_no_more_comes_than_was_asked_for() -> None:
    with Gateway(Numbers(), ANYWHERE) as gateway, reading(gateway.endpoint, 1) as reader:
        total = 1
        for portion in (1, 2, 3, 500, 10_000):
            reader.request(portion)
            total += portion
            eventually(has(reader, total))
        stays(lambda: len(reader.items) == total, seconds=0.2)
        assert reader.items == Numbers().values(0, total)


def test_a_request_for_nothing_is_an_error_of_its_own() -> None:
    with Gateway(Numbers(), ANYWHERE) as gateway:
        reader = read(gateway.endpoint, 1)
        eventually(has(reader, 1))
        reader.request(0)
        assert isinstance(reader.wait().error, RuleViolation)
        assert "3.9" in str(reader.error)
        eventually(lambda: gateway.status()["subscribers"] == [])


def test_after_cancel_nothing_comes_and_the_gateway_lets_go() -> None:
    with Gateway(Numbers(), ANYWHERE) as gateway:
        reader = Recorder(UNBOUNDED, lambda recorder, _: len(recorder.items) == 100 and recorder.cancel())
        AquiferPublisher(gateway.endpoint).subscribe(reader)
        eventually(lambda: len(reader.items) == 100 and gateway.status()["subscribers"] == [])
        stays(lambda: len(reader.items) == 100 and not reader.terminated, seconds=0.1)


def test_who_cancels_before_the_gateway_has_answered_is_not_kept() -> None:
    with Gateway(Numbers(), ANYWHERE, journal=MemoryJournal(max_records=100)) as gateway:
        for _ in range(20):
            read(gateway.endpoint, 1).cancel()
        eventually(lambda: "penstock-aquifer" not in our_threads())
        eventually(lambda: gateway.status()["subscribers"] == [], "somebody is kept")


def test_a_subscriber_that_fails_is_cancelled_and_its_error_reported() -> None:
    class Failing(Recorder):
        def on_next(self, element: Any, /) -> None:
            super().on_next(element)
            raise LookupError("on purpose")

    dropped: list[BaseException] = []
    with (
        on_dropped(error=lambda error, where: dropped.append(error)),
        Gateway(Numbers(), ANYWHERE) as gateway,
    ):
        reader = Failing(UNBOUNDED)
        AquiferPublisher(gateway.endpoint).subscribe(reader)
        eventually(lambda: dropped and gateway.status()["subscribers"] == [])
        assert len(reader.items) == 1
        assert [str(error) for error in dropped] == ["on purpose"]


def test_each_subscriber_of_a_publisher_has_a_subscription_of_its_own() -> None:
    with Gateway(Numbers(1000), ANYWHERE) as gateway:
        publisher = AquiferPublisher(gateway.endpoint)
        readers = [Recorder.of(publisher, UNBOUNDED) for _ in range(5)]
        for reader in readers:
            assert reader.wait().items == Numbers().values(0, 1000)


@pytest.mark.slow
def test_a_subscriber_that_takes_its_time_with_an_element_does_not_lose_the_gateway() -> None:
    gate = threading.Event()
    with Gateway(Numbers(50_000), ANYWHERE) as gateway:
        publisher = AquiferPublisher(gateway.endpoint, window=1000, max_window=1000)
        # Longer than the four seconds of silence after which a gateway is taken for lost.
        reader = Recorder(UNBOUNDED, lambda recorder, _: len(recorder.items) == 1500 and gate.wait(4.5))
        publisher.subscribe(reader)
        assert reader.wait(60).items == Numbers().values(0, 50_000)
        metrics = publisher.metrics()
        assert [one.subscriptions for one in metrics] in ([1], [])


@pytest.mark.slow
def test_the_lease_is_kept_up_however_slowly_the_elements_of_a_frame_are_taken() -> None:
    pause = threading.Event()
    with Gateway(Numbers(1000), ANYWHERE) as gateway:
        assert gateway.join(60)
        # Longer than the lease in all, which is long enough for a thread that a busy machine does not run.
        reader = Recorder(60, lambda recorder, _: pause.wait(0.15) and None)
        publisher = AquiferPublisher(gateway.endpoint, lease=8.0)
        publisher.subscribe(reader)
        eventually(has(reader, 60))
        assert gateway.status()["counters"].get("leases ended", 0) == 0
        assert publisher.metrics()[0].subscriptions == 1
        reader.cancel()


# ---------------------------------------------------------------- acknowledging
def test_what_was_delivered_counts_as_dealt_with_to_the_very_element() -> None:
    with Gateway(Numbers(1000), ANYWHERE) as gateway:
        assert gateway.join(60)
        with reading(gateway.endpoint, 123, id="ledger") as reader:
            eventually(has(reader, 123))
            eventually(lambda: session_of(gateway)["acknowledged"] == 123)
        eventually(lambda: gateway.status()["subscribers"] == [])
        with reading(gateway.endpoint, 1, id="ledger") as again:
            eventually(has(again, 1))
            assert again.items == [b"123"]


def test_acknowledging_by_hand_says_what_the_next_reader_gets() -> None:
    with Gateway(Numbers(1000), ANYWHERE) as gateway:
        with reading(gateway.endpoint, 100, id="ledger", acknowledge="manual") as reader:
            eventually(has(reader, 100))
            subscription = reader.subscription
            assert isinstance(subscription, AquiferSubscription)
            stays(lambda: session_of(gateway)["acknowledged"] == 0, seconds=0.3)
            subscription.acknowledge(40)
            subscription.acknowledge(30)  # Already done: it does not go back.
            eventually(lambda: session_of(gateway)["acknowledged"] == 40)
            subscription.acknowledge(50)
        eventually(lambda: gateway.status()["subscribers"] == [])
        with reading(gateway.endpoint, 1, id="ledger") as again:
            eventually(has(again, 1))
            assert again.items == [b"50"]


@pytest.mark.parametrize("failure", [None, ValueError("the sensor is gone")])
def test_the_last_records_can_be_acknowledged_by_hand_after_the_end(failure: Exception | None) -> None:
    source = Flux.range(10).map(lambda n: b"%d" % n)
    ended = source if failure is None else source.concat_with(Flux.error(failure))
    with (
        Gateway(ended, ANYWHERE) as gateway,
        reading(gateway.endpoint, id="ledger", acknowledge="manual") as reader,
    ):
        eventually(lambda: reader.terminated)
        assert len(reader.items) == 10
        assert not gateway.drained()
        reader.subscription.acknowledge(10)  # type: ignore[attr-defined]
        eventually(gateway.drained)


def test_acknowledging_what_has_not_come_yet_is_no_more_than_acknowledging_all_that_has() -> None:
    with (
        Gateway(Numbers(), ANYWHERE, journal=MemoryJournal(max_records=1000)) as gateway,
        reading(gateway.endpoint, 10, id="ledger", acknowledge="manual", window=10) as reader,
    ):
        eventually(has(reader, 10))
        reader.subscription.acknowledge(10**12)  # type: ignore[attr-defined]
        reader.request(1000)
        eventually(has(reader, 1010))
        assert not reader.terminated


def test_the_source_waits_for_acknowledgements_by_hand() -> None:
    source = Numbers()
    with (
        Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=200), prefetch=20) as gateway,
        reading(gateway.endpoint, acknowledge="manual") as reader,
    ):
        eventually(has(reader, 200))
        stays(lambda: len(reader.items) == 200 and source.asked == 200, seconds=0.3)
        reader.subscription.acknowledge(100)  # type: ignore[attr-defined]
        eventually(has(reader, 280))
        stays(lambda: source.asked <= 300, seconds=0.2)
        assert gateway.status()["floor"] == 100


def test_who_acknowledges_by_itself_cannot_be_told_to_by_hand() -> None:
    with (
        Gateway(Numbers(), ANYWHERE) as gateway,
        reading(gateway.endpoint, 1) as reader,
        pytest.raises(RuntimeError, match="acknowledge='manual'"),
    ):
        reader.subscription.acknowledge(1)  # type: ignore[attr-defined]


# ---------------------------------------------------------------- what there is to know, and what is left
def test_metrics_tell_what_a_subscription_has_seen() -> None:
    with Gateway(Numbers(10_000), ANYWHERE) as gateway:
        assert gateway.join(60)
        publisher = AquiferPublisher(gateway.endpoint, window=100, max_window=100)
        reader = Recorder.of(publisher, 1000)
        eventually(has(reader, 1000))
        eventually(lambda: publisher.metrics()[0].records == 1000)
        seen = publisher.metrics()[0]
        reader.cancel()
        assert (seen.dialect, seen.subscriptions, seen.gaps) == ("extended", 1, 0)
        assert 1000 <= seen.next <= 1100
        assert seen.lag == 10_000 - seen.next


def test_metrics_of_the_plain_dialect_count_records() -> None:
    with Gateway(Numbers(10_000), ANYWHERE) as gateway:
        publisher = AquiferPublisher(gateway.endpoint, dialect="plain")
        reader = Recorder.of(publisher, 1000)
        eventually(has(reader, 1000))
        eventually(lambda: publisher.metrics()[0].records == 1000)
        # What was declared and is on its way counts as missing, too, until it is there.
        eventually(lambda: publisher.metrics()[0].missing == 0)
        seen = publisher.metrics()[0]
        reader.cancel()
        assert (seen.dialect, seen.deficits) == ("plain", 0)
        assert seen.request_size > 0


def test_subscriptions_leave_no_threads_and_no_files_open_however_they_end() -> None:
    counts = []
    with Gateway(Numbers(1000), ANYWHERE, journal=MemoryJournal(max_records=2000)) as gateway:
        for _ in range(2):
            read(gateway.endpoint).wait()
            read(gateway.endpoint, dialect="plain").wait()
            read(gateway.endpoint, 1).cancel()
            read(gateway.endpoint, start=5000).wait()
            read(NOWHERE, patience=0.1).wait()
            read(gateway.endpoint, codec="arrow", stop=10).wait()
            eventually(lambda: "penstock-aquifer" not in our_threads())
            eventually(lambda: gateway.status()["subscribers"] == [])
            counts.append(file_descriptors())
        # What the gateway's side has for a connection goes a moment after the connection.
        eventually(lambda: file_descriptors() <= min(counts), f"{counts}, {file_descriptors()} now")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"start": -1}, "start=-1"),
        ({"start": "oldest"}, "'earliest' or 'latest'"),
        ({"stop": True}, "stop=True"),
        ({"acknowledge": "never"}, "'auto', 'manual' or 'each'"),
        ({"id": "me", "keep": False}, "remembers nothing for an optional reader"),
        ({"dialect": "Latin"}, "dialect='Latin'"),
        ({"window": 0}, "window=0"),
        ({"lease": 0}, "lease=0"),
        ({"patience": -1}, "patience=-1"),
        ({"codec": "xml"}, "no codec named 'xml'"),
        ({"codec": "arrow", "records": True}, "not single records"),
    ],
)
def test_settings_that_cannot_be_right_are_refused_at_once(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        AquiferPublisher(NOWHERE, **settings)


@pytest.mark.parametrize("endpoint", ["tcp://*:5556", "tcp://127.0.0.1:0", "tcp://0.0.0.0:5556", "5556"])
def test_an_endpoint_that_is_no_single_place_is_refused_at_once(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"name the host|is not an endpoint"):
        AquiferPublisher(endpoint)


def test_what_only_the_extended_dialect_can_do_is_refused_of_a_plain_gateway() -> None:
    with Gateway(Numbers(10), ANYWHERE) as gateway:
        error = read(gateway.endpoint, dialect="plain", id="ledger").wait().error
        assert isinstance(error, ProtocolViolation)
        assert "a durable id" in str(error)
