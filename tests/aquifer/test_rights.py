"""Keys and rights on the wire: whose id it is, who may write, and what becomes of a key that is revoked."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import Flux
from penstock.aquifer import (
    AquiferError,
    CurveClient,
    CurveServer,
    Evicted,
    Gateway,
    GatewayUnreachable,
    JournalFull,
    LogReader,
    MemoryJournal,
    Refused,
    SqliteJournal,
    generate_keys,
    probe,
)
from penstock.aquifer.errors import OutcomeUnknown
from penstock.aquifer.protocol.session_table import SessionTable
from penstock.aquifer.records.batch import Batch
from penstock.delivery import BadRecord
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, Numbers, eventually, has, read, reading, stays
from tests.aquifer.test_access_list import add
from tests.aquifer.writing import Courier, deliver, stage

SERVER, ALICE, BOB, ROOT = (generate_keys() for _ in range(4))
AS_ALICE, AS_BOB, AS_ROOT = (CurveClient(keys, SERVER.public) for keys in (ALICE, BOB, ROOT))
SOON = 30.0


class FullJournal(MemoryJournal):
    """A journal on a disk that has no space."""

    is_full = True

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str | None] | None = None) -> None:
        if self.is_full:
            raise JournalFull("the disk is full")
        super().append(batches, marks)


class SilentJournal(MemoryJournal):
    """A journal of brokers that store what they get, and whose answer is lost, as in Kafka."""

    is_silent = True
    attempted: Sequence[Batch] = ()
    attempts = 0

    def append(self, batches: Sequence[Batch], marks: Mapping[str, str | None] | None = None) -> None:
        if batches and list(batches) != self.attempted:
            super().append(batches, marks)
        if self.is_silent:
            self.attempted = list(batches)
            self.attempts += 1
            raise OutcomeUnknown("the brokers do not answer")


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """A directory with the keys of Alice and Bob, and of one who administers."""
    folder = tmp_path / "clients"
    folder.mkdir()
    for name, keys, rights in (("alice", ALICE, None), ("bob", BOB, None), ("root", ROOT, "read, admin")):
        add(folder, name, keys, rights)
    return folder


def guarded(source: Any, clients: Path, **settings: Any) -> Gateway:
    from penstock.aquifer.security.access import AccessList

    curve = CurveServer(SERVER, AccessList.load(clients))
    return Gateway(source, None, curve=curve, curve_control=ANYWHERE, **settings)


@pytest.fixture
def gateway(clients: Path) -> Iterator[Gateway]:
    with guarded(unending(), clients) as gateway:
        yield gateway


def unending() -> Flux[bytes]:
    """A thousand numbers, and then nothing: a reader stays until something happens to it."""
    return Flux.concat(Flux.from_iterable(Numbers().values(0, 1000)), Flux.never())


# ---------------------------------------------------------------- whose id it is
def test_another_key_neither_takes_nor_moves_nor_sees_a_place(clients: Path, tmp_path: Path) -> None:
    source = ByHand()
    journal = SqliteJournal(tmp_path / "journal.db")
    with guarded(source, clients, journal=journal) as gateway:
        endpoint = gateway.curve_endpoint
        source.give(*Numbers().values(0, 100))
        alice = read(endpoint, id="ledger", curve=AS_ALICE)
        eventually(has(alice, 100))
        assert probe(endpoint, SOON, AS_BOB)["subscribers"] == []

        assert isinstance(read(endpoint, id="ledger", curve=AS_BOB).wait().error, Refused)
        with closing(LogReader(endpoint, curve=AS_BOB)) as bob, pytest.raises(Refused, match="another key"):
            bob.state(name="ledger", acknowledge=100)
        source.give(*Numbers().values(100, 200))
        eventually(has(alice, 200))
        alice.cancel()
        eventually(lambda: gateway.status()["absent"])
        with closing(LogReader(endpoint, curve=AS_BOB)) as bob, pytest.raises(Refused, match="another key"):
            bob.state(name="ledger", acknowledge=200)
        assert probe(endpoint, SOON, AS_BOB)["absent"] == {}
        assert probe(endpoint, SOON, AS_ROOT)["absent"]["ledger"]["owner"] == ALICE.public

    with guarded(Numbers(0), clients, journal=SqliteJournal(tmp_path / "journal.db")) as gateway:
        assert isinstance(read(gateway.curve_endpoint, id="ledger", curve=AS_BOB).wait().error, Refused)
        assert read(gateway.curve_endpoint, id="ledger", curve=AS_ALICE).wait().error is None


def test_another_key_does_not_publish_in_the_name_of_a_writer(clients: Path) -> None:
    with guarded(None, clients, writable=True) as gateway:
        with closing(Courier(gateway.curve_endpoint, curve=AS_ALICE)) as alice:
            deliver(alice, 0, [b"hers"], query="totals")
            with closing(Courier(gateway.curve_endpoint, curve=AS_BOB)) as bob:
                with pytest.raises(Refused, match="the name 'totals' belongs to another key"):
                    bob.publish("totals", 2**62, [])
                deliver(bob, 0, [b"his"], query="of-bob")
            deliver(alice, 1, [b"more"], query="totals")
        assert gateway.status()["head"] == 3


def test_a_key_with_one_right_has_no_other(clients: Path) -> None:
    add(clients, "alice", ALICE, "read")
    add(clients, "bob", BOB, "write")
    with guarded(None, clients, writable=True) as gateway:
        endpoint = gateway.curve_endpoint
        with closing(Courier(endpoint, curve=AS_BOB)) as bob:
            deliver(bob, 0, [b"his"])
        with (
            closing(Courier(endpoint, curve=AS_ALICE)) as alice,
            pytest.raises(Refused, match="may not write"),
        ):
            deliver(alice, 0, [b"hers"], query="hers")
        error = read(endpoint, curve=AS_BOB).wait().error
        assert isinstance(error, Refused)
        assert "may not read: its rights are write" in str(error)
        with reading(endpoint, curve=AS_ALICE) as alice_reads:
            eventually(has(alice_reads, 1))


# ---------------------------------------------------------------- a key is revoked
def test_a_key_that_may_only_write_is_shown_no_piece_of_a_record(clients: Path) -> None:
    add(clients, "alice", ALICE, "read")
    add(clients, "bob", BOB, "write")
    add(clients, "root", ROOT, "admin")
    bad = BadRecord(b"4111", "the number of the card '4111' is too short")
    source = Flux.concat(Flux.from_iterable([bad]), Flux.error(ValueError("'4111' is not a card")))
    with guarded(source, clients, on_bad_record="skip", codec="text") as gateway:
        gateway.join()
        for curve in (AS_ALICE, AS_ROOT):
            told = probe(gateway.curve_endpoint, SOON, curve)
            assert told.failure == "ValueError: '4111' is not a card"
            assert told.source.bad
            assert told.source.bad[0].reason == bad.reason
        told = probe(gateway.curve_endpoint, SOON, AS_BOB)

    assert "4111" not in str(told.to_dict())
    assert told.source.skipped == 1
    assert told.failure
    assert [stream.failure for stream in told.streams] == [told.failure]


def revoke_by_file(gateway: Gateway, clients: Path) -> None:
    (clients / "alice.pub").unlink()
    assert gateway.reload_keys()


@pytest.mark.parametrize("dialect", ["extended", "plain"])
def test_a_revoked_key_is_cut_off_while_it_reads(gateway: Gateway, clients: Path, dialect: str) -> None:
    alice = read(gateway.curve_endpoint, 10, dialect=dialect, curve=AS_ALICE)
    bob = read(gateway.curve_endpoint, 10, dialect=dialect, curve=AS_BOB)
    for reader in (alice, bob):
        eventually(has(reader, 10))

    revoke_by_file(gateway, clients)

    # A plain reader is told when it asks for more: the dialect has no other way.
    error = (alice.request(1000) if dialect == "plain" else alice).wait().error
    assert isinstance(error, Refused) or dialect == "plain"
    assert error is not None
    assert "key" in str(error)
    eventually(has(bob.request(2000), 1000))
    bob.cancel()
    assert isinstance(read(gateway.curve_endpoint, curve=AS_ALICE).wait().error, Refused)


def test_nothing_is_sent_to_a_revoked_key_once_the_list_was_read_again(
    clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ByHand()
    with guarded(source, clients) as gateway:
        endpoint = gateway.curve_endpoint
        readers = [read(endpoint, curve=AS_ALICE), read(endpoint, curve=AS_ALICE, group="g", partitions=2)]
        source.give(*map(b"%d".__mod__, range(10)))
        for reader in readers:
            eventually(has(reader, 10))
        monkeypatch.setattr(SessionTable, "tick", lambda table, now: [])  # The next one may be far away.

        revoke_by_file(gateway, clients)
        source.give(*map(b"%d".__mod__, range(10, 20)))

        for reader in readers:
            assert isinstance(reader.wait().error, Refused)
            assert len(reader.items) == 10


@pytest.mark.slow
def test_a_list_that_has_changed_is_noticed_without_being_told(gateway: Gateway, clients: Path) -> None:
    carol = generate_keys()
    as_carol = CurveClient(carol, SERVER.public)
    alice = read(gateway.curve_endpoint, 10, curve=AS_ALICE)
    eventually(has(alice, 10))

    add(clients, "carol", carol)
    (clients / "alice.pub").unlink()

    assert isinstance(alice.wait().error, Refused)
    with reading(gateway.curve_endpoint, curve=as_carol) as new:
        eventually(has(new, 1000))


def test_a_list_that_is_damaged_while_the_gateway_runs_cuts_nobody_off(
    gateway: Gateway, clients: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(gateway.curve_endpoint, 10, curve=AS_ALICE) as alice:
        eventually(has(alice, 10))
        add(clients, "bob", BOB).write_text('public = "')
        (clients / "alice.pub").unlink()
        assert not gateway.reload_keys()
        alice.request(10)
        eventually(has(alice, 20))
        assert "the last one stays in force" in caplog.text
        stays(lambda: gateway.status()["subscribers"])


def test_a_batch_that_waits_for_room_is_not_written_for_a_key_that_was_revoked(clients: Path) -> None:
    """The key is taken away in the middle of a transaction: all of it is in the log, or nothing."""
    journal = MemoryJournal(max_records=10)
    with guarded(None, clients, writable=True, journal=journal) as gateway:
        endpoint = gateway.curve_endpoint
        with (
            closing(LogReader(endpoint, curve=AS_BOB)) as keeper,
            closing(Courier(endpoint, curve=AS_ALICE)) as alice,
        ):
            deliver(alice, 0, [b"%d" % number for number in range(10)])
            keeper.state(name="bob", acknowledge=0, lease=600)
            parts = stage(alice, 1, [b"waits"])
            failures: list[BaseException] = []

            def publish() -> None:
                try:
                    alice.publish("query", 1, [parts], timeout=SOON)
                except BaseException as error:
                    failures.append(error)

            publishing = threading.Thread(target=publish)
            publishing.start()
            eventually(
                lambda: gateway._server.streams.default.transactions._pending, "the commit waits for room"
            )
            revoke_by_file(gateway, clients)
            publishing.join(SOON)
            assert [str(failure) for failure in failures] == [
                "the key of this writer may not write here any more"
            ]
            keeper.state(name="bob", acknowledge=10)
            with closing(Courier(endpoint, curve=AS_BOB)) as bob:
                deliver(bob, 0, [b"his"], query="of-bob")
        assert gateway.status()["head"] == 11


def test_a_batch_that_waits_for_the_disk_is_not_written_for_a_key_that_was_revoked(clients: Path) -> None:
    journal = FullJournal()
    with guarded(None, clients, writable=True, journal=journal) as gateway:
        with closing(Courier(gateway.curve_endpoint, curve=AS_ALICE)) as alice:
            parts = stage(alice, 0, [b"waits"])
            with ThreadPoolExecutor(1) as elsewhere:
                publishing = elsewhere.submit(alice.publish, "query", 0, [parts], timeout=SOON)
                eventually(lambda: gateway.status()["stalled"], "the commit waits for the disk")
                revoke_by_file(gateway, clients)
                with pytest.raises(AquiferError, match="this writer may not write here any more"):
                    publishing.result(SOON)
        journal.is_full = False
        with closing(Courier(gateway.curve_endpoint, curve=AS_BOB)) as bob:
            deliver(bob, 0, [b"his"], query="of-bob")
        assert gateway.status()["head"] == 1


def test_a_batch_of_a_revoked_key_that_may_be_stored_already_does_not_end_the_stream(clients: Path) -> None:
    journal = SilentJournal()
    with guarded(None, clients, writable=True, journal=journal) as gateway:
        with closing(Courier(gateway.curve_endpoint, curve=AS_ALICE)) as alice:
            parts = stage(alice, 0, [b"is there"])
            with ThreadPoolExecutor(1) as elsewhere:
                publishing = elsewhere.submit(alice.publish, "query", 0, [parts], timeout=SOON)
                eventually(lambda: gateway.status()["stalled"], "the commit waits for the brokers")
                (pending,) = gateway._server.streams.default.transactions._pending.values()
                revoke_by_file(gateway, clients)
                eventually(lambda: pending.withdrawn, "the key is taken away")
                before = journal.attempts
                eventually(lambda: journal.attempts > before + 1, "the writer goes on asking")
                journal.is_silent = False
                publishing.exception(SOON)
        with closing(Courier(gateway.curve_endpoint, curve=AS_BOB)) as bob:
            deliver(bob, 0, [b"his"], query="of-bob")
        assert gateway.status()["head"] == 2


def test_a_thousand_keys_and_one_of_them_is_revoked(clients: Path) -> None:
    for number in range(1000):
        add(clients, f"client-{number}", generate_keys())
    with (
        guarded(unending(), clients) as gateway,
        reading(gateway.curve_endpoint, 10, curve=AS_BOB) as bob,
    ):
        alice = read(gateway.curve_endpoint, 10, curve=AS_ALICE)
        for reader in (alice, bob):
            eventually(has(reader, 10))
        revoke_by_file(gateway, clients)
        assert isinstance(alice.wait().error, Refused)
        bob.request(10)
        eventually(has(bob, 20))


# ---------------------------------------------------------------- administering
def test_an_evicted_reader_gets_an_error_that_says_so(gateway: Gateway) -> None:
    alice = read(gateway.curve_endpoint, 10, id="ledger", curve=AS_ALICE)
    eventually(has(alice, 10))
    gateway.evict("ledger")
    assert isinstance(alice.wait().error, Evicted)
    assert [one["id"] for one in gateway.ids()["ids"]] == ["ledger"]


def test_ids_are_listed_and_forgotten_from_within_the_process(gateway: Gateway) -> None:
    for number in range(5):
        with closing(LogReader(gateway.curve_endpoint, curve=AS_ALICE)) as client:
            client.state(name=f"id {number}", acknowledge=0)
    assert [one["name"] for one in gateway.ids()["ids"]] == ["alice"] * 5
    gateway.forget("id 3")
    assert [one["id"] for one in gateway.ids()["ids"]] == ["id 0", "id 1", "id 2", "id 4"]
    with pytest.raises(LookupError, match="there is no id 'id 3'"):
        gateway.forget("id 3")


def test_a_reader_that_is_refused_its_id_reads_without_one(gateway: Gateway) -> None:
    with reading(gateway.curve_endpoint, id="ledger", curve=AS_ALICE) as alice:
        eventually(has(alice, 1000))
        with reading(gateway.curve_endpoint, curve=AS_BOB) as bob:
            eventually(has(bob, 1000))


def test_a_gateway_that_does_not_run_has_nobody_to_administer(clients: Path) -> None:
    gateway = guarded(Numbers(1), clients)
    assert gateway.reload_keys()
    with pytest.raises(RuntimeError, match="is not running"):
        gateway.ids()
    with gateway:
        assert gateway.ids()["total"] == 0
    with pytest.raises(RuntimeError, match="is not running"):
        gateway.evict("ledger")


def test_a_wrong_server_key_is_named_as_the_reason_that_nobody_answers(gateway: Gateway) -> None:
    wrong = CurveClient(ALICE, BOB.public)
    endpoint = gateway.curve_endpoint
    reader = read(endpoint, curve=wrong, patience=2.0).wait()
    assert isinstance(reader.error, GatewayUnreachable)
    assert f"something listens at {endpoint}" in str(reader.error)
    assert "the server key is probably wrong" in str(reader.error)
    assert "Compare the server key with the .pub file" in str(reader.error)
    with closing(LogReader(endpoint, curve=wrong, patience=2.0)) as log:
        with pytest.raises(GatewayUnreachable, match="the server key is probably wrong"):
            log.state()
        with pytest.raises(GatewayUnreachable, match="the server key is probably wrong"):
            next(log.read(0, 10))


def test_a_reader_without_keys_is_told_that_it_may_need_them(gateway: Gateway) -> None:
    reader = read(gateway.curve_endpoint, patience=2.0).wait()
    assert "if this is the encrypted endpoint of a gateway, give your keys" in str(reader.error)


def test_a_reader_with_keys_at_a_dead_port_is_asked_whether_anything_runs_there() -> None:
    reader = read("tcp://127.0.0.1:1", curve=AS_ALICE, patience=1.0).wait()
    assert "is it running there, with keys" in str(reader.error)
