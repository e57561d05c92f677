"""The dashboard's server: who is let in, what it answers, and how little it holds for a slow browser."""

from __future__ import annotations

import http.client
import itertools
import json
import logging
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from penstock.observe import BadToken, Dashboard, DashboardOptions, Hop, Snapshot, Verdict
from penstock.observe.dashboard.application import MOST_BROWSERS
from tests.aquifer.faults.rigs import eventually

TOKEN = "correct-horse-battery-staple"
PATIENCE = 60


def looks(hops: int = 3) -> Iterator[Snapshot]:
    """Snapshots of a chain whose counts grow."""
    for number in itertools.count(1):
        chain = tuple(
            Hop(
                id=f"hop-{at}",
                kind="stage",
                name=f"hop {at}",
                records_in=number * 10,
                records_out=number * 10,
            )
            for at in range(hops)
        )
        verdict = Verdict(sentence="Nothing holds the flow up.")
        yield Snapshot(at=float(number), clock=float(number), hops=chain, verdict=verdict)


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return str(file)


def a_dashboard(hops: int = 3, interval: float = 0.05, **options: object) -> Dashboard:
    settings = DashboardOptions(**{"listen": "127.0.0.1:0", **options})  # type: ignore[arg-type]
    return Dashboard(looks(hops).__next__, settings, title="a test", interval=interval)


class Answer:
    """What the server said."""

    def __init__(
        self, dashboard: Dashboard, method: str, path: str, body: str | None, headers: dict[str, str]
    ):
        url = urlsplit(dashboard.url)
        assert url.hostname is not None
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            self.status, self.headers = response.status, response.headers
            self.text = response.read().decode()
        finally:
            connection.close()


def ask(
    dashboard: Dashboard, path: str, *, method: str = "GET", body: str | None = None, **headers: str
) -> Answer:
    return Answer(
        dashboard, method, path, body, {name.replace("_", "-"): each for name, each in headers.items()}
    )


class Events:
    """An event stream that the test reads as fast as it likes."""

    def __init__(self, dashboard: Dashboard, *, buffer: int | None = None) -> None:
        url = urlsplit(dashboard.url)
        self._socket = socket.socket()
        if buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._socket.settimeout(PATIENCE)
        self._socket.connect((url.hostname, url.port))
        self._socket.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        self._lines = self._socket.makefile("rb")

    @property
    def status(self) -> int:
        return int(self._lines.readline().split()[1])

    def next(self, event: str) -> dict[str, object]:
        wanted = f"event: {event}\n".encode()
        while (line := self._lines.readline()) != wanted:
            assert line, "the stream has ended"
        data = self._lines.readline()
        read: dict[str, object] = json.loads(data.removeprefix(b"data: "))
        return read

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def clock_of(update: dict[str, object]) -> float:
    snapshot = update["snapshot"]
    assert isinstance(snapshot, dict)
    return float(snapshot["clock"])


# ---------------------------------------------------------------- what it answers
def test_the_first_event_is_the_history_and_then_come_updates_with_rates() -> None:
    with a_dashboard() as dashboard:
        events = Events(dashboard)
        history = events.next("history")
        first, second = events.next("update"), events.next("update")
        events.close()

    assert set(history) == {"instance", "clock", "hops"}
    assert first["instance"] == history["instance"]
    assert clock_of(second) > clock_of(first)
    rates = second["rates"]
    assert isinstance(rates, list)
    assert [(each["hop"], each["records_out"]) for each in rates] == [(f"hop-{at}", 10.0) for at in range(3)]


def test_every_answer_has_the_strict_headers_and_no_script_stands_in_the_page() -> None:
    with a_dashboard() as dashboard:
        answers = [ask(dashboard, path) for path in ("/", "/dashboard.js", "/uplot/LICENSE", "/no-such-file")]

    assert [each.status for each in answers] == [200, 200, 200, 404]
    for each in answers:
        policy = each.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert each.headers["x-content-type-options"] == "nosniff"
        assert each.headers["server"] is None
    page = answers[0].text
    assert page.count("<script") == page.count("<script src=")
    assert "style=" not in page
    assert "onclick" not in page


@pytest.mark.parametrize("path", ["/../access.py", "/page/index.html", "/index.html", "/%2e%2e/server.py"])
def test_only_the_files_of_the_page_are_served(path: str) -> None:
    with a_dashboard() as dashboard:
        assert ask(dashboard, path).status == 404


