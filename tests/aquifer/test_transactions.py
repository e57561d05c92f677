"""Producer and Transaction: everything or nothing, once, and what happens when somebody goes away."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.aquifer import (
    AquiferPublisher,
    Batch,
    BatchMissing,
    Gateway,
    GatewayUnreachable,
    Limits,
    LogReader,
    MemoryJournal,
    PreparedPart,
    Producer,
    ProtocolViolation,
    Record,
    RecordMetadata,
    SqliteJournal,
    TransactionLost,
    pack_metadata,
    pack_values,
)
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, eventually, free_endpoint
from tests.aquifer.writing import log_of, numbered


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(None, ANYWHERE, writable=True) as gateway:
        yield gateway


@pytest.fixture
def producer(gateway: Gateway) -> Iterator[Producer]:
    with Producer(gateway.endpoint, "producer", patience=10) as producer:
        yield producer


def log(gateway: Gateway) -> list[bytes]:
    return log_of(gateway.endpoint)


# ---------------------------------------------------------------- everything or nothing
def test_a_block_that_ends_is_committed_and_all_of_it_is_there(gateway: Gateway, producer: Producer) -> None:
    with producer.transaction(0) as transaction:
        transaction.write([b"a", b"b"])
        transaction.write(iter([b"c"]))
        assert log(gateway) == [], "nobody sees anything before the commit"

    assert log(gateway) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_that_raises_anything_is_aborted(
    gateway: Gateway, producer: Producer, error: type[BaseException]
) -> None:
    def fail_half_way() -> None:
        with producer.transaction(0) as transaction:
            transaction.write(numbered(0, 5000))
            raise error

    with pytest.raises(error):
        fail_half_way()
    assert log(gateway) == []
    with producer.transaction(0) as transaction:
        transaction.write([b"second attempt"])
    assert log(gateway) == [b"second attempt"]


def test_many_records_from_a_generator_come_in_order(gateway: Gateway, producer: Producer) -> None:
    with producer.transaction(0) as transaction:
        transaction.write(b"%d" % number for number in range(20_000))

    assert log(gateway) == [b"%d" % number for number in range(20_000)]


def test_many_small_writes_are_few_messages(gateway: Gateway, producer: Producer) -> None:
    with producer.transaction(0) as transaction:
        for number in range(3000):
            transaction.write([b"%d" % number])
    assert len(log(gateway)) == 3000
    assert transaction._pieces < 20


def test_records_of_a_megabyte(gateway: Gateway, producer: Producer) -> None:
    records = [bytes([number]) * 1_000_000 for number in range(20)]
    with producer.transaction(0) as transaction:
        transaction.write(records)

    assert log(gateway) == records


def test_an_empty_transaction_publishes_nothing_and_counts(gateway: Gateway, producer: Producer) -> None:
    with producer.transaction(0):
        pass
    with producer.transaction(1) as transaction:
        transaction.write([b"a"])
    with producer.transaction(2) as transaction:
        transaction.write([])
    with producer.transaction(2) as transaction:
        transaction.write([b"batch 2 is done"])

    assert log(gateway) == [b"a"]


def test_keys_and_times_travel_with_records(gateway: Gateway) -> None:
    with Producer(gateway.endpoint, "p", codec="json") as producer, producer.transaction(0) as transaction:
        transaction.write([{"plain": 1}, Record({"full": 2}, key=b"k", timestamp=17)])
    publisher = AquiferPublisher(gateway.endpoint, stop=2, codec="json", records=True)
    plain, full = publisher.flux()

    assert plain.value == {"plain": 1}
    assert (full.value, full.key, full.timestamp, full.offset) == ({"full": 2}, b"k", 17, 1)


def test_arrow_batches_are_written_as_rows(gateway: Gateway) -> None:
    rows = pa.record_batch({"number": [1, 2, 3]})
    with Producer(gateway.endpoint, codec="arrow") as producer, producer.transaction(0) as transaction:
        transaction.write([rows])

    assert list(AquiferPublisher(gateway.endpoint, stop=3, codec="arrow").flux()) == [rows]


def test_packed_records_go_between_others_in_order(gateway: Gateway, producer: Producer) -> None:
    packed = Batch(0, 2, pack_values([b"b", b"c"]), pack_metadata(RecordMetadata(1)))
    with producer.transaction(0) as transaction:
        transaction.write([b"a"])
        transaction.write_batch(packed)
        transaction.write([b"d"])

    assert log(gateway) == [b"a", b"b", b"c", b"d"]


def test_a_value_that_cannot_be_encoded_aborts(gateway: Gateway, producer: Producer) -> None:
    with pytest.raises(TypeError), producer.transaction(0) as transaction:
        transaction.write([b"good", 17, b"good"])

    assert log(gateway) == []


# ---------------------------------------------------------------- once
def test_the_same_batch_twice_is_published_once(gateway: Gateway) -> None:
    for _ in range(3):
        with Producer(gateway.endpoint, "producer") as producer:
            for batch in range(2):
                with producer.transaction(batch) as transaction:
                    transaction.write(numbered(batch, 10))

    assert log(gateway) == [*numbered(0, 10), *numbered(1, 10)]


def test_a_transaction_knows_that_its_batch_was_published_before(gateway: Gateway) -> None:
    for batch, last in ((0, None), (7, None), (7, 7), (3, 7), (8, None)):
        with Producer(gateway.endpoint, "writer") as producer, producer.transaction(batch) as transaction:
            transaction.write([b"%d" % batch])
        assert transaction.published_before == last, batch
    assert log_of(gateway.endpoint) == [b"0", b"7", b"8"]


def test_producers_without_a_name_are_different_ones(gateway: Gateway) -> None:
    for _ in range(2):
        with Producer(gateway.endpoint) as producer, producer.transaction(0) as transaction:
            transaction.write([producer.name.encode()])

    assert len(set(log(gateway))) == 2


def test_a_crash_between_writing_and_committing_leaves_nothing(gateway: Gateway) -> None:
    crashed = Producer(gateway.endpoint, "producer")
    crashed.transaction(0).write(numbered(0, 5000))
    crashed.close()
    assert log(gateway) == []

    with Producer(gateway.endpoint, "producer") as producer, producer.transaction(0) as transaction:
        transaction.write([b"again"])
    assert log(gateway) == [b"again"]


def test_several_processes_prepare_and_one_commits(gateway: Gateway, producer: Producer) -> None:
    sent: list[bytes] = []
    for part in (2, 0, 1):
        with Producer(gateway.endpoint, "producer") as task:
            transaction = task.transaction(0, part=part)
            transaction.write([b"part %d" % part])
            sent.append(pickle.dumps(transaction.prepare()))
    failed = producer.transaction(0, part=1)
    failed.write([b"another attempt of part 1"])
    failed.prepare()
    parts: list[PreparedPart] = [pickle.loads(one) for one in sent]
    for _ in range(2):
        producer.commit(0, parts)

    assert log(gateway) == [b"part 0", b"part 1", b"part 2"]


def test_a_block_may_commit_or_prepare_or_abort_by_itself(gateway: Gateway, producer: Producer) -> None:
    with producer.transaction(0) as transaction:
        transaction.write([b"a"])
        transaction.commit()
    with producer.transaction(1) as transaction:
        transaction.write([b"b"])
        transaction.abort()
    with producer.transaction(2) as transaction:
        transaction.write([b"c"])
        transaction.prepare()

    assert log(gateway) == [b"a"]


@pytest.mark.parametrize("end", ["commit", "prepare", "abort"])
def test_a_transaction_that_is_over_takes_nothing_more(producer: Producer, end: str) -> None:
    transaction = producer.transaction(0)
    getattr(transaction, end)()

    for call in (lambda: transaction.write([b"x"]), transaction.commit, transaction.__enter__):
        with pytest.raises(RuntimeError, match="begin another with Producer"):
            call()
    if end == "commit":
        with pytest.raises(RuntimeError, match="it is committed"):
            transaction.abort()
    else:
        transaction.abort()


# ---------------------------------------------------------------- threads
def test_threads_share_a_producer(gateway: Gateway, producer: Producer) -> None:
    transactions = [producer.transaction(batch) for batch in range(4)]

    def write(batch: int) -> None:
        for start in range(0, 3000, 100):
            transactions[batch].write(numbered(batch, 3000)[start : start + 100])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    for transaction in transactions:
        transaction.commit()

    assert log(gateway) == [record for batch in range(4) for record in numbered(batch, 3000)]


def test_a_transaction_may_be_written_by_several_threads_and_committed_by_another(
    gateway: Gateway, producer: Producer
) -> None:
    transaction = producer.transaction(0)
    threads = [threading.Thread(target=transaction.write, args=(numbered(n, 500),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    committing = threading.Thread(target=transaction.commit)
    committing.start()
    committing.join()

    assert sorted(log(gateway)) == sorted(record for n in range(4) for record in numbered(n, 500))


# ---------------------------------------------------------------- a gateway that goes away
def test_a_gateway_that_returns_with_its_journal_has_the_batch_once(tmp_path: Path) -> None:
    endpoint = free_endpoint()

    def serve() -> Gateway:
        return Gateway(None, endpoint, journal=SqliteJournal(tmp_path / "log.db"), writable=True)

    with Producer(endpoint, "producer", patience=20) as producer:
        with serve(), producer.transaction(0) as transaction:
            transaction.write(numbered(0, 3))
        starting = threading.Timer(0.5, lambda: gateways.append(serve().start()))
        gateways: list[Any] = []
        starting.start()
        for batch in (0, 1):  # The first one once more: nobody knows whether it got through.
            with producer.transaction(batch) as transaction:
                transaction.write(numbered(batch, 3))
        starting.join()
        eventually(lambda: gateways)
        assert log_of(endpoint) == [*numbered(0, 3), *numbered(1, 3)]
        gateways[0].close()


def test_what_was_written_before_a_restart_has_to_be_written_again(tmp_path: Path) -> None:
    endpoint = free_endpoint()
    with Producer(endpoint, "producer", patience=20) as producer:
        transaction = producer.transaction(0)
        with Gateway(None, endpoint, writable=True):
            transaction.write(numbered(0, 5000))
        with Gateway(None, endpoint, writable=True) as gateway:
            with pytest.raises(TransactionLost, match="run the batch again"):
                transaction.commit()
            assert log(gateway) == []
            with producer.transaction(0) as transaction:
                transaction.write([b"again"])
            assert log(gateway) == [b"again"]


def test_a_gateway_that_returns_with_another_journal_or_an_older_copy_is_told(tmp_path: Path) -> None:
    endpoint, current, copy = free_endpoint(), tmp_path / "log.db", tmp_path / "copy.db"

    def publish(producer: Producer, batch: int, follows: int) -> None:
        transaction = producer.transaction(batch)
        transaction.write([b"%d" % batch])
        producer.commit(batch, [transaction.prepare()], follows=follows)

    with Producer(endpoint, "producer", patience=20) as producer:
        for batch in range(3):
            with Gateway(None, endpoint, journal=SqliteJournal(current), writable=True):
                publish(producer, batch, batch - 1)
            if batch == 0:
                shutil.copy(current, copy)
        for journal, published in ((MemoryJournal(), None), (SqliteJournal(copy), 0)):
            with Gateway(None, endpoint, journal=journal, writable=True) as gateway:
                with pytest.raises(BatchMissing, match="and 2 should be there: the gateway has ano") as told:
                    publish(producer, 3, 2)
                assert told.value.published == published
                assert gateway.status()["head"] == (0 if published is None else 1)
        with Gateway(None, endpoint, journal=SqliteJournal(current), writable=True) as gateway:
            publish(producer, 3, 2)
            assert log(gateway) == [b"0", b"1", b"2", b"3"]


def test_no_gateway_is_told_when_patience_is_over() -> None:
    with (
        Producer(free_endpoint(), patience=0.3) as producer,
        pytest.raises(GatewayUnreachable, match="is it running there"),
        producer.transaction(0) as transaction,
    ):
        transaction.write(numbered(0, 5000))


# ---------------------------------------------------------------- refused
def test_a_gateway_that_is_not_writable_refuses() -> None:
    with (
        Gateway(Flux.never(), ANYWHERE) as gateway,
        Producer(gateway.endpoint) as producer,
        pytest.raises(ProtocolViolation, match="writable=True"),
        producer.transaction(0) as transaction,
    ):
        transaction.write([b"x"])


def test_more_than_the_gateway_takes_is_refused_and_leaves_nothing() -> None:
    with Gateway(None, ANYWHERE, writable=True, limits=Limits(staged_bytes=100_000)) as gateway:
        with (
            Producer(gateway.endpoint) as producer,
            pytest.raises(Exception, match="staged_bytes"),
            producer.transaction(0) as transaction,
        ):
            transaction.write([b"x" * 10_000] * 20)
        assert log(gateway) == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"name": ""}, "name=''"),
        ({"name": "x" * 257}, "1 to 256 characters"),
        ({"patience": 0}, "patience=0"),
        ({"commit_timeout": -1}, "commit_timeout=-1"),
        ({"codec": "morse"}, "morse"),
        ({"endpoint": "tcp://127.0.0.1:0"}, "name the host and port of one gateway"),
    ],
)
def test_what_cannot_be_right_is_told_at_once(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Producer(**{"endpoint": "tcp://127.0.0.1:1", **settings})


@pytest.mark.parametrize("number", [-1, 2**63, 1.5, True, "1", None])
def test_an_id_is_a_whole_number(producer: Producer, number: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="batch_id"):
        producer.transaction(number)
    with pytest.raises((ValueError, TypeError), match="batch_id"):
        producer.commit(number, [])
    with pytest.raises((ValueError, TypeError), match="part"):
        producer.transaction(0, part=number)


def test_a_commit_that_waits_for_space_can_be_given_up_and_repeated() -> None:
    class NoLonger(Exception):
        pass

    def no_longer() -> None:
        raise NoLonger

    with (
        Gateway(None, ANYWHERE, writable=True, journal=MemoryJournal(max_records=10)) as gateway,
        LogReader(gateway.endpoint) as log,
        Producer(gateway.endpoint, "producer") as producer,
    ):
        log.state(name="slow", lease=600.0, acknowledge=0)
        with producer.transaction(0) as first:
            first.write([b"%d" % number for number in range(8)])
        second = producer.transaction(1)
        second.write([b"%d" % number for number in range(8, 16)])
        part = second.prepare()
        for _ in range(3):
            with pytest.raises(NoLonger):
                producer.commit(1, [part], while_waiting=no_longer)
        assert log.state().head == 8
        log.state(name="slow", lease=600.0, acknowledge=8)
        producer.commit(1, [part])
        producer.commit(1, [part])
        assert log.state().head == 16
