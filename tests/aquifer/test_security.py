"""Keys on disk, and who gets in: real sockets, real handshakes, seen through socket monitors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from penstock.aquifer.security import (
    Authenticator,
    CurveClient,
    CurveKeys,
    CurveServer,
    check_bind,
    generate_keys,
    load_keys,
    load_public,
    save_keys,
    zap,
)

PATIENCE = 60_000
"""Milliseconds; only a test that fails waits for so long."""

SERVER, ALICE, BOB = generate_keys(), generate_keys(), generate_keys()

FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
HANDSHAKES = FAILED | zmq.EVENT_HANDSHAKE_SUCCEEDED


class Wire:
    """A context for gateways and one for clients; what is made here is closed at the end."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.clients = zmq.Context()
        self._sockets: list[zmq.Socket[Any]] = []
        self._monitors: dict[zmq.Socket[Any], zmq.Socket[Any]] = {}

    def listen(self, kind: int, server: CurveServer | None = None) -> zmq.Socket[Any]:
        socket = self._socket(self.context, kind)
        if server is not None:
            server.secure(socket)
        socket.bind("tcp://127.0.0.1:0")
        return socket

    def connect(self, kind: int, to: zmq.Socket[Any], client: CurveClient | None = None) -> zmq.Socket[Any]:
        socket = self._socket(self.clients, kind)
        if client is not None:
            client.secure(socket)
        if kind == zmq.SUB:
            socket.subscribe(b"")
        socket.connect(to.get(zmq.LAST_ENDPOINT).decode())
        if kind == zmq.DEALER:
            # One that was refused in the meantime has nobody to send to, and would wait for somebody.
            with contextlib.suppress(zmq.Again):
                socket.send(b"hello", zmq.NOBLOCK)
        return socket

    def handshake(self, socket: zmq.Socket[Any]) -> tuple[int, int]:
        """How the next handshake of a socket ends: the event and its value."""
        monitor = self._monitors[socket]
        assert monitor.poll(PATIENCE), "no handshake ended"
        told = recv_monitor_message(monitor)
        return told["event"], int(told["value"])

    def close(self) -> None:
        for socket in self._sockets:
            socket.disable_monitor()
            socket.close(linger=0)
        for monitor in self._monitors.values():
            monitor.close(linger=0)
        self.clients.term()
        self.context.term()

    def _socket(self, context: zmq.Context[Any], kind: int) -> zmq.Socket[Any]:
        socket = context.socket(kind)
        socket.sndtimeo = PATIENCE
        self._monitors[socket] = socket.get_monitor_socket(HANDSHAKES)
        self._sockets.append(socket)
        return socket


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def client(keys: CurveKeys, server: str = SERVER.public) -> CurveClient:
    return CurveClient(keys, server)


def receive(socket: zmq.Socket[Any]) -> list[bytes]:
    assert socket.poll(PATIENCE), "nothing came"
    return socket.recv_multipart()


# --- keys -----------------------------------------------------------------------------------------------


def test_a_saved_pair_is_loaded_with_or_without_the_end_of_its_name(tmp_path: Path) -> None:
    save_keys(ALICE, tmp_path / "alice.laptop")

    assert load_keys(tmp_path / "alice.laptop") == ALICE
    assert load_keys(str(tmp_path / "alice.laptop.key")) == ALICE


def test_the_public_key_is_found_in_either_file_and_stands_for_itself(tmp_path: Path) -> None:
    save_keys(ALICE, tmp_path / "alice.key")

    for given in (tmp_path / "alice.pub", str(tmp_path / "alice.key"), str(tmp_path / "alice"), ALICE.public):
        assert load_public(given) == ALICE.public
    assert sorted(os.listdir(tmp_path)) == ["alice.key", "alice.pub"]
    assert ALICE.secret not in (tmp_path / "alice.pub").read_text()


