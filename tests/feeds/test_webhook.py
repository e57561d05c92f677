"""A webhook: 2xx means in the journal, a key is stored once, and a full log makes its senders wait."""

import asyncio
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

from penstock import feeds, idle_connections
from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal, SqliteJournal
from penstock.feeds import BadFeed, Delivery, FeedOptions, FeedUnavailable, WebhookFeed, http_listener
from penstock.feeds.rendezvous import Rendezvous
from tests.cli.running import PATIENCE
from tests.feeds.reading import Reader
from tests.required_tools import require_tool

URL = "webhook+http://127.0.0.1:0/in"


@contextmanager
def served(
    parameters: str = "", journal: SqliteJournal | None = None, **options: Any
) -> Iterator[tuple[httpx2.Client, Gateway, WebhookFeed]]:
    """A gateway with a webhook, and a client for it."""
    chosen = FeedOptions(**options)
    with feeds.open(URL + parameters, chosen) as feed:
        assert isinstance(feed, WebhookFeed)
        with (
            Gateway(feed, "tcp://127.0.0.1:0", journal=journal, codec=chosen.codec) as gateway,
            httpx2.Client(base_url=f"http://127.0.0.1:{feed.port}", timeout=PATIENCE) as client,
        ):
            yield client, gateway, feed


def stored_in(gateway: Gateway, codec: str = "bytes") -> list[Any]:
    head = gateway.status().head
    return list(AquiferPublisher(gateway.endpoint, codec=codec, stop=head).flux()) if head else []


def test_headers_without_an_end_are_refused_whatever_parser_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """uvicorn prefers httptools, which has no limit for them."""
    monkeypatch.setitem(sys.modules, "httptools", ModuleType("httptools"))
    monkeypatch.delitem(sys.modules, "uvicorn.protocols.http.auto", raising=False)
    with served() as (client, _, feed):
        with socket.create_connection(("127.0.0.1", feed.port), timeout=PATIENCE) as sender:
            sender.sendall(b"POST /in HTTP/1.1\r\nHost: here\r\nX-Long: ")
            with suppress(ConnectionError):
                for _ in range(64):
                    sender.sendall(b"x" * 65_536)
            with suppress(ConnectionError):
                assert sender.recv(1000).startswith(b"HTTP/1.1 400 ")
                assert sender.recv(1000) in (b"", b"Invalid HTTP request received.")
        assert client.post("/in", content=b"a line").status_code == 200


@pytest.mark.parametrize(
    ("kind", "body", "records"),
    [
        ("application/json", b'{"a": 1}', [b'{"a": 1}']),
        ("application/json", b'[{"a": 1}, 2, "three"]', [b'{"a": 1}', b"2", b'"three"']),
        ("application/cloudevents+json; charset=utf-8", b'{"a":1}', [b'{"a":1}']),
        ("application/x-ndjson", b'{"a": 1}\n{"a": 2}', [b'{"a": 1}', b'{"a": 2}']),
        ("text/plain", b"one\r\ntwo\n", [b"one", b"two"]),
        ("text/csv", b"a\n" + b"x" * 200_000, [b'{"a":"' + b"x" * 200_000 + b'"}']),
        ("text/csv", b'name,n\n"a,b",1\n\nc,2\n', [b'{"name":"a,b","n":"1"}', b'{"name":"c","n":"2"}']),
        ("application/octet-stream", b"\x00\n\xff", [b"\x00\n\xff"]),
        ("", b"as it is", [b"as it is"]),
        ("application/json", b"[]", []),
        ("", b"", []),
    ],
)
def test_a_body_becomes_records_as_its_type_says(kind: str, body: bytes, records: list[bytes]) -> None:
    with served() as (client, gateway, _):
        answer = client.post("/in", content=body, headers={"content-type": kind} if kind else {})
        assert (answer.status_code, answer.json()) == (200, {"stored": len(records)})
        assert stored_in(gateway) == records


