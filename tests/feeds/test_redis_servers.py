"""The servers that a Redis stream can be on: with TLS, with a password, a cluster, and what is not Redis."""

import logging
import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis
import trustme

from penstock import feeds
from penstock.feeds import BadFeed, BadRecord, FeedOptions
from tests.cli.running import PATIENCE
from tests.feeds.brokers import RedisServer, wait_until
from tests.feeds.reading import followed
from tests.free_ports import free_port


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secure(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, RedisServer]]:
    """A Redis that speaks TLS at this port, and wants a password."""
    folder = tmp_path_factory.mktemp("redis-tls")
    own = authority.issue_cert("127.0.0.1")
    own.private_key_and_cert_chain_pem.write_to_path(str(folder / "own.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    port, pem = free_port(), str(folder / "own.pem")
    files = ("--tls-cert-file", pem, "--tls-key-file", pem, "--tls-ca-cert-file", str(folder / "ca.pem"))
    with RedisServer(
        folder, "--tls-port", str(port), *files, "--tls-auth-clients", "no", "--requirepass", "right one"
    ) as server:
        client = server.client(password="right one")
        client.xadd("readings", {"value": "1"})
        client.close()
        yield port, server


def test_a_stream_is_read_over_tls_with_a_password_from_a_file(
    secure: tuple[int, RedisServer], authority: trustme.CA, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("right one\n")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    where = f"127.0.0.1:{secure[0]}/readings?group=g&field=value&password-file={tmp_path / 'password'}"
    with feeds.open(f"rediss://{where}&ca={tmp_path / 'ca.pem'}") as feed, followed(feed) as reader:
        assert reader.take(1) == [b"1"]
    plain = f"redis://127.0.0.1:{secure[1].port}/readings?group=h&field=value"
    with (
        feeds.open(f"{plain}&password-file={tmp_path / 'password'}") as feed,
        followed(feed) as reader,
    ):
        assert reader.take(1) == [b"1"]


def test_a_certificate_that_is_not_trusted_is_a_state_that_says_so(
    secure: tuple[int, RedisServer], tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    where = f"rediss://:right%20one@127.0.0.1:{secure[0]}/readings?group=g"
    for ca in ("", f"&ca={tmp_path / 'other.pem'}"):
        with feeds.open(f"{where}{ca}") as feed, followed(feed):
            wait_until(lambda feed=feed: feed.state.status == "down", "it trusts everybody")  # type: ignore[misc]
            assert "certificate verify failed" in str(feed.state)


def test_a_file_that_cannot_be_read_is_a_clear_error() -> None:
    with pytest.raises(BadFeed, match="cannot read the password-file /nowhere/at/all"):
        feeds.open("redis://h/s?group=g&password-file=/nowhere/at/all")
    with pytest.raises(BadFeed, match="there is no file /nowhere/at/all"):
        feeds.open("rediss://h/s?group=g&ca=/nowhere/at/all")


# ------------------------------------------------------------------------------- a cluster


@contextmanager
def cluster(folder: Path) -> Iterator[list[RedisServer]]:
    """Two nodes, each with half of the slots."""
    with ExitStack() as stack:
        # By default the nodes meet at ports that are higher by 10000, which may not exist.
        buses = [free_port(), free_port()]
        nodes = [
            stack.enter_context(
                RedisServer(folder / str(bus), "--cluster-enabled", "yes", "--cluster-port", str(bus))
            )
            for bus in buses
        ]
        clients = [node.client() for node in nodes]
        for client, first in zip(clients, (0, 8192), strict=True):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, first + 8191)
        clients[0].execute_command("CLUSTER", "SET-CONFIG-EPOCH", 1)
        clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, buses[1])
        for client in clients:
            wait_until(lambda client=client: _is_complete(client), "the nodes do not meet")  # type: ignore[misc]
            client.close()
        yield nodes


def _is_complete(client: redis.Redis) -> bool:
    return "cluster_state:ok" in str(client.execute_command("CLUSTER", "INFO"))


def test_a_stream_is_found_at_the_node_of_a_cluster_that_has_it_also_after_it_has_moved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.feeds"), cluster(tmp_path) as nodes:
        clients = [node.client() for node in nodes]
        slot = int(clients[0].execute_command("CLUSTER", "KEYSLOT", "readings"))
        there, here = (0, 1) if slot < 8192 else (1, 0)
        clients[there].xadd("readings", {"value": "1"})
        source = f"redis://127.0.0.1:{nodes[here].port}/readings?group=g&field=value"
        with feeds.open(source) as feed, followed(feed) as reader:
            assert reader.take(1) == [b"1"]
            assert feed.state.status == "up"
            assert caplog.text == ""
            wait_until(lambda: not clients[there].xpending("readings", "g")["pending"], "no XACK")
            # The stream goes to the other node, as when a cluster is rebalanced.
            target = str(clients[here].execute_command("CLUSTER", "MYID"), "ascii")
            origin = str(clients[there].execute_command("CLUSTER", "MYID"), "ascii")
            clients[here].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", origin)
            clients[there].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", target)
            clients[there].execute_command("MIGRATE", "127.0.0.1", nodes[here].port, "readings", 0, 5000)
            for number in (here, there):
                clients[number].execute_command("CLUSTER", "SETSLOT", slot, "NODE", target)
            clients[here].xadd("readings", {"value": "2"})
            assert reader.take(1) == [b"2"]
        for client in clients:
            client.close()


# ------------------------------------------------------------------------------- what is not Redis


def _bulk(*texts: str) -> bytes:
    return b"".join(b"$%d\r\n%s\r\n" % (len(text), text.encode()) for text in texts)


_ANSWERS = {
    b"XINFO": b"*6\r\n"
    + (_bulk("last-generated-id", "0-0", "first-entry") + b"_\r\n" + _bulk("last-entry") + b"_\r\n"),
    b"CONSUMERS": b"*0\r\n",
    b"EVALSHA": b"*2\r\n:0\r\n*1\r\n*2\r\n" + _bulk("1-0") + b"*1\r\n" + _bulk("alone"),
}


class _Odd(socketserver.BaseRequestHandler):
    """Answers as Redis does, except that an entry has a field and no value."""

    def handle(self) -> None:
        while asked := self.request.recv(10_000):
            for command in asked.split(b"\r\n*"):
                words = command.upper().split(b"\r\n")
                known = [answer for name, answer in _ANSWERS.items() if name in words]
                hello = b"%1\r\n+proto\r\n:3\r\n" if b"HELLO" in words else b"+OK\r\n"
                self.request.sendall(known[-1] if known else hello)


@contextmanager
def odd_server() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Odd) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def test_an_entry_with_a_field_without_a_value_is_not_one_of_redis() -> None:
    with odd_server() as port, feeds.open(f"redis://127.0.0.1:{port}/stream?group=g") as feed, followed(feed):
        wrong = "the entry 1-0 has a field without a value"
        wait_until(lambda: wrong in str(feed.state), f"the feed is {feed.state}")


@pytest.mark.parametrize("field", ["", "&field=value"])
def test_an_entry_with_a_field_without_a_value_is_a_bad_record_if_they_are_kept(field: str) -> None:
    options = FeedOptions(on_bad_line="dead-letter")
    with (
        odd_server() as port,
        feeds.open(f"redis://127.0.0.1:{port}/stream?group=g{field}", options) as feed,
        followed(feed) as reader,
    ):
        assert reader.take(1) == [
            BadRecord(b"alone", "it has a field without a value", "entry 1-0 of " + feed.name, None, None)
        ]


def test_an_entry_with_a_field_without_a_value_is_skipped_with_others_that_are_bad() -> None:
    options = FeedOptions(on_bad_line="skip")
    with (
        odd_server() as port,
        feeds.open(f"redis://127.0.0.1:{port}/stream?group=g", options) as feed,
        followed(feed),
    ):
        wait_until(lambda: feed.bad is not None and feed.bad.skipped == 1, f"the feed is {feed.state}")
        assert feed.state.status == "up"