@pytest.mark.skipif(os.name != "posix", reason="modes are a matter of POSIX")
@pytest.mark.parametrize("umask", [0o000, 0o077])
@pytest.mark.parametrize("overwrite", [False, True])
def test_the_secret_is_readable_by_its_owner_alone_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int, overwrite: bool
) -> None:
    if overwrite:  # what is there is open to everybody, and must not lend its mode to the new one
        for end in ("key", "key.new", "pub"):
            (tmp_path / f"alice.{end}").touch(0o666)
            (tmp_path / f"alice.{end}").chmod(0o666)
    modes_at_creation = []
    real = os.open

    def spying(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        descriptor = real(path, flags, mode, **more)
        if ".key" in str(path):
            modes_at_creation.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    before = os.umask(umask)
    try:
        monkeypatch.setattr(os, "open", spying)
        save_keys(ALICE, tmp_path / "alice", overwrite=overwrite)
    finally:
        os.umask(before)

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes_at_creation == [0o600]
    assert modes == {"alice.key": 0o600, "alice.pub": 0o644}


@pytest.mark.parametrize("end", ["key", "pub"])
def test_nothing_is_overwritten_unasked(tmp_path: Path, end: str) -> None:
    (tmp_path / f"alice.{end}").write_text("mine")

    with pytest.raises(FileExistsError, match=f"alice.{end}"):
        save_keys(ALICE, tmp_path / "alice")

    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]
    save_keys(ALICE, tmp_path / "alice", overwrite=True)
    assert load_keys(tmp_path / "alice") == ALICE


def test_an_open_key_file_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_keys(ALICE, tmp_path / "alice")
    load_keys(tmp_path / "alice")
    load_public(tmp_path / "alice.pub")
    assert caplog.records == []

    (tmp_path / "alice.key").chmod(0o640)

    assert load_keys(tmp_path / "alice") == ALICE
    assert "mode 640" in caplog.text
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no public key"),
        (f'public = "{ALICE.public}"\n', "no secret key"),
        (f'secret = "{ALICE.secret}"\n', "no public key"),
        (f'public = "{ALICE.public}"\nsecret = "{ALICE.secret[:-1]}"\n', "39 characters"),
        (f'public = "{ALICE.public}"\nsecret = "{ALICE.secret[:-1]}~"\n', "characters that do not make"),
        (f'public = "{ALICE.public}"\nsecret = "{"#" * 40}"\n', "characters that do not make"),
        (f'public = "{ALICE.public}"\nsecret = "{ALICE.secret[:-1]}é"\n', "characters that do not make"),
        (f'public = "{BOB.public}"\nsecret = "{ALICE.secret}"\n', "do not belong together"),
        (f'public = "{ALICE.public}"\npublic = "{ALICE.public}"\n', "line 2"),
        (f"\n\nsecret = {ALICE.secret}\n", "line 3"),
        ("\x00\x01", "line 1"),
    ],
)
def test_a_malformed_key_file_says_what_is_wrong_and_never_shows_a_secret(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "alice.key").write_text(text, "utf-8")

    with pytest.raises(ValueError, match=r"alice\.key") as caught:
        load_keys(tmp_path / "alice")

    assert why in str(caught.value)
    assert "penstock gateway --keygen PATH" in str(caught.value)
    assert ALICE.secret[:39] not in str(caught.value)


def test_bytes_that_are_no_text_are_a_malformed_file_too(tmp_path: Path) -> None:
    (tmp_path / "alice.pub").write_bytes(bytes(range(128, 256)))

    with pytest.raises(ValueError, match="this is not a key file"):
        load_public(tmp_path / "alice.pub")


@pytest.mark.parametrize("wrong", ["", "x" * 39, "x" * 41, "x" * 39 + " ", "#" * 40, "x" * 39 + "é"])
def test_a_malformed_public_key_says_how_to_make_one(wrong: str) -> None:
    with pytest.raises(ValueError, match="penstock gateway --keygen PATH"):
        load_public(wrong)
    with pytest.raises(ValueError, match="penstock gateway --keygen PATH"):
        CurveServer(SERVER, [wrong])


