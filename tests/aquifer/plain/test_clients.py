"""A client that was written from the document alone reads from a gateway of ours."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zmq

from penstock.aquifer import Gateway, Limits, MemoryJournal
from penstock.streams import Flux, Sinks
from tests.aquifer.faults.rigs import eventually
from tests.aquifer.plain.conftest import Connect, Serve
from tests.aquifer.plain.reference import PATIENCE, ReferenceClient
from tests.source.repository import ROOT

COMPLETE = {"jsonClass": "OnComplete", "complete": True}


def some(count: int, first: int = 0) -> list[bytes]:
    return [b"record %d" % number for number in range(first, first + count)]


def is_open(port: int) -> bool:
    """Whether anybody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


# --- what the document says -------------------------------------------------------------------------------


def test_the_answers_are_those_of_the_document_byte_for_byte(serve: Serve, connect: Connect) -> None:
    gateway = serve(Flux.from_iterable(some(3)))
    assert gateway.join(60)
    client = connect(gateway)

    welcome = client.send(b'{"jsonClass":"Subscribe","cancel":false}')
    assert re.fullmatch(rb'\{"jsonClass":"OnSubscribe","size":3,"port":([0-9]+)\}', welcome), welcome
    client.subscribe()
    while (
        answer := client.send(b'{"jsonClass":"Next","count":1000}')
    ) == b'{"jsonClass":"OnNext","count":0}':
        pass
    assert answer == b'{"jsonClass":"OnNext","count":3}'
    assert client.take(3) == some(3)
    assert client.send(b'{"jsonClass":"Next","count":1000}') == b'{"jsonClass":"OnComplete","complete":true}'


def test_the_size_is_without_bound_while_the_source_may_still_give_more(
    serve: Serve, connect: Connect
) -> None:
    gateway = serve(Flux.concat(Flux.from_iterable(some(3)), Flux.never()))
    eventually(lambda: gateway.status()["head"] == 3)

    assert connect(gateway).ask("Subscribe", cancel=False)["size"] == 2**63 - 1


def test_the_size_is_what_is_still_there_when_the_source_has_ended(serve: Serve, connect: Connect) -> None:
    gateway = serve(Flux.from_iterable(some(1000)), journal=MemoryJournal(max_records=100), prefetch=10)
    reader = connect(gateway)
    reader.subscribe()
    assert reader.everything(10) == some(1000)

    client = connect(gateway)
    size = client.ask("Subscribe", cancel=False)["size"]
    assert 0 < size <= 100
    client.subscribe()
    assert client.everything(10) == some(1000)[-size:]


def test_the_size_does_not_pass_a_failure_off_as_an_end(serve: Serve, connect: Connect) -> None:
    gateway = serve(Flux.concat(Flux.from_iterable(some(3)), Flux.error(RuntimeError("stuffed"))))
    assert gateway.join(60)

    assert connect(gateway).ask("Subscribe", cancel=False)["size"] == 2**63 - 1


def test_a_batch_is_bounded_in_bytes_whatever_was_asked_for(serve: Serve, connect: Connect) -> None:
    """Or one that asks for many and reads none would fill the memory of the gateway."""
    large = [b"%04d" % number + bytes(9_996) for number in range(200)]
    gateway = serve(Flux.from_iterable(large), limits=Limits(bytes_in_flight=100_000))
    assert gateway.join(60)
    client = connect(gateway)
    client.subscribe()

    assert 8 <= client.declared(2**63 - 1)["count"] <= 10
    gone = client.take(client.declared(1)["count"])
    assert len(gone) == 1
    client.subscribe()
    assert client.everything(1000) == large


def test_a_record_above_the_bound_comes_alone(serve: Serve, connect: Connect) -> None:
    large = [b"%04d" % number + bytes(50_000) for number in range(5)]
    gateway = serve(Flux.from_iterable(large), limits=Limits(bytes_in_flight=1000))
    client = connect(gateway)
    client.subscribe()

    assert [len(batch) for batch in client.batches(100) if batch] == [1, 1, 1, 1, 1]


