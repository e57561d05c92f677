"""A gateway with keys: who is let in, who is not, and how soon that is known."""

from __future__ import annotations

import pytest

from penstock.aquifer import (
    CurveClient,
    CurveServer,
    Gateway,
    GatewayUnreachable,
    MemoryJournal,
    Refused,
    TakenOver,
    generate_keys,
)
from tests.aquifer.faults.rigs import (
    ANYWHERE,
    UNBOUNDED,
    Numbers,
    eventually,
    file_descriptors,
    has,
    our_threads,
    read,
    session_of,
)

SERVER, ALICE, MALLORY = generate_keys(), generate_keys(), generate_keys()
AS_ALICE, AS_MALLORY = CurveClient(ALICE, SERVER.public), CurveClient(MALLORY, SERVER.public)


def guarded(**settings: object) -> Gateway:
    """A gateway with an open endpoint for this machine, and one for Alice."""
    curve = CurveServer(SERVER, [ALICE.public])
    return Gateway(Numbers(5000), ANYWHERE, curve=curve, curve_control=ANYWHERE, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", ["extended", "plain"])
def test_both_endpoints_give_the_same(dialect: str) -> None:
    with guarded() as gateway:
        assert gateway.endpoint != gateway.curve_endpoint
        openly = read(gateway.endpoint, dialect=dialect)
        secretly = read(gateway.curve_endpoint, dialect=dialect, curve=AS_ALICE)
        assert openly.wait().items == Numbers().values(0, 5000)
        assert secretly.wait().items == Numbers().values(0, 5000)


def test_the_open_endpoint_may_be_left_out() -> None:
    curve = CurveServer(SERVER, None)
    with Gateway(Numbers(10), None, curve=curve, curve_control=ANYWHERE) as gateway:
        assert read(gateway.curve_endpoint, curve=AS_MALLORY).wait().items == Numbers().values(0, 10)


def test_a_key_that_is_not_on_the_list_is_refused_at_once() -> None:
    with guarded() as gateway:
        # It would be more patient than this test.
        error = read(gateway.curve_endpoint, curve=AS_MALLORY, patience=300).wait(60).error
        assert isinstance(error, Refused)
        assert "does not let this key in" in str(error)
        assert gateway.status()["subscribers"] == []
        assert read(gateway.curve_endpoint, curve=AS_ALICE).wait().items == Numbers().values(0, 5000)


def test_who_comes_without_a_key_is_told_that_it_may_need_one() -> None:
    with guarded() as gateway:
        # Less than the usual patience.
        error = read(gateway.curve_endpoint, patience=2.0).wait(25).error
        assert isinstance(error, GatewayUnreachable)
        assert "if this is the encrypted endpoint of a gateway, give your keys and its public key" in str(
            error
        )


@pytest.mark.slow
def test_who_comes_with_a_key_to_the_open_endpoint_finds_nobody_there() -> None:
    with guarded() as gateway:
        error = read(gateway.endpoint, curve=AS_ALICE, patience=1.0).wait().error
        assert isinstance(error, GatewayUnreachable)


@pytest.mark.slow
def test_who_has_another_gateways_key_finds_nobody_there() -> None:
    with guarded() as gateway:
        wrong = CurveClient(ALICE, MALLORY.public)
        error = read(gateway.curve_endpoint, curve=wrong, patience=1.0).wait().error
        assert isinstance(error, GatewayUnreachable)


def test_an_id_is_one_readers_across_both_endpoints() -> None:
    with guarded(journal=MemoryJournal(max_records=1000)) as gateway:
        first = read(gateway.endpoint, 100, id="ledger")
        eventually(lambda: session_of(gateway)["acknowledged"] == 100)
        error = read(gateway.curve_endpoint, id="ledger", curve=AS_ALICE).wait().error
        assert isinstance(error, Refused)
        assert "the id 'ledger' belongs to another key" in str(error)
        second = read(gateway.endpoint, id="ledger")
        eventually(has(second, 1))
        assert isinstance(first.request(UNBOUNDED).wait().error, TakenOver)
        assert second.wait().items == Numbers().values(100, 5000)


@pytest.mark.parametrize(
    "endpoint", ["tcp://*:5556", "tcp://0.0.0.0:5556", "tcp://192.0.2.1:5556", "tcp://[::]:5556"]
)
def test_an_endpoint_that_others_can_reach_needs_keys(endpoint: str) -> None:
    with pytest.raises(ValueError, match="can be reached from other machines"):
        Gateway(Numbers(1), endpoint)
    with pytest.raises(ValueError, match="can be reached from other machines"):
        Gateway(Numbers(1), ANYWHERE, data=endpoint)
    Gateway(Numbers(1), endpoint, allow_remote=True)
    Gateway(Numbers(1), None, curve=CurveServer(SERVER, []), curve_control=endpoint)


def test_a_gateway_with_keys_leaves_no_threads_and_no_files_open() -> None:
    counts = []
    for _ in range(4):
        with guarded() as gateway:
            read(gateway.curve_endpoint, curve=AS_ALICE).wait()
            read(gateway.curve_endpoint, curve=AS_MALLORY).wait()
        eventually(lambda: our_threads() == [])
        counts.append(file_descriptors())
    eventually(lambda: file_descriptors() <= counts[0], f"files were left open: {counts}")