@pytest.mark.parametrize("name", ["alice.pub", "alice.key", "directory-with-a-name/of-40-characters.pub"])
def test_a_missing_file_is_no_key(name: str) -> None:
    with pytest.raises(FileNotFoundError, match="--keygen"):
        load_public(name)
    with pytest.raises(FileNotFoundError, match="--keygen"):
        load_keys(name)
    with pytest.raises(FileNotFoundError, match="--keygen"):
        load_public(Path("alice"))


def test_a_pair_does_not_show_its_secret() -> None:
    assert ALICE.public in repr(client(ALICE))
    assert ALICE.secret not in f"{ALICE} {ALICE!r} {client(ALICE)!r}"


def test_the_allowed_clients_are_a_directory_of_public_keys(tmp_path: Path) -> None:
    save_keys(SERVER, tmp_path / "gateway")
    (tmp_path / "clients").mkdir()
    save_keys(ALICE, tmp_path / "clients" / "alice")
    save_keys(BOB, tmp_path / "clients" / "bob")

    server = CurveServer.load(tmp_path / "gateway", tmp_path / "clients")

    assert (server.keys, server.allowed) == (SERVER, {ALICE.public, BOB.public})


def test_or_a_file_with_a_key_to_a_line(tmp_path: Path) -> None:
    save_keys(SERVER, tmp_path / "gateway")
    lines = ["# our clients", "", f"{ALICE.public} alice, laptop", f"#{SERVER.public}", f"  {BOB.public}  "]
    (tmp_path / "clients").write_text("\n".join(lines))

    assert CurveServer.load(tmp_path / "gateway", tmp_path / "clients").allowed == {ALICE.public, BOB.public}


def test_no_key_looks_like_a_comment() -> None:
    assert not z85.encode(b"\xff" * 32).startswith(b"#")  # the characters of Z85 ascend, and # is the last
    with pytest.raises(ValueError, match="do not make a CURVE key"):
        load_public("#" + "0" * 39)


def test_a_wrong_line_in_the_list_is_told(tmp_path: Path) -> None:
    save_keys(SERVER, tmp_path / "gateway")
    (tmp_path / "clients").write_text(f"{ALICE.public}\nalice\n")

    with pytest.raises(ValueError, match=r"clients, line 2: 'alice' has 5 characters"):
        CurveServer.load(tmp_path / "gateway", tmp_path / "clients")


def test_no_list_means_everybody_and_an_empty_one_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_keys(SERVER, tmp_path / "gateway")
    (tmp_path / "clients").mkdir()

    assert CurveServer.load(tmp_path / "gateway", None).allowed is None
    assert caplog.records == []
    assert CurveServer.load(tmp_path / "gateway", tmp_path / "clients").allowed == frozenset()
    assert "no client can connect" in caplog.text


# --- who gets in ----------------------------------------------------------------------------------------


def test_an_allowed_client_gets_through_and_its_messages_carry_its_key(wire: Wire) -> None:
    server = CurveServer(SERVER, {ALICE.public})
    with Authenticator(wire.context, server) as authenticator:
        router = wire.listen(zmq.ROUTER, server)
        dealer = wire.connect(zmq.DEALER, router, client(ALICE))

        assert router.poll(PATIENCE)
        route, hello = router.recv_multipart(copy=False)
        router.send_multipart([route, b"welcome"])

        assert (hello.bytes, hello.get("User-Id")) == (b"hello", ALICE.public)
        assert receive(dealer) == [b"welcome"]
        assert (authenticator.allowed, authenticator.refused) == (1, 0)


def test_so_does_a_subscriber(wire: Wire) -> None:
    server = CurveServer(SERVER, {ALICE.public})
    with Authenticator(wire.context, server):
        publisher = wire.listen(zmq.XPUB, server)
        stranger = wire.connect(zmq.SUB, publisher, client(BOB))
        assert wire.handshake(stranger) == (zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400)
        subscriber = wire.connect(zmq.SUB, publisher, client(ALICE))

        assert publisher.poll(PATIENCE)
        subscription = publisher.recv(copy=False)
        publisher.send(b"news")

        assert (subscription.bytes, subscription.get("User-Id")) == (b"\x01", ALICE.public)
        assert receive(subscriber) == [b"news"]
        assert (publisher.poll(0), stranger.poll(0)) == (0, 0)