def test_every_record_comes_in_order_and_then_the_end(serve: Serve, connect: Connect) -> None:
    client = connect(serve(Flux.from_iterable(some(10_000))))
    client.subscribe()

    assert client.everything(1000) == some(10_000)
    assert client.next(1) == COMPLETE


def test_an_empty_source_is_complete_at_the_first_request(serve: Serve, connect: Connect) -> None:
    client = connect(serve(Flux.empty()))
    client.subscribe()

    assert client.everything(5) == []


def test_what_fails_in_the_source_is_told_after_the_records_before_it(serve: Serve, connect: Connect) -> None:
    failing = Flux.concat(Flux.from_iterable(some(5)), Flux.error(OSError("the disk is gone")))
    client = connect(serve(failing))
    client.subscribe()

    records: list[bytes] = []
    while (answer := client.next(2))["jsonClass"] == "OnNext":
        records += client.take(answer["count"])

    assert records == some(5)
    assert answer.keys() == {"jsonClass", "message"}
    assert answer["jsonClass"] == "OnError"
    assert "the disk is gone" in answer["message"]
    assert client.next(2) == answer


@pytest.mark.parametrize("count", [0, -1, -9223372036854775616])
def test_asking_for_nothing_or_less_is_an_error_that_names_the_rule(
    serve: Serve, connect: Connect, count: int
) -> None:
    client = connect(serve(Flux.from_iterable(some(5))))
    client.subscribe()

    answer = client.next(count)

    assert answer["jsonClass"] == "OnError"
    assert "3.9" in answer["message"]
    assert client.next(1)["jsonClass"] == "OnError"
    assert client.undeclared() == []


@pytest.mark.parametrize("count", [2**53 + 2, 2**63 - 1, 2**63, 9223372036854776000, 2**70])
def test_a_number_too_large_to_be_meant_is_unbounded_demand(
    serve: Serve, connect: Connect, count: int
) -> None:
    client = connect(serve(Flux.from_iterable(some(500))))
    client.subscribe()

    assert client.everything(count) == some(500)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"",
        b"hello",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"jsonClass":"Whatever"}',
        b'{"jsonClass":"Next"}',
        b'{"jsonClass":"Next","count":1.5}',
        b'{"jsonClass":"Next","count":"1000"}',
        b'{"jsonClass":"Next","count":null}',
        b'{"jsonClass":"OnNext","count":1}',
        b"[" * 50_000,
    ],
    ids=lambda nonsense: nonsense[:40].decode("latin-1"),
)
def test_nonsense_is_answered_and_does_no_harm(serve: Serve, connect: Connect, nonsense: bytes) -> None:
    client = connect(serve(Flux.from_iterable(some(20))))
    client.subscribe()
    first = client.take(client.declared(5)["count"])

    assert json.loads(client.send(nonsense))["jsonClass"] == "OnError"

    assert first + client.everything(5) == some(20)


def test_next_before_subscribe_is_an_error_and_subscribing_mends_it(serve: Serve, connect: Connect) -> None:
    client = connect(serve(Flux.from_iterable(some(5))))

    answer = client.next(5)

    assert answer["jsonClass"] == "OnError"
    assert "Subscribe" in answer["message"]
    client.subscribe()
    assert client.everything(5) == some(5)


def test_no_answer_has_a_field_that_the_document_does_not_know(serve: Serve, connect: Connect) -> None:
    client = connect(serve(Flux.from_iterable(some(5)), limits=Limits(max_subscribers=1)))
    turned_away = connect(serve(Flux.never(), limits=Limits(max_message=1000)))

    answers = [
        client.next(1),
        client.cancel(),
        client.ask("Whatever"),
        client.ask("OnNext", count=1),
        client.ask("Subscribe", cancel=False),
        client.ask("Next", count="1000"),
        client.next(0),
        client.cancel(),
        turned_away.ask("Next", count=1, padding="." * 2000),
    ]

    known = {
        "OnSubscribe": ["jsonClass", "size", "port"],
        "OnNext": ["jsonClass", "count"],
        "OnError": ["jsonClass", "message"],
        "OnComplete": ["jsonClass", "complete"],
    }
    assert [answer for answer in answers if list(answer) != known[answer["jsonClass"]]] == []