def test_a_codec_makes_elements_of_records() -> None:
    with served(codec="json") as (client, gateway, _):
        assert client.post("/in", json=[{"a": 1}, {"a": 2}]).json() == {"stored": 2}
        rows = client.post("/in", content=b"x,y\n1,2\n", headers={"content-type": "text/csv"})
        assert rows.json() == {"stored": 1}
        assert stored_in(gateway, "json") == [{"a": 1}, {"a": 2}, {"x": "1", "y": "2"}]


def test_a_body_may_be_compressed() -> None:
    with served() as (client, gateway, _):
        packed = gzip.compress(b"one\ntwo\n")
        answer = client.post(
            "/in", content=packed, headers={"content-type": "text/plain", "content-encoding": "gzip"}
        )
        assert answer.json() == {"stored": 2}
        assert stored_in(gateway) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        ("application/json", b'{"a": ', "the body is not JSON: Input data was truncated"),
        ("application/json", b'[{"a": 1}, nonsense]', "the body is not JSON: JSON is malformed"),
        ("application/x-ndjson", b'{"a": 1}\nnonsense\n', "line 2"),
        ("text/csv", b"a,b\n1,2\n3\n", "line 3: it has 1 fields, and the header has 2"),
    ],
)
def test_a_wrong_record_refuses_its_request_and_no_other(kind: str, body: bytes, why: str) -> None:
    with served(codec="json") as (client, gateway, _):
        refused = client.post("/in", content=body, headers={"content-type": kind})
        assert refused.status_code == 400
        assert why in refused.json()["error"]
        assert "nothing of this request was stored" in refused.json()["error"]
        assert client.post("/in", json={"fine": True}).status_code == 200
        assert stored_in(gateway, "json") == [{"fine": True}]


def test_wrong_records_can_be_skipped() -> None:
    with served(codec="json", on_bad_line="skip") as (client, gateway, feed):
        lines = {"content-type": "application/x-ndjson"}
        assert client.post("/in", content=b"1\nnonsense\n2\n", headers=lines).json() == {"stored": 2}
        assert stored_in(gateway, "json") == [1, 2]
        assert feed.skipped == 1


def test_bodies_that_are_too_large_methods_and_paths_are_refused() -> None:
    with served("?max-body=1K") as (client, gateway, _):
        assert client.post("/in", content=b"x" * 1024).status_code == 200
        assert client.post("/in", content=b"x" * 1025).status_code == 413
        bomb = gzip.compress(b"x" * 100_000)
        assert client.post("/in", content=bomb, headers={"content-encoding": "gzip"}).status_code == 413
        assert client.post("/in", content=b"x", headers={"idempotency-key": "k" * 256}).status_code == 400
        assert client.get("/in").status_code == 405
        assert client.post("/elsewhere").status_code == 404
        assert gateway.status().head == 1


def test_a_key_that_was_seen_is_answered_again_and_stored_once_also_after_a_restart(tmp_path: Path) -> None:
    for repeated in (False, True, True):
        with served(journal=SqliteJournal(tmp_path / "log.db")) as (client, gateway, _):
            for _ in range(2):
                answer = client.post("/in", json=[1, 2], headers={"idempotency-key": "a"})
                assert answer.json() == {"stored": 2} | ({"repeated": True} if repeated else {})
                repeated = True
            other = client.post("/in", json=[3], headers={"idempotency-key": "a"})
            assert other.status_code == 422
            assert gateway.status().head == 2


def test_keys_are_bounded_and_the_oldest_are_forgotten(tmp_path: Path) -> None:
    with served("?keys=3", SqliteJournal(tmp_path / "log.db")) as (client, _, _feed):
        for number in range(10):
            client.post("/in", json=[number], headers={"idempotency-key": str(number)})
    with closing(SqliteJournal(tmp_path / "log.db")) as journal:
        assert sorted(mark.split()[0] for mark in journal.marks.values()) == ["7", "8", "9"]
    with served("?keys=3", SqliteJournal(tmp_path / "log.db")) as (client, _, _feed):
        assert "repeated" in client.post("/in", json=[7], headers={"idempotency-key": "7"}).json()
        assert client.post("/in", json=[0], headers={"idempotency-key": "0"}).json() == {"stored": 1}


