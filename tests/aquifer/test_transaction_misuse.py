"""A transaction that is used wrongly, or in which something fails: nothing incomplete is ever published."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.aquifer import (
    Administrator,
    AquiferPublisher,
    Gateway,
    GatewayUnreachable,
    Producer,
    Record,
    probe,
)
from penstock.aquifer.records.batch import Batch
from tests.aquifer.faults.rigs import ANYWHERE
from tests.aquifer.writing import METADATA


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """A gateway that can be written to."""
    with Gateway(None, ANYWHERE, writable=True) as opened:
        yield opened


@pytest.fixture
def producer(gateway: Gateway) -> Iterator[Producer]:
    """A producer of text that writes to it."""
    with Producer(gateway.endpoint, "tester", codec="text", patience=10) as opened:
        yield opened


def test_a_value_that_cannot_be_encoded_leaves_a_transaction_that_cannot_be_committed(
    gateway: Gateway, producer: Producer
) -> None:
    """Otherwise the good records that were packed together with it would be missing unnoticed."""

    def write_and_ignore_what_failed() -> None:
        with producer.transaction(1) as transaction:
            transaction.write(["good"] * 10)
            with pytest.raises((TypeError, AttributeError)):
                transaction.write([7] * 5000)
            with pytest.raises(RuntimeError, match="cannot write to"):
                transaction.write(["more"])

    with pytest.raises(RuntimeError, match="a write failed, so records are missing; abort it and begin"):
        write_and_ignore_what_failed()
    assert gateway.status().head == 0
    with producer.transaction(1) as transaction:
        transaction.write(["again"])
    assert gateway.status().head == 1


def test_records_that_could_not_be_sent_leave_a_transaction_that_cannot_be_committed(
    gateway: Gateway, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = producer.transaction(1)
    transaction.write(["first"] * 5000)
    with monkeypatch.context() as patched:

        def fail(*arguments: Any) -> None:
            raise GatewayUnreachable("not there")

        patched.setattr(producer, "_stage", fail)
        with pytest.raises(GatewayUnreachable):
            transaction.write(["second"] * 5000)
    for finish in (transaction.commit, transaction.prepare):
        with pytest.raises(RuntimeError, match="a write failed"):
            finish()
    transaction.abort()
    assert gateway.status().head == 0


@pytest.mark.parametrize("one", ["text", b"bytes", bytearray(b"b"), {"a": 1}, Record("text")])
def test_one_record_in_place_of_several_is_refused(producer: Producer, one: Any) -> None:
    """A string would be written letter by letter, and of a dict the keys."""
    with pytest.raises(TypeError, match=r"write\(\[record\]\) writes it"):
        producer.transaction(1).write(one)


def test_a_batch_is_for_write_batch(producer: Producer) -> None:
    batch: Any = Batch(0, 1, b"\x91\xa1a", METADATA)
    with pytest.raises(TypeError, match="write_batch"):
        producer.transaction(1).write(batch)


def test_parts_that_became_tuples_on_their_way_are_committed(gateway: Gateway, producer: Producer) -> None:
    transaction = producer.transaction(1)
    transaction.write(["a"])
    part: Any = list(transaction.prepare())
    with pytest.raises(RuntimeError, match=r"cannot commit .*Producer.commit\(\)"):
        transaction.commit()
    producer.commit(1, [part])
    assert gateway.status().head == 1


@pytest.mark.parametrize("part", [(0, 1), 5, "abc", (0, 1, -1), (0, "1", 1)])
def test_parts_that_are_none_are_refused(producer: Producer, part: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^commit\("):
        producer.commit(1, [part])


def test_durations_may_be_timedeltas(gateway: Gateway) -> None:
    a_while: Any = timedelta(seconds=10)
    with Producer(gateway.endpoint, patience=a_while, commit_timeout=a_while) as producer:
        with producer.transaction(1) as transaction:
            transaction.write([b"a"])
        producer.commit(2, [], timeout=a_while)
    reader = AquiferPublisher(gateway.endpoint, lease=a_while, timeout=a_while, patience=a_while)
    assert list(reader.flux().take(1)) == [b"a"]
    with Administrator(gateway.endpoint, patience=a_while) as administrator:
        assert administrator.ids().ids == []
    assert probe(gateway.endpoint, a_while).head == 1


@pytest.mark.parametrize("wrong", ["5", -1, 0, float("nan")])
def test_wrong_durations_are_refused(producer: Producer, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^commit\(\) needs"):
        producer.commit(1, [], timeout=wrong)
    with pytest.raises((TypeError, ValueError), match=r"^probe\(timeout=…\) needs"):
        probe("tcp://127.0.0.1:5556", wrong)
    with pytest.raises((TypeError, ValueError), match=r"^Administrator\(patience=…\) needs"):
        Administrator("tcp://127.0.0.1:5556", patience=wrong)


def test_what_is_not_an_endpoint_is_refused() -> None:
    nothing: Any = None
    with pytest.raises(TypeError, match=r"an endpoint is a string like 'tcp://127\.0\.0\.1:5556', not None"):
        Producer(nothing)


def test_pickling_says_what_to_do_instead(producer: Producer) -> None:
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(producer)
    with pytest.raises(TypeError, match="begin one in each process"):
        pickle.dumps(producer.transaction(1))


def test_a_forked_process_is_told_to_make_its_own_producer(gateway: Gateway, producer: Producer) -> None:
    """It hung, because ØMQ's threads are in the parent."""
    with producer.transaction(1) as transaction:
        transaction.write(["parent"])
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            with producer.transaction(2) as transaction:
                transaction.write(["child"])
        except RuntimeError as error:
            code = 0 if "before a fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    with producer.transaction(2) as transaction:
        transaction.write(["parent"])
    assert gateway.status().head == 2