def test_what_is_wrong_with_the_source_is_shown_and_the_server_stays() -> None:
    def look() -> Snapshot:
        raise ConnectionError("no answer from tcp://127.0.0.1:5556")

    with Dashboard(look, DashboardOptions(listen="127.0.0.1:0"), interval=0.05) as dashboard:
        events = Events(dashboard)
        update = events.next("update")
        events.close()

    assert update["trouble"] == "no answer from tcp://127.0.0.1:5556"


# ---------------------------------------------------------------- who is let in
def test_a_foreign_host_name_is_refused() -> None:
    with a_dashboard(names=("proxy.example",)) as dashboard:
        refused = [
            ask(dashboard, "/", Host=host) for host in ("evil.example", "evil.example:80", "10.1.2.3", "")
        ]
        welcome = [
            ask(dashboard, "/", Host=host)
            for host in ("localhost:99", "127.0.0.1", "[::1]:5580", "proxy.example", "LOCALHOST.")
        ]

    assert {each.status for each in refused} <= {400, 421}
    assert "--dashboard-name" in refused[0].text
    assert {each.status for each in welcome} == {200}


def test_without_the_token_there_is_a_form_and_no_figure(token_file: str) -> None:
    with a_dashboard(token_file=token_file) as dashboard:
        page = ask(dashboard, "/")
        events = ask(dashboard, "/events")
        snapshot = ask(dashboard, "/snapshot.json")
        wrong = ask(dashboard, "/snapshot.json", Authorization=f"Bearer {TOKEN}x")
        forged = ask(
            dashboard, "/snapshot.json", Cookie=f"penstock-{urlsplit(dashboard.url).port}=99999999999.00.ab"
        )
        in_url = ask(dashboard, f"/snapshot.json?token={TOKEN}")

    assert page.status == 401
    assert 'name="token"' in page.text
    assert [each.status for each in (events, snapshot, wrong, forged, in_url)] == [401] * 5


def test_the_token_in_a_header_is_enough_for_a_program(token_file: str) -> None:
    with a_dashboard(token_file=token_file) as dashboard:
        answers = [ask(dashboard, "/", Authorization=f"{scheme} {TOKEN}") for scheme in ("Bearer", "bearer")]

    assert [each.status for each in answers] == [200, 200]


def test_the_form_gives_a_cookie_that_is_not_the_token_and_no_log_has_either(
    token_file: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    with a_dashboard(token_file=token_file) as dashboard:
        wrong = ask(dashboard, "/login", method="POST", body="token=guess", **form)
        right = ask(dashboard, "/login", method="POST", body=f"token={TOKEN}", **form)
        cookie = right.headers["set-cookie"]
        page = ask(dashboard, "/", Cookie=cookie.partition(";")[0])
        too_long = ask(dashboard, "/login", method="POST", body="token=" + "x" * 10_000, **form)

    assert (wrong.status, right.status, page.status, too_long.status) == (401, 303, 200, 413)
    assert right.headers["location"] == "/"
    assert "HttpOnly; SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert TOKEN not in caplog.text
    assert cookie.partition("=")[2].partition(";")[0] not in caplog.text


def test_a_cookie_ends_and_a_changed_one_is_refused(token_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.endpoint import Endpoint
    from penstock.observe.dashboard.access import VisitorAccess

    access = VisitorAccess(Endpoint("127.0.0.1", 5580), token=TOKEN, encrypted=False)
    other = VisitorAccess(Endpoint("127.0.0.1", 5580), token=TOKEN[::-1], encrypted=False)
    cookie = access.cookie()

    assert access.accepts_cookie(cookie)
    assert not other.accepts_cookie(cookie)
    assert not access.accepts_cookie(f"9{cookie}")
    assert not any(access.accepts_cookie(each) for each in (None, "", ".", "..", "é.b.c"))
    later = float(cookie.partition(".")[0]) + 1
    monkeypatch.setattr("penstock.observe.dashboard.access.time.time", lambda: later)
    assert not access.accepts_cookie(cookie)


def test_off_loopback_a_token_is_needed() -> None:
    with pytest.raises(BadToken, match="--dashboard-token"):
        a_dashboard(listen="0.0.0.0:0")


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [("short", 0o600, "needs 16"), (TOKEN, 0o644, "chmod 600"), ("a b" * 10, 0o600, "ASCII")],
)
def test_a_token_that_protects_nothing_is_refused_and_not_shown(
    tmp_path: Path, text: str, mode: int, message: str
) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)

    with pytest.raises(BadToken, match=message) as caught:
        a_dashboard(token_file=str(file))
    assert text not in str(caught.value)