def test_two_requests_with_one_key_at_the_same_time_are_stored_once() -> None:
    with served() as (client, gateway, _):
        answers: list[dict[str, Any]] = []

        def post() -> None:
            answers.append(client.post("/in", json=[1], headers={"idempotency-key": "same"}).json())

        threads = [threading.Thread(target=post) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert [answer["stored"] for answer in answers] == [1] * 8
        assert sum("repeated" not in answer for answer in answers) == 1
        assert gateway.status().head == 1


def test_without_demand_a_request_waits_and_is_then_refused_and_not_kept() -> None:
    with feeds.open(f"{URL}?wait=0.3") as feed:
        assert isinstance(feed, WebhookFeed)
        reader = Reader()
        feed(0).subscribe(reader)
        with httpx2.Client(base_url=f"http://127.0.0.1:{feed.port}", timeout=PATIENCE) as client:
            refused = client.post("/in", json=1, headers={"idempotency-key": "k"})
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            reader.subscription.request(1)
            # The same key: it was not taken before, so it is stored now.
            assert client.post("/in", json=1, headers={"idempotency-key": "k"}).json() == {"stored": 1}
            assert reader.take(1) == [b"1"]
            assert reader.lines.empty()
        reader.subscription.cancel()


def test_idle_connections_do_not_keep_senders_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "_MOST_CONNECTIONS", 40)
    monkeypatch.setattr(idle_connections, "_LOOK", 0.2)
    with served() as (client, _, feed), ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", feed.port)))
        while is_kept_out(client):
            pass


def is_kept_out(client: httpx2.Client) -> bool:
    try:
        return client.post("/in", content=b"a\n", headers={"content-type": "text/plain"}).status_code == 503
    except httpx2.TransportError:
        return True  # The machine was so busy that it counted as idle.


def test_a_password_that_nobody_would_check_is_refused() -> None:
    with pytest.raises(BadFeed, match="token-file") as refused:
        feeds.open("webhook+http://user:secret@127.0.0.1:0/in")
    assert "secret@" not in str(refused.value)
    assert "user:secret" not in str(refused.value)


def test_a_request_that_waits_when_the_feed_is_closed_gets_503() -> None:
    with feeds.open(URL) as feed:
        assert isinstance(feed, WebhookFeed)
        reader = Reader()
        feed(0).subscribe(reader)
        curl = subprocess.Popen(
            ["curl", "-s", "-w", "%{http_code}", "-d", "x", f"http://127.0.0.1:{feed.port}/in"],
            stdout=subprocess.PIPE,
        )
        while not feed._rendezvous._offers:
            time.sleep(0.01)
        feed.close()
        answer, _ = curl.communicate(timeout=PATIENCE)
    assert answer.endswith(b"503")


def test_a_port_that_is_taken_and_a_wrong_parameter_are_told() -> None:
    with served() as (_, _, feed), pytest.raises(FeedUnavailable, match=r"cannot listen at 127\.0\.0\.1"):
        feeds.open(f"webhook+http://127.0.0.1:{feed.port}/in")
    with pytest.raises(BadFeed, match=r"'waits=…' is not known; after the \? there can be wait="):
        feeds.open(f"{URL}?waits=3")
    with pytest.raises(BadFeed, match="is not a size"):
        feeds.open(f"{URL}?max-body=big")
    with pytest.raises(BadFeed, match="TLS needs a certificate"):
        feeds.open("webhook+https://127.0.0.1:0/in")


@pytest.mark.parametrize(
    ("scheme", "secure"), [("webhook+http", "webhook+https://"), ("ws-listen", "wss-listen://")]
)
def test_a_certificate_without_tls_names_the_scheme_that_has_it(scheme: str, secure: str) -> None:
    with pytest.raises(BadFeed, match=f"a certificate is for TLS; write {re.escape(secure)}") as raised:
        feeds.open(f"{scheme}://127.0.0.1:0/in?certificate=x")
    assert secure.partition(":")[0] in feeds.known_schemes(), raised.value