# The client, how the gateway sees its handshake fail, and how many refusals it counts.
STRANGERS = {
    "unknown key": (client(BOB), zmq.EVENT_HANDSHAKE_FAILED_AUTH, 1),
    "no CURVE": (None, FAILED, 0),  # whichever side notices first hangs up on the other
    "wrong server key": (client(ALICE, server=BOB.public), zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, 0),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_gets_nothing(wire: Wire, name: str) -> None:
    stranger, events, refused = STRANGERS[name]
    server = CurveServer(SERVER, {ALICE.public})
    with Authenticator(wire.context, server) as authenticator:
        router = wire.listen(zmq.ROUTER, server)
        dealer = wire.connect(zmq.DEALER, router, stranger)

        assert wire.handshake(router)[0] & events
        assert wire.handshake(dealer)[0] & FAILED

        wire.connect(zmq.DEALER, router, client(ALICE))
        assert receive(router)[1:] == [b"hello"]
        assert router.poll(0) == 0, "more than the allowed client came through"
        assert (authenticator.allowed, authenticator.refused) == (1, refused)


def test_without_a_list_every_client_that_knows_the_server_gets_in(wire: Wire) -> None:
    server = CurveServer(SERVER, None)
    with Authenticator(wire.context, server) as authenticator:
        router = wire.listen(zmq.ROUTER, server)
        for keys in (ALICE, BOB):
            wire.connect(zmq.DEALER, router, client(keys))
            assert receive(router)[1:] == [b"hello"]
        authenticator.revoke(BOB.public)

        assert wire.handshake(wire.connect(zmq.DEALER, router, client(BOB)))[0] & FAILED
        assert (authenticator.allowed, authenticator.refused) == (2, 1)


def test_an_empty_list_lets_nobody_in(wire: Wire) -> None:
    server = CurveServer(SERVER, ())
    with Authenticator(wire.context, server):
        router = wire.listen(zmq.ROUTER, server)

        assert wire.handshake(wire.connect(zmq.DEALER, router, client(ALICE)))[0] & FAILED


def test_without_an_authenticator_nobody_gets_in(wire: Wire) -> None:
    server = CurveServer(SERVER, None)
    router = wire.listen(zmq.ROUTER, server)
    wire.connect(zmq.DEALER, router, client(ALICE))

    assert wire.handshake(router)[0] & FAILED
    assert router.poll(0) == 0


def test_nor_after_it_was_stopped_until_it_starts_again(wire: Wire) -> None:
    server = CurveServer(SERVER, {ALICE.public})
    authenticator = Authenticator(wire.context, server)
    authenticator.start()
    router = wire.listen(zmq.ROUTER, server)
    early = wire.connect(zmq.DEALER, router, client(ALICE))
    receive(router)
    assert wire.handshake(router)[0] == zmq.EVENT_HANDSHAKE_SUCCEEDED
    authenticator.stop()

    wire.connect(zmq.DEALER, router, client(ALICE))
    assert wire.handshake(router)[0] & FAILED
    early.send(b"still here")
    assert receive(router)[1:] == [b"still here"]

    authenticator.start()
    wire.connect(zmq.DEALER, router, client(ALICE))
    assert receive(router)[1:] == [b"hello"]
    authenticator.stop()


def test_a_server_that_the_authenticator_does_not_know_lets_nobody_in(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = CurveServer(SERVER, None)
    with Authenticator(wire.context, CurveServer(SERVER, None)) as authenticator:
        router = wire.listen(zmq.ROUTER, unknown)

        assert wire.handshake(wire.connect(zmq.DEALER, router, client(ALICE)))[0] & FAILED
        assert authenticator.refused == 1
        assert unknown.domain in caplog.text
        with pytest.raises(ValueError, match="not given to this authenticator"):
            authenticator.allow(ALICE.public, unknown)


def test_servers_side_by_side_have_lists_of_their_own(wire: Wire) -> None:
    one, other = CurveServer(SERVER, {ALICE.public}), CurveServer(SERVER, {BOB.public})
    with Authenticator(wire.context, one, other) as authenticator:
        for server, guest, stranger in ((one, ALICE, BOB), (other, BOB, ALICE)):
            router = wire.listen(zmq.ROUTER, server)
            assert wire.handshake(wire.connect(zmq.DEALER, router, client(stranger)))[0] & FAILED
            wire.connect(zmq.DEALER, router, client(guest))
            assert receive(router)[1:] == [b"hello"]

        with pytest.raises(ValueError, match="several servers"):
            authenticator.allow(ALICE.public)
        authenticator.allow(ALICE.public, other)
        wire.connect(zmq.DEALER, router, client(ALICE))
        assert receive(router)[1:] == [b"hello"]
        authenticator.revoke(ALICE.public)  # everywhere
        assert wire.handshake(wire.connect(zmq.DEALER, router, client(ALICE)))[0] & FAILED


def test_a_second_authenticator_in_a_context_is_refused(wire: Wire) -> None:
    with Authenticator(wire.context), pytest.raises(RuntimeError, match="one serves all"):
        Authenticator(wire.context).start()


# --- without encryption, in the same context --------------------------------------------------------------


def test_an_endpoint_without_encryption_works_beside_one_with(wire: Wire) -> None:
    server = CurveServer(SERVER, {ALICE.public})
    with Authenticator(wire.context, server) as authenticator:
        closed, plain = wire.listen(zmq.ROUTER, server), wire.listen(zmq.ROUTER)
        wire.connect(zmq.DEALER, plain)
        wire.connect(zmq.DEALER, closed, client(ALICE))

        assert receive(plain)[1:] == receive(closed)[1:] == [b"hello"]
        assert (authenticator.allowed, authenticator.refused) == (1, 0)


@pytest.mark.parametrize("domain", [b"", b"another", b"\xff"])
def test_libzmq_asks_about_a_plain_socket_only_if_it_has_a_domain(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, domain: bytes
) -> None:
    questions = []
    real = Authenticator._answer

    def spying(self: Authenticator, question: list[bytes]) -> list[bytes]:
        questions.append((question[2], question[5]))
        return real(self, question)

    monkeypatch.setattr(Authenticator, "_answer", spying)
    with Authenticator(wire.context, CurveServer(SERVER, ())) as authenticator:
        router = wire._socket(wire.context, zmq.ROUTER)
        if domain:
            router.set(zmq.ZAP_DOMAIN, domain)
        router.bind("tcp://127.0.0.1:0")
        wire.connect(zmq.DEALER, router)

        assert receive(router)[1:] == [b"hello"]
        assert questions == ([(domain, b"NULL")] if domain else [])
        assert (authenticator.allowed, authenticator.refused) == (0, 0)


def test_a_plain_socket_with_the_domain_of_a_server_lets_nobody_in(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    server = CurveServer(SERVER, None)
    with Authenticator(wire.context, server) as authenticator:
        router = wire._socket(wire.context, zmq.ROUTER)
        router.set(zmq.ZAP_DOMAIN, server.domain.encode())
        router.bind("tcp://127.0.0.1:0")

        assert wire.handshake(wire.connect(zmq.DEALER, router))[0] & FAILED
        assert authenticator.refused == 1
        assert "(NULL)" in caplog.text


# --- while it runs ----------------------------------------------------------------------------------------


def test_a_revoked_key_is_refused_when_it_comes_again_and_an_allowed_one_is_let_in(wire: Wire) -> None:
    server = CurveServer(SERVER, {ALICE.public})
    with Authenticator(wire.context, server) as authenticator:
        router = wire.listen(zmq.ROUTER, server)
        dealer = wire.connect(zmq.DEALER, router, client(ALICE))
        receive(router)
        assert wire.handshake(dealer)[0] == zmq.EVENT_HANDSHAKE_SUCCEEDED

        authenticator.revoke(ALICE.public)
        dealer.send(b"the connection stays")
        receive(router)
        endpoint = router.get(zmq.LAST_ENDPOINT).decode()
        dealer.disconnect(endpoint)
        dealer.connect(endpoint)
        assert wire.handshake(dealer) == (zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400)

        authenticator.allow(ALICE.public)
        dealer.disconnect(endpoint)  # or connect() does nothing: libzmq does not know that it has gone
        dealer.connect(endpoint)
        dealer.send(b"back")
        assert receive(router)[1:] == [b"back"]
        assert (authenticator.allowed, authenticator.refused) == (2, 1)
        with pytest.raises(ValueError, match="3 characters"):
            authenticator.allow("key")
        with pytest.raises(ValueError, match="3 characters"):
            authenticator.revoke("key")


def test_a_refusal_is_told_once_for_each_key(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    server = CurveServer(SERVER, {ALICE.public})
    with Authenticator(wire.context, server) as authenticator:
        router = wire.listen(zmq.ROUTER, server)

        def refuse(keys: CurveKeys) -> None:
            assert wire.handshake(wire.connect(zmq.DEALER, router, client(keys)))[0] & FAILED

        carol = generate_keys()
        for keys in (BOB, carol, BOB, carol):
            refuse(keys)
        told = [(record.levelno, record.getMessage()) for record in caplog.records]
        assert [
            (level, key in text) for (level, text), key in zip(told, (BOB[0], carol[0]), strict=True)
        ] == [
            (logging.WARNING, True),
            (logging.WARNING, True),
        ]
        assert authenticator.refused == 4

        authenticator.allow(BOB.public)
        authenticator.revoke(BOB.public)
        refuse(BOB)
        assert len(caplog.records) == 3, "news, for it was allowed in between"


def test_made_up_keys_do_not_fill_the_log(
    wire: Wire, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zap, "_MOST_TOLD", 3)
    server = CurveServer(SERVER, ())
    with Authenticator(wire.context, server) as authenticator:
        router = wire.listen(zmq.ROUTER, server)
        for _ in range(6):
            assert wire.handshake(wire.connect(zmq.DEALER, router, client(generate_keys())))[0] & FAILED

        assert authenticator.refused == 6
        assert len(caplog.records) == 4
        assert "counted and not told" in caplog.records[-1].getMessage()


def test_a_question_that_makes_no_sense_is_refused_and_the_next_one_answered(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    with Authenticator(wire.context, CurveServer(SERVER, None)):
        asker = wire._socket(wire.context, zmq.REQ)
        asker.connect("inproc://zeromq.zap.01")
        for question in (
            [b"1.0"],
            [b"2.0", b"7", b"", b"", b"", b"NULL"],
            [b"1.0", b"7", b"", b"", b"", b"CURVE"],
        ):
            asker.send_multipart(question)
            assert receive(asker)[2] == b"500"
        asker.send_multipart([b"1.0", b"7", b"", b"127.0.0.1", b"", b"PLAIN", b"user", b"password"])
        assert receive(asker)[1:3] == [b"7", b"400"]

    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3 + [logging.WARNING]


def test_a_socket_that_is_open_already_cannot_be_secured(wire: Wire) -> None:
    router = wire.listen(zmq.ROUTER)
    with pytest.raises(RuntimeError, match="comes before bind"):
        CurveServer(SERVER, None).secure(router)
    with pytest.raises(RuntimeError, match="comes before bind"):
        client(ALICE).secure(wire.connect(zmq.DEALER, router))


def test_keys_that_cannot_work_are_told_before_they_are_used(wire: Wire) -> None:
    mixed = CurveKeys(ALICE.public, BOB.secret)
    socket = wire._socket(wire.clients, zmq.DEALER)
    with pytest.raises(ValueError, match="do not belong together"):
        client(mixed).secure(socket)
    with pytest.raises(ValueError, match="the server's key 'gateway'"):
        client(ALICE, server="gateway").secure(socket)
    with pytest.raises(ValueError, match="do not belong together"):
        CurveServer(mixed, None)


# --- the end ------------------------------------------------------------------------------------------------


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "penstock-authenticator"]


def test_start_and_stop_may_be_called_more_than_once(wire: Wire) -> None:
    authenticator = Authenticator(wire.context)
    authenticator.stop()
    for _ in range(50):  # the name must be free again at once
        authenticator.start()
        authenticator.start()
        assert len(threads()) == 1
        authenticator.stop()
        authenticator.stop()
        assert threads() == []


@pytest.mark.parametrize("end", ["term", "destroy"])
def test_the_context_may_end_first(end: str) -> None:
    context = zmq.Context()
    authenticator = Authenticator(context, CurveServer(SERVER, None))
    authenticator.start()
    thread = authenticator._thread
    assert thread is not None

    ended = threading.Thread(target=getattr(context, end), daemon=True)
    ended.start()
    ended.join(PATIENCE / 1000)
    assert not ended.is_alive(), f"{end}() hangs"
    thread.join(PATIENCE / 1000)
    assert not thread.is_alive()
    authenticator.stop()
    with pytest.raises(RuntimeError, match="has ended"):
        authenticator.start()


def test_stopping_amid_many_connections(wire: Wire) -> None:
    server = CurveServer(SERVER, {ALICE.public})
    authenticator = Authenticator(wire.context, server)
    authenticator.start()
    router = wire.listen(zmq.ROUTER, server)
    endpoint = router.get(zmq.LAST_ENDPOINT).decode()
    dealers = [wire._socket(wire.clients, zmq.DEALER) for _ in range(100)]
    for number, dealer in enumerate(dealers):
        client(ALICE if number % 2 else BOB).secure(dealer)
        dealer.connect(endpoint)
    ended = wire.handshake(router)[0]  # so the others are on their way

    authenticator.stop()

    assert ended & HANDSHAKES
    assert threads() == []
    assert authenticator.allowed <= 50
    assert authenticator.refused <= 50


def test_a_context_of_asyncio_will_do() -> None:
    server = CurveServer(SERVER, {ALICE.public})

    async def talk() -> list[bytes]:
        with (
            zmq.asyncio.Context() as context,
            Authenticator(context, server),
            context.socket(zmq.ROUTER) as router,
            context.socket(zmq.DEALER) as dealer,
        ):
            router.linger = dealer.linger = 0
            server.secure(router)
            client(ALICE).secure(dealer)
            router.bind("tcp://127.0.0.1:0")
            dealer.connect(router.get(zmq.LAST_ENDPOINT).decode())
            await dealer.send(b"hello")
            return await asyncio.wait_for(router.recv_multipart(), PATIENCE / 1000)

    assert asyncio.run(talk())[1:] == [b"hello"]


# --- where to listen ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:5556", "tcp://localhost:*", "tcp://[::1]:0"])
def test_loopback_needs_no_protection(endpoint: str) -> None:
    check_bind(endpoint, secure=False)


@pytest.mark.parametrize(
    "endpoint", ["tcp://*:5556", "tcp://0.0.0.0:5556", "tcp://10.0.0.1:5556", "tcp://[::]:5556"]
)
def test_anything_else_does_or_has_to_be_wanted(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"--curve.*tcp://127\.0\.0\.1:5556.*allow_remote=True.*--insecure"):
        check_bind(endpoint, secure=False)

    check_bind(endpoint, secure=True)
    check_bind(endpoint, secure=False, allow_remote=True)


@pytest.mark.parametrize("endpoint", ["ipc:///tmp/gateway", "inproc://gateway", "tcp://127.0.0.1", "5556"])
def test_what_is_no_endpoint_is_refused_with_or_without_protection(endpoint: str) -> None:
    for secure in (False, True):
        with pytest.raises(ValueError, match=r"tcp://127\.0\.0\.1:5556"):
            check_bind(endpoint, secure, allow_remote=True)