# --- joining ------------------------------------------------------------------------------------------------


def test_a_slow_joiner_loses_nothing_though_it_asks_before_it_is_connected(
    serve: Serve, connect: Connect
) -> None:
    gateway = serve(Flux.from_iterable(some(1000)))

    for _ in range(20):
        client = connect(gateway)
        client.subscribe()
        # This very moment the data connection is being made: a PUB would send to nobody.
        assert client.everything(1000) == some(1000)
        client.cancel()


def test_one_that_never_connects_gets_nothing_declared(serve: Serve, connect: Connect) -> None:
    client = connect(serve(Flux.from_iterable(some(10)), limits=Limits(long_poll=0.02)))
    client.ask("Subscribe", cancel=False)

    assert [client.next(10) for _ in range(5)] == [{"jsonClass": "OnNext", "count": 0}] * 5


def test_one_that_comes_after_the_end_gets_everything(serve: Serve, connect: Connect) -> None:
    gateway = serve(Flux.from_iterable(some(100)))
    assert gateway.join(60)

    client = connect(gateway)
    client.subscribe()

    assert client.everything(30) == some(100)


@pytest.mark.parametrize(
    "options",
    [
        {zmq.REQ_CORRELATE: 1},
        {zmq.REQ_RELAXED: 1},
        {zmq.REQ_CORRELATE: 1, zmq.REQ_RELAXED: 1},
        {zmq.PROBE_ROUTER: 1},
    ],
    ids=["correlate", "relaxed", "both", "probing"],
)
def test_the_options_of_a_req_make_no_difference(
    serve: Serve, connect: Connect, options: dict[int, int]
) -> None:
    client = connect(serve(Flux.from_iterable(some(1000))), options=options)
    client.subscribe()

    assert client.everything(100) == some(1000)


def test_one_that_gives_up_an_answer_and_asks_again_loses_no_record(serve: Serve, connect: Connect) -> None:
    options = {zmq.REQ_CORRELATE: 1, zmq.REQ_RELAXED: 1}
    source = Sinks.unicast()
    client = connect(serve(source.flux(), batched=True, limits=Limits(long_poll=5)), options=options)
    client.subscribe()
    assert client.next(3)["count"] == 0
    client.control.send(b'{"jsonClass":"Next","count":3}')  # Nothing is there: the answer has to wait.

    client.control.send(b'{"jsonClass":"Next","count":3}')
    source.try_emit(some(6))  # At once: a request is answered with what there is, and that might be one.
    assert client.control.poll(PATIENCE)
    assert json.loads(client.control.recv())["jsonClass"] == "OnNext"

    # What the answer that was given up has declared comes as well, and first.
    assert client.take(6) == some(6)


# --- demand -------------------------------------------------------------------------------------------------


def test_who_asks_for_ten_gets_ten_and_nobody_else_gets_them(serve: Serve, connect: Connect) -> None:
    gateway = serve(Flux.from_iterable(some(1000)))
    assert gateway.join(60)
    asks, waits = connect(gateway), connect(gateway)
    ports = {asks.subscribe(), waits.subscribe()}
    # Both are connected: what was published to all would have come.
    assert asks.take(asks.declared(1)["count"]) == waits.take(waits.declared(1)["count"]) == some(1)

    assert asks.next(10) == {"jsonClass": "OnNext", "count": 10}
    assert asks.take(10) == some(10, first=1)

    assert len(ports) == 2
    assert asks.undeclared() == waits.undeclared() == []
    assert waits.next(3) == {"jsonClass": "OnNext", "count": 3}
    assert waits.take(3) == some(3, first=1)
    assert asks.undeclared() == waits.undeclared() == []