@pytest.mark.parametrize("wrong", ["0123456789abcdef\n0123456789abcdef", "0123456789abcdef\N{SNOWMAN}"])
def test_a_token_that_no_header_can_have_is_refused(tmp_path: Path, wrong: str) -> None:
    token = tmp_path / "token"
    token.write_text(wrong, encoding="utf-8")
    with pytest.raises(BadFeed, match="one token, in one line"):
        feeds.open(f"{URL}?token-file={token}")


def test_off_loopback_needs_tls_and_a_token_or_the_word(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    with pytest.raises(BadFeed, match=r"can be reached from other machines.*--insecure"):
        feeds.open("webhook+http://0.0.0.0:0/in")
    with pytest.raises(BadFeed, match="can be reached from other machines"):
        feeds.open(f"webhook+http://0.0.0.0:0/in?token-file={token}")
    feeds.open("webhook+http://0.0.0.0:0/in", FeedOptions(allow_remote=True)).close()
    token.write_text("short")
    with pytest.raises(BadFeed, match="has 5 bytes; use at least 16"):
        feeds.open(f"{URL}?token-file={token}")


def test_with_a_token_nobody_else_is_let_in(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    with served(f"?token-file={token}") as (client, gateway, _):
        assert client.post("/in", content=b"x").status_code == 401
        wrong = client.post("/in", content=b"x", headers={"authorization": "Bearer 0123456789abcdeX"})
        assert wrong.status_code == 401
        right = {"authorization": "Bearer 0123456789abcdef"}
        assert client.post("/in", content=b"x", headers=right).status_code == 200
        assert gateway.status().head == 1


def test_a_certificate_makes_it_speak_tls(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    url = f"webhook+https://127.0.0.1:0/in?certificate={tmp_path}/cert.pem&key={tmp_path}/key.pem"
    with feeds.open(url) as feed, Gateway(feed, "tcp://127.0.0.1:0") as gateway:
        assert isinstance(feed, WebhookFeed)
        done = subprocess.run(
            ["curl", "-s", "--cacert", f"{tmp_path}/ca.pem", "-d", "x", f"https://localhost:{feed.port}/in"],
            capture_output=True,
            timeout=PATIENCE,
        )
        assert json.loads(done.stdout) == {"stored": 1}, done.stderr
        assert gateway.status().head == 1
    (tmp_path / "cert.pem").write_text("none")
    with pytest.raises(BadFeed, match=r"cannot serve https://127\.0\.0\.1"):
        feeds.open(url)


NODE = """
const [url, count] = [process.argv[1], Number(process.argv[2])];
(async () => {
  for (let n = 0; n < count; n++) {
    const headers = {'content-type': 'application/json', 'idempotency-key': `n${n}`};
    const answer = await fetch(url, {method: 'POST', headers, body: JSON.stringify([{n}])});
    console.log(answer.status, (await answer.json()).stored);
  }
})();
"""


def test_a_client_in_node_posts_records() -> None:
    node = require_tool("node", part="a webhook client in Node", install="apt-get install nodejs")
    with served() as (_, gateway, feed):
        done = subprocess.run(
            [node, "-e", NODE, f"http://127.0.0.1:{feed.port}/in", "20"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.stdout == "200 1\n" * 20, done.stderr
        assert stored_in(gateway) == [b'{"n":%d}' % number for number in range(20)]


@pytest.mark.slow
def test_a_slow_reader_holds_the_senders_and_nothing_is_dropped(tmp_path: Path) -> None:
    """The senders are never further ahead of the reader than the log and what was requested allow."""
    bound, total, portion = 500, 6000, 20
    journal = SqliteJournal(tmp_path / "log.db", max_records=bound)
    accepted, ahead = 0, 0
    lines = {"content-type": "text/plain"}
    counting = threading.Lock()
    with served(journal=journal) as (client, gateway, _):
        reader = Reader()
        AquiferPublisher(gateway.endpoint, id="slow").subscribe(reader)
        taken: list[bytes] = []

        def post(first: int) -> None:
            nonlocal accepted, ahead
            for start in range(first, total, 4 * portion):
                body = "".join(f"{n}\n" for n in range(start, start + portion))
                while client.post("/in", content=body, headers=lines).status_code == 429:
                    pass
                with counting:
                    accepted += portion
                    ahead = max(ahead, accepted - len(taken))

        senders = [threading.Thread(target=post, args=(portion * each,)) for each in range(4)]
        for sender in senders:
            sender.start()
        while len(taken) < total:
            reader.subscription.request(50)
            taken += reader.take(50)
            time.sleep(0.02)
        for sender in senders:
            sender.join(PATIENCE)
        reader.subscription.cancel()
    assert sorted(map(int, taken)) == list(range(total))
    # What the log holds, and what the reader has asked for and not noted yet.
    assert ahead <= bound + 4 * portion + 100


def test_requests_that_are_refused_do_not_cost_the_keys_that_are_stored() -> None:
    with feeds.open(f"{URL}?wait=0.05&keys=3") as feed:
        assert isinstance(feed, WebhookFeed)
        reader = Reader()
        feed(0).subscribe(reader)
        with httpx2.Client(base_url=f"http://127.0.0.1:{feed.port}", timeout=PATIENCE) as client:

            def post(key: str) -> httpx2.Response:
                return client.post("/in", json=[key], headers={"idempotency-key": key})

            reader.subscription.request(3)
            assert [post(key).json() for key in "abc"] == [{"stored": 1}] * 3
            assert [post(key).status_code for key in "defgh"] == [429] * 5
            assert [post(key).json() for key in "abc"] == [{"stored": 1, "repeated": True}] * 3
            reader.subscription.request(1)
            assert post("i").json() == {"stored": 1}
            assert post("a").status_code == 429, "the oldest key goes when a new one is stored"
            assert post("b").json() == {"stored": 1, "repeated": True}
        reader.subscription.cancel()


def test_a_sender_that_leaves_while_its_records_are_taken_has_not_withdrawn_them() -> None:
    async def scenario() -> list[str]:
        rendezvous = Rendezvous(asyncio.get_running_loop())
        withdrawn: list[str] = []
        deliveries = rendezvous._deliveries()
        for name, is_taken in (("left before", False), ("left meanwhile", True)):
            sender = asyncio.ensure_future(
                rendezvous.offer(Delivery([name]), None, partial(withdrawn.append, name))
            )
            await asyncio.sleep(0)
            if is_taken:
                assert (await anext(deliveries)).records == [name]
            sender.cancel()
            await asyncio.wait([sender])
        await deliveries.aclose()
        return withdrawn

    assert asyncio.run(scenario()) == ["left before"]


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        ("application/json", b"[" * 200_000 + b"]" * 200_000, "nested too deeply"),
        ("application/json", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        ("text/csv", b"a,b,a\n1,2,3\n", "the header has 'a' twice"),
    ],
)
def test_a_body_that_cannot_become_records_is_the_fault_of_its_sender(
    kind: str, body: bytes, why: str
) -> None:
    with served() as (client, gateway, _):
        refused = client.post("/in", content=body, headers={"content-type": kind})
        assert refused.status_code == 400
        assert why in refused.json()["error"]
        assert gateway.status().head == 0


@pytest.mark.parametrize("scheme", ["webhook+http", "ws-listen"])
def test_an_address_without_a_port_is_refused(scheme: str) -> None:
    with pytest.raises(BadFeed, match="names no port to listen at"):
        feeds.open(f"{scheme}://127.0.0.1/in")


@pytest.mark.parametrize(
    "url",
    [
        "webhook+http://127.0.0.1:0/in?token=hush",
        "ws://127.0.0.1/in#access_token=hush",
        "webhok+http://me:hush@127.0.0.1/in",
        "tcp://me:hush@*:1",
        "ws://me:a/hush@127.0.0.1:x/in",
        "webhook+http://127.0.0.1:0/in?pasword=hush",
        "ws://127.0.0.1/in#hi=hush",
        "wss-listen://127.0.0.1:1/in?hello=hush",
        "mqtt://127.0.0.1/t?qos=3&passwrd=hush",
    ],
)
def test_a_message_about_a_wrong_address_does_not_tell_a_secret(url: str) -> None:
    with pytest.raises(BadFeed) as raised:
        feeds.open(url)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["http://me:hush@127.0.0.1/x", "sse+http://127.0.0.1/x?api_key=hush", "ws://me:12/hush@host/in"]
)
def test_the_name_of_a_feed_does_not_tell_a_secret(url: str) -> None:
    with feeds.open(url) as feed:
        assert "hush" not in feed.name


@pytest.mark.parametrize("bounds", [{"max_records": 10}, {"max_bytes": 50}])
def test_a_request_that_is_larger_than_the_log_is_refused(bounds: dict[str, int]) -> None:
    journal = MemoryJournal(**bounds)
    with (
        feeds.open("webhook+http://127.0.0.1:0/in") as feed,
        Gateway(feed, "tcp://127.0.0.1:0", journal=journal) as gateway,
    ):
        assert isinstance(feed, WebhookFeed)
        address, lines = f"http://127.0.0.1:{feed.port}/in", {"content-type": "text/plain"}
        refused = httpx2.post(address, content=b"record\n" * 11, headers=lines, timeout=PATIENCE)
        assert refused.status_code == 413
        assert "send fewer at a time" in refused.json()["error"]
        taken = httpx2.post(address, content=b"record\n" * 5, headers=lines, timeout=PATIENCE)
        assert taken.json() == {"stored": 5}
        assert gateway.status().head == 5


def test_a_pipe_as_a_token_file_does_not_hold_up_the_start(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(BadFeed, match="nothing came"):
        feeds.open(f"webhook+http://127.0.0.1:0/in?token-file={path}")
    with pytest.raises(BadFeed, match="nothing came"), path.open("r+b", buffering=0):
        feeds.open(f"ws://127.0.0.1:1/in#token-file={path}")
    with pytest.raises(BadFeed, match="too much for a secret"):
        feeds.open("mqtt://127.0.0.1/topic?password-file=/dev/zero")


def test_a_token_can_come_through_a_pipe() -> None:
    token, other = os.pipe()
    os.write(other, b"a token that is long enough\n")
    os.close(other)
    with feeds.open(f"webhook+http://127.0.0.1:0/in?token-file=/dev/fd/{token}"):
        os.close(token)


def test_a_second_gateway_can_read_the_same_feed() -> None:
    with feeds.open("webhook+http://127.0.0.1:0/in") as feed:
        assert isinstance(feed, WebhookFeed)
        for number in (1, 2):
            with Gateway(feed, "tcp://127.0.0.1:0") as gateway:
                answer = httpx2.post(
                    f"http://127.0.0.1:{feed.port}/in", content=b"%d" % number, timeout=PATIENCE
                )
                assert answer.status_code == 200
                assert stored_in(gateway) == [b"%d" % number]


def test_bodies_that_are_still_arriving_do_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST /in HTTP/1.1\r\nhost: here\r\ncontent-length: 1000\r\n\r\nhalf of it"
    with ExitStack() as opened, feeds.open(URL) as feed:
        assert isinstance(feed, WebhookFeed)
        with Gateway(feed, "tcp://127.0.0.1:0"):
            senders = [
                opened.enter_context(socket.create_connection(("127.0.0.1", feed.port))) for _ in range(50)
            ]
            for sender in senders:
                sender.sendall(head)
            assert feed.senders is not None
            deadline = time.monotonic() + PATIENCE
            while feed.senders.figures().total.open < len(senders):
                assert time.monotonic() < deadline
                threading.Event().wait(0.02)
        feed.close()
        for sender in senders:
            sender.settimeout(PATIENCE)
            assert sender.recv(100).startswith(b"HTTP/1.1 503 ")
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
