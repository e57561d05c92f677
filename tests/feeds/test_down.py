"""A feed whose server is not there is down: a state that others can see, and not an end."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway
from penstock.cli import main
from penstock.cli.errors import ExitCode
from penstock.feeds import FeedUnavailable, ResponseCut, Restart
from penstock.net.http import BadStatus
from penstock.observe import MetricsServer, Observer, why
from tests.cli.running import PATIENCE
from tests.feeds.reading import Reader
from tests.free_ports import free_port


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


class Answers(BaseHTTPRequestHandler):
    """Answers with what the server has been told to, one answer after the other."""

    def do_GET(self) -> None:
        answers = self.server.answers  # type: ignore[attr-defined]
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        self.send_header("content-length", str(len(body) + (7 if status == 299 else 0)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        return


def serve(port: int, *answers: tuple[int, bytes]) -> HTTPServer:
    server = HTTPServer(("127.0.0.1", port), Answers)
    server.answers = list(answers)  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_a_server_of_lines_that_comes_later() -> None:
    port = free_port()
    with feeds.open(f"tcp://127.0.0.1:{port}") as feed:
        assert str(feed.state).startswith("down: ")
        assert "Connection refused" in str(feed.state)
        assert feed.note is not None
        assert feed.note.startswith("the feed goes on looking for the server: cannot connect to tcp://")
        reader = Reader()
        feed(0).subscribe(reader)
        asking = threading.Thread(target=reader.subscription.request, args=(10,))
        asking.start()
        wait_until(lambda: feed.state.attempts >= 2)
        since = feed.state.since
        with socket.create_server(("127.0.0.1", port)) as server:
            sender, _ = server.accept()
            sender.sendall(b"one\n")
            assert reader.take(1) == [b"one"]
            assert str(feed.state) == "up"
            assert feed.state.since > since
        sender.close()
        wait_until(lambda: feed.state.status == "down")
        reader.subscription.cancel()
        asking.join(PATIENCE)
    assert not reader.ended.is_set()


def test_with_once_it_is_an_error() -> None:
    with pytest.raises(FeedUnavailable, match="Connection refused"):
        feeds.open(f"tcp://127.0.0.1:{free_port()}?once")


def test_a_server_of_a_response_that_comes_later() -> None:
    port = free_port()
    with feeds.open(f"http://127.0.0.1:{port}/lines") as feed:
        reader = Reader()
        feed(0).subscribe(reader)
        reader.subscription.request(10)
        wait_until(lambda: feed.state.status == "down")
        assert "Connection refused" in str(feed.state)
        server = serve(port, (503, b"starting"), (200, b"one\ntwo"))
        try:
            assert reader.take(2) == [b"one", b"two"]
            assert reader.ended.wait(PATIENCE)
        finally:
            server.shutdown()
            server.server_close()
    assert reader.error is None
    assert feed.state.status == "up"


@pytest.mark.parametrize(("status", "error"), [(404, BadStatus), (299, ResponseCut)])
def test_what_asking_again_cannot_mend_ends_the_feed(status: int, error: type[Exception]) -> None:
    # Of the answer 299 the last bytes are missing.
    server = serve(0, (status, b"one\ntwo\n"))
    try:
        with feeds.open(f"http://127.0.0.1:{server.server_port}/lines") as feed:
            reader = Reader()
            feed(0).subscribe(reader)
            reader.subscription.request(10)
            assert reader.ended.wait(PATIENCE)
    finally:
        server.shutdown()
        server.server_close()
    assert isinstance(reader.error, error)


@pytest.mark.parametrize("restart", ["on-failure", "always"])
def test_a_response_that_is_cut_is_asked_for_again_where_the_user_says_so(
    restart: Restart, caplog: pytest.LogCaptureFixture
) -> None:
    # Of the answers 299 the last bytes are missing, and half a line is left out.
    server = serve(0, (299, b"one\nhal"), (503, b"starting"), (299, b"two\nhal"), (200, b"three"))
    try:
        options = feeds.FeedOptions(restart=restart)
        with feeds.open(f"http://127.0.0.1:{server.server_port}/lines", options) as feed:
            reader = Reader()
            feed(0).subscribe(reader)
            reader.subscription.request(10)
            assert reader.take(3) == [b"one", b"two", b"three"]
            if restart == "on-failure":
                assert reader.ended.wait(PATIENCE)
            else:
                wait_until(lambda: str(feed.state) == "down: the response has ended")
                assert not reader.ended.is_set()
            reader.subscription.cancel()
    finally:
        server.shutdown()
        server.server_close()
    assert reader.error is None
    assert caplog.text.count("/lines ended in the middle of a line; its 3 bytes are left out") == 2


def test_why_and_readyz_say_that_a_feed_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with (
        feeds.open(f"tcp://127.0.0.1:{port}") as feed,
        Gateway(feed, "tcp://127.0.0.1:0") as gateway,
        Observer(gateway.endpoint) as observer,
        MetricsServer(observer.look, "127.0.0.1:0") as metrics,
    ):
        AquiferPublisher(gateway.endpoint, id="reader").flux().on_error_complete().subscribe(lambda _: None)
        verdict = why(gateway.endpoint, within=0.3)
        assert verdict.limiting == f"{gateway.endpoint}/intake"
        assert "is down, and limits the flow: " in verdict.sentence
        assert "Connection refused" in verdict.sentence
        assert gateway.status().source.state == "down"
        assert main(["why", gateway.endpoint, "--within", "0.3"]) == ExitCode.LIMITED
        assert capsys.readouterr().out.count("Connection refused") == 1  # not as an error once more
        ready = metrics.url.replace("/metrics", "/readyz")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(ready, timeout=PATIENCE)
        assert refused.value.code == 503
        with refused.value:
            assert "is down: " in json.loads(refused.value.read())["reason"]
        [error] = observer.look().errors
        assert "the source is down: " in error.message
        with socket.create_server(("127.0.0.1", port)) as server:
            sender, _ = server.accept()
            wait_until(lambda: feed.state.status == "up")
            with urllib.request.urlopen(ready, timeout=PATIENCE) as answer:
                assert answer.status == 200
            sender.close()