def test_clients_at_different_rates_each_get_everything_from_the_oldest_record(serve: Serve) -> None:
    gateway = serve(Flux.from_iterable(some(3000)), journal=MemoryJournal(max_records=500), prefetch=64)
    everybody_is_in = threading.Barrier(4)

    def read(count: int, pause: float) -> list[bytes]:
        with ReferenceClient(gateway.endpoint) as client:
            client.subscribe()
            everybody_is_in.wait(60)
            got: list[bytes] = []
            for batch in client.batches(count):
                got += batch
                threading.Event().wait(pause)
            return got

    rates = [(1, 0.0), (7, 0.0), (100, 0.01), (1000, 0.0)]
    with ThreadPoolExecutor(len(rates)) as pool:
        results = list(pool.map(lambda rate: read(*rate), rates))

    assert all(result == some(3000) for result in results)


def test_one_that_asks_before_it_has_read_what_was_declared_loses_nothing(
    serve: Serve, connect: Connect
) -> None:
    # More than the gateway sends in one go, in batches of one record.
    large = [bytes([number]) * 1_000_000 for number in range(12)]
    gateway = serve(Flux.from_iterable(large), prefetch=1)
    assert gateway.join(60)
    client = connect(gateway)
    client.subscribe()

    declared = 0
    while (answer := client.next(100))["jsonClass"] == "OnNext":
        declared += answer["count"]

    assert answer == COMPLETE
    assert declared == len(large)
    assert client.take(declared) == large


@pytest.mark.slow
def test_an_idle_gateway_is_asked_a_few_times_a_second_and_not_as_fast_as_the_line(
    serve: Serve, connect: Connect
) -> None:
    client = connect(serve(Flux.never()))
    client.subscribe()

    answers, end = 0, time.monotonic() + 1.0
    while time.monotonic() < end:
        assert client.next(100) == {"jsonClass": "OnNext", "count": 0}
        answers += 1

    assert answers <= 11


def test_a_request_that_waits_is_answered_as_soon_as_there_is_a_record(
    serve: Serve, connect: Connect
) -> None:
    source = Sinks.unicast()
    client = connect(serve(source.flux(), limits=Limits(long_poll=30)))
    client.subscribe()
    assert client.next(100)["count"] == 0
    client.control.send(b'{"jsonClass":"Next","count":100}')

    assert not client.control.poll(50)
    source.try_emit(b"at last")

    assert client.control.poll(PATIENCE)
    assert json.loads(client.control.recv()) == {"jsonClass": "OnNext", "count": 1}
    assert client.take(1) == [b"at last"]
    client.control.send(b'{"jsonClass":"Next","count":100}')
    source.try_complete()
    assert client.control.poll(PATIENCE)
    assert json.loads(client.control.recv()) == COMPLETE


# --- leaving ------------------------------------------------------------------------------------------------


def test_cancel_is_answered_closes_the_port_and_may_be_said_again(serve: Serve, connect: Connect) -> None:
    gateway = serve(Flux.from_iterable(some(1000)))
    client = connect(gateway)
    port = client.subscribe()
    client.take(client.declared(10)["count"])

    assert client.cancel()["jsonClass"] == "OnComplete"

    assert gateway.status()["subscribers"] == []
    eventually(lambda: not is_open(port))
    assert client.cancel()["jsonClass"] == "OnComplete"
    assert client.next(10)["jsonClass"] == "OnError"
    assert client.undeclared() == []