def test_a_token_can_come_through_a_pipe_and_one_that_never_comes_does_not_hold_up_the_start(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    with pipe.open("r+b", buffering=0), pytest.raises(BadToken, match="nothing came within 3 s"):
        a_dashboard(token_file=str(pipe))
    reading, writing = os.pipe()
    os.write(writing, f"{TOKEN}\n".encode())
    os.close(writing)
    with a_dashboard(token_file=f"/dev/fd/{reading}") as dashboard:
        os.close(reading)
        # It is 503 until there is a first snapshot.
        eventually(lambda: ask(dashboard, "/snapshot.json", Authorization=f"Bearer {TOKEN}").status == 200)


def test_tls_is_spoken_with_a_certificate(tmp_path: Path, token_file: str) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    with a_dashboard(listen="localhost:0", token_file=token_file, tls_cert=cert, tls_key=key) as dashboard:
        assert dashboard.url.startswith("https://localhost:")
        connection = http.client.HTTPSConnection(
            "localhost", urlsplit(dashboard.url).port, context=context, timeout=PATIENCE
        )
        connection.request("POST", "/login", f"token={TOKEN}")
        response = connection.getresponse()
        response.read()
        connection.close()

    assert response.status == 303
    assert "; Secure" in response.headers["set-cookie"]


# ---------------------------------------------------------------- bounds
def test_a_slow_browser_is_held_to_the_latest_update(monkeypatch: pytest.MonkeyPatch) -> None:
    # A browser that takes nothing for half a minute is given up, and a busy machine may need that long here.
    monkeypatch.setattr("penstock.observe.dashboard.application._STALLED", PATIENCE)
    with a_dashboard(hops=150, interval=0.005) as dashboard:
        quick, slow = Events(dashboard), Events(dashboard, buffer=4096)
        slow.next("history")
        # Long enough for the buffers of the line to be full many times over: one update has 20 KB.
        while clock_of(quick.next("update")) < 400:
            pass
        clocks = [clock_of(slow.next("update")) for _ in range(120)]
        quick.close()
        slow.close()

    assert clocks == sorted(set(clocks)), "it never goes back"
    assert max(b - a for a, b in itertools.pairwise(clocks)) > 10, (
        "what the browser was too slow for is left out"
    )


def test_only_so_many_browsers_watch_and_a_place_is_free_when_one_leaves() -> None:
    with a_dashboard() as dashboard:
        watching = [Events(dashboard) for _ in range(MOST_BROWSERS)]
        for each in watching:
            each.next("history")
        refused = ask(dashboard, "/events")
        told = ask(dashboard, "/snapshot.json")
        watching.pop().close()
        while True:  # until the server has seen that it left
            another = Events(dashboard)
            if another.status == 200:
                break
            another.close()
        for each in (*watching, another):
            each.close()

    assert refused.status == 503
    assert told.headers["x-penstock-full"] == "1"


def test_closing_ends_the_streams_and_frees_the_address() -> None:
    with a_dashboard() as dashboard:
        address = dashboard.url.removeprefix("http://").rstrip("/")
        events = Events(dashboard)
        events.next("update")
    with pytest.raises(AssertionError, match="the stream has ended"):
        events.next("something that never comes")
    events.close()

    with a_dashboard(listen=address) as again:
        assert ask(again, "/").status == 200


def test_closing_is_quiet_while_a_browser_does_not_read(caplog: pytest.LogCaptureFixture) -> None:
    with a_dashboard(hops=150, interval=0.005) as dashboard:
        quick, stalled = Events(dashboard), Events(dashboard, buffer=4096)
        stalled.next("history")
        while clock_of(quick.next("update")) < 300:  # the line is full by then
            pass
        quick.close()
    stalled.close()

    assert [each.getMessage() for each in caplog.records] == []


def test_what_is_not_http_is_refused_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with a_dashboard() as dashboard:
        with socket.create_connection(("127.0.0.1", urlsplit(dashboard.url).port), PATIENCE) as peer:
            peer.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            while peer.recv(4096):
                pass
        assert ask(dashboard, "/").status == 200

    assert [each.getMessage() for each in caplog.records] == []


def test_an_address_that_is_taken_is_told_in_a_sentence() -> None:
    with a_dashboard() as dashboard:
        taken = dashboard.url.removeprefix("http://").rstrip("/")
        with pytest.raises(OSError, match=r"cannot listen at .*; choose another address") as caught:
            a_dashboard(listen=taken).start()

    assert caught.value.errno is not None


def test_no_descriptor_and_no_thread_is_left() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    threads, before = set(threading.enumerate()), descriptors()
    for _ in range(3):
        with a_dashboard() as dashboard:
            assert ask(dashboard, "/").status == 200

    # The rest of an earlier test may still come and go in this process.
    eventually(lambda: set(threading.enumerate()) <= threads and descriptors() <= before)
