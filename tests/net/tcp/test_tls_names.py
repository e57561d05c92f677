"""One server with several names: which certificate it shows, and which one its clients have to show."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net import ConnectionAborted, HandshakeFailed, TcpClient, TcpServer
from penstock.net.tls import asked_name
from tests.net.tcp.certificates import Authority, echoed
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import settled

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
CLIENT = TcpClient.create().host("localhost")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


def folder(above: Path, name: str) -> Path:
    made = above / name
    made.mkdir()
    return made


@on_each_loop
@pytest.mark.parametrize("strict", ["the server", "the name"])
def test_the_context_of_a_name_decides_who_has_to_show_a_certificate(
    kind: str, strict: str, authority: Authority, tmp_path: Path
) -> None:
    """Of the server as a whole and of one name, either one asks for certificates; the other name is open."""
    clients = Authority.make(tmp_path)
    asks = authority.context("strict.example.org")
    asks.load_verify_locations(clients.trust)
    asks.verify_mode = ssl.CERT_REQUIRED
    plain = authority.context("open.example.org")
    if strict == "the server":
        server = ECHO.secure(asks, names={"open.example.org": plain})
    else:
        server = ECHO.secure(plain, names={"strict.example.org": asks})
    stranger = Authority.make(folder(tmp_path, "stranger"))
    good = clients.certificate("client.example.org")
    bad = stranger.certificate("client.example.org")

    async def main() -> None:
        async with await server.bind() as running:

            async def served_as(name: str, certificate: Path | None) -> bool:
                client = CLIENT.secure(
                    trust=authority.trust, server_hostname=name, certificate=certificate
                ).port(running.port)
                try:
                    return await echoed(client) == b"hello"
                except (HandshakeFailed, ConnectionAborted):
                    return False

            assert await served_as("strict.example.org", good)
            assert not await served_as("strict.example.org", None)
            assert not await served_as("strict.example.org", bad)
            for certificate in good, bad, None:
                assert await served_as("open.example.org", certificate)
        await settled()

    run_on(kind, main())


@on_each_loop
def test_an_authority_for_clients_holds_for_every_name(
    kind: str, authority: Authority, tmp_path: Path
) -> None:
    clients, others = Authority.make(tmp_path), Authority.make(folder(tmp_path, "others"))
    own = authority.context("own.example.org")
    own.load_verify_locations(others.trust)
    own.verify_mode = ssl.CERT_REQUIRED
    names = {"b.example.org": authority.context("b.example.org"), "own.example.org": own}
    certificate = authority.certificate("localhost")
    server = ECHO.secure(certificate=certificate, client_authority=clients.trust, names=names)
    ours, theirs = clients.certificate("client"), others.certificate("client")

    async def main() -> None:
        async with await server.bind() as running:

            async def served_as(name: str, shown: Path | None) -> bool:
                client = CLIENT.secure(trust=authority.trust, server_hostname=name, certificate=shown)
                try:
                    return await echoed(client.port(running.port)) == b"hello"
                except (HandshakeFailed, ConnectionAborted):
                    return False

            for name in "localhost", "b.example.org":
                assert [await served_as(name, shown) for shown in (ours, theirs, None)] == [
                    True,
                    False,
                    False,
                ]
            at_own = [await served_as("own.example.org", shown) for shown in (ours, theirs, None)]
            assert at_own == [False, True, False]
        await settled()

    run_on(kind, main())


def test_a_context_is_not_made_to_trust_more_clients_than_it_was_given_for(
    authority: Authority, tmp_path: Path
) -> None:
    certificate = authority.certificate("localhost")
    one, two = Authority.make(tmp_path), Authority.make(folder(tmp_path, "two"))

    def secured(context: ssl.SSLContext, clients: Authority) -> TcpServer:
        return ECHO.secure(certificate=certificate, client_authority=clients.trust, names={"b": context})

    shared = authority.context("b")
    secured(shared, one)
    secured(shared, one)
    with pytest.raises(ValueError, match="already trusts the clients of another server"):
        secured(shared, two)
    trusting = authority.context("b")
    trusting.load_verify_locations(two.trust)
    with pytest.raises(ValueError, match="set its verify_mode"):
        secured(trusting, one)


@on_each_loop
def test_two_servers_with_one_context_have_names_of_their_own(kind: str, authority: Authority) -> None:
    context, other = authority.context("localhost"), authority.context("a.example.org")

    async def main() -> None:
        named = ECHO.secure(context, names={"a.example.org": other})
        async with await named.bind() as one, await ECHO.secure(context).bind() as two:
            client = CLIENT.secure(trust=authority.trust, server_hostname="a.example.org")
            assert await echoed(client.port(one.port)) == b"hello"
            with pytest.raises(HandshakeFailed, match="Hostname mismatch"):
                await echoed(client.port(two.port))
        await settled()

    run_on(kind, main())


def hello_for(name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def test_the_name_is_found_in_a_hello_however_it_is_cut() -> None:
    hello = hello_for("a.example.org")
    assert asked_name(hello) == "a.example.org"
    assert asked_name(hello + b"more") == "a.example.org"
    for end in range(len(hello)):
        with pytest.raises(EOFError):
            asked_name(hello[:end])
    body = hello[5:]
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    spread = b"".join(hello[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    assert asked_name(spread) == "a.example.org"
    assert asked_name(hello_for(None)) is None


HELLO = hello_for("a.example.org")


@given(st.binary(max_size=64), st.integers(0, 600), st.integers(0, 255))
def test_what_is_no_hello_has_no_name_and_does_no_harm(noise: bytes, at: int, byte: int) -> None:
    spoilt = bytearray(HELLO)
    spoilt[at % len(spoilt)] = byte
    for data in noise, bytes([22, 3, 1]) + noise, bytes(spoilt):
        try:
            name = asked_name(data)
        except EOFError:
            continue
        assert name is None or isinstance(name, str)