@pytest.mark.parametrize("cancel_first", [True, False])
def test_who_subscribes_again_on_the_same_connection_starts_again_with_the_oldest_record(
    serve: Serve, connect: Connect, cancel_first: bool
) -> None:
    gateway = serve(Flux.from_iterable(some(100)))
    assert gateway.join(60)
    client = connect(gateway)
    first_port = client.subscribe()
    assert client.take(client.declared(10)["count"]) == some(10)

    if cancel_first:
        client.cancel()
    second_port = client.subscribe()

    assert client.everything(30) == some(100)
    assert len(gateway.status()["subscribers"]) == 1
    if second_port != first_port:
        eventually(lambda: not is_open(first_port))


@pytest.fixture
def killed() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_client_that_was_killed_is_let_go_after_its_lease_and_nobody_else_is_harmed(
    serve: Serve, connect: Connect, killed: list[subprocess.Popen[str]]
) -> None:
    gateway: Gateway = serve(
        Flux.from_iterable(some(2000)),
        journal=MemoryJournal(max_records=200),
        prefetch=64,
        limits=Limits(lease=10),
    )
    command = [sys.executable, "-m", "tests.aquifer.plain.reference", gateway.endpoint, "10"]
    pipe = subprocess.PIPE
    killed.append(subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True))
    assert killed[0].stdout is not None
    told = json.loads(killed[0].stdout.readline())
    assert told["taken"] == 10

    killed[0].send_signal(signal.SIGKILL)
    assert killed[0].wait(60) == -signal.SIGKILL
    # Only now: to start a process may take longer than the lease of one that says nothing meanwhile.
    client = connect(gateway)
    client.subscribe()

    # The one that was killed had not asked again, so its batch is kept, and with it everything that follows.
    before = client.take(client.declared(100)["count"])
    while answer := client.next(100)["count"]:
        before += client.take(answer)
    assert len(before) <= 200
    assert is_open(told["port"])
    # Until its lease is over.
    assert before + client.everything(100) == some(2000)
    eventually(lambda: not is_open(told["port"]))
    status = gateway.status()
    assert status["counters"]["leases ended"] == 1
    assert [subscriber["records"] for subscriber in status["subscribers"]] == [2000]


# --- what the original implementation says beside the document ----------------------------------------------


def test_an_error_request_brings_the_last_batch_again(serve: Serve, connect: Connect) -> None:
    gateway = serve(Flux.from_iterable(some(100)))
    assert gateway.join(60)
    client = connect(gateway)
    client.subscribe()
    first = client.take(client.declared(10)["count"])
    assert client.take(client.declared(10)["count"]) == some(10, first=10)

    for _ in range(2):
        answer = client.ask("Error", message="7 of 10 records arrived")
        assert answer == {"jsonClass": "OnError", "message": answer["message"], "recoverable": True}
        assert client.take(client.declared(10)["count"]) == some(10, first=10)

    assert first + some(10, first=10) + client.everything(30) == some(100)


def test_an_error_request_after_the_last_batch_brings_it_again(serve: Serve, connect: Connect) -> None:
    gateway = serve(Flux.from_iterable(some(10)))
    assert gateway.join(60)
    client = connect(gateway)
    client.subscribe()
    assert client.take(client.declared(10)["count"]) == some(10)

    assert client.ask("Error", message="7 of 10 records arrived")["recoverable"] is True

    assert client.everything(10) == some(10)


def test_a_complete_request_is_a_cancel(serve: Serve, connect: Connect) -> None:
    gateway = serve(Flux.from_iterable(some(100)))
    client = connect(gateway)
    client.subscribe()
    client.take(client.declared(10)["count"])

    assert client.ask("Complete", complete=True) == COMPLETE

    assert gateway.status()["subscribers"] == []
    assert client.ask("Complete", complete=True) == COMPLETE


def test_a_subscribe_with_a_count_is_understood(serve: Serve, connect: Connect) -> None:
    client = connect(serve(Flux.from_iterable(some(5))))

    answer: dict[str, Any] = client.ask("Subscribe", cancel=False, count=2**63 - 1)

    assert list(answer) == ["jsonClass", "size", "port"]
