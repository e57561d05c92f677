"""Server-sent events: the id of the last event is stored with it, and sent when the feed connects again."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway, SqliteJournal
from penstock.feeds import ConnectedFeed, FeedOptions
from tests.cli.running import PATIENCE


class Events(BaseHTTPRequestHandler):
    """Numbered events after the one that the client has; each connection ends after ``per_connection``."""

    per_connection = 7
    total = 100
    asked: list[str | None]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        last = self.headers.get("Last-Event-ID")
        self.asked.append(last)
        first = 0 if last is None else int(last) + 1
        if first >= self.total:
            self.send_response(204)
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(b"retry: 1\n: a comment\n\n")
        for number in range(first, min(first + self.per_connection, self.total)):
            self.wfile.write(b'id: %d\ndata: {"n":%d}\n\n' % (number, number))
        self.wfile.write(b"id: 999\ndata: cut off")
        self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


@contextmanager
def served(total: int = 100) -> Iterator[tuple[str, list[str | None]]]:
    handler = type("Handler", (Events,), {"asked": [], "total": total})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"sse+http://127.0.0.1:{server.server_port}/events", handler.asked  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def test_a_connection_that_ends_continues_after_the_last_event_until_204() -> None:
    with served() as (url, asked), feeds.open(url, FeedOptions(codec="json")) as feed:
        assert [record["n"] for record in feed.flux()] == list(range(100))
    assert asked[:3] == [None, "6", "13"]


def test_a_restart_continues_after_the_event_that_is_in_the_journal(tmp_path: Path) -> None:
    for total in (20, 50, 90):
        with (
            served(total) as (url, _),
            feeds.open(url) as feed,
            Gateway(feed, "tcp://127.0.0.1:0", journal=SqliteJournal(tmp_path / "log.db")) as gateway,
        ):
            assert gateway.join(PATIENCE)
            taken = list(AquiferPublisher(gateway.endpoint).flux())
        assert taken == [b'{"n":%d}' % number for number in range(total)]
    with closing(SqliteJournal(tmp_path / "log.db")) as journal:
        assert dict(journal.marks) == {"feed:last-event-id": "89"}


def test_a_status_that_is_wrong_is_a_state_and_not_an_end(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Events):
        def do_GET(self) -> None:
            if len(self.asked) < 2:
                self.asked.append("refused")
                self.send_error(503)
                return
            super().do_GET()

    handler = type("Handler", (Failing,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with feeds.open(f"sse+http://127.0.0.1:{server.server_port}/events") as feed:
            assert list(feed.flux().take(1)) == [b'{"n":0}']
        server.shutdown()
        thread.join(PATIENCE)
    assert "the server answers with status 503" in caplog.text


@contextmanager
def answering(*bodies: bytes, kind: str = "text/event-stream") -> Iterator[tuple[str, list[bytes | None]]]:
    """A server with a body for each connection, and 204 afterwards; what clients had, as bytes."""
    left = list(bodies)
    asked: list[bytes | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            last = self.headers.get("Last-Event-ID")
            asked.append(None if last is None else last.encode("latin-1"))
            self.send_response(200 if left else 204)
            self.send_header("content-type", kind)
            self.end_headers()
            if left:
                self.wfile.write(left.pop(0))

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"sse+http://127.0.0.1:{server.server_port}/events", asked
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def test_an_id_may_have_any_characters_that_a_header_may_have_and_an_empty_one_resets_it() -> None:
    bodies = ("id: größe ☃\ndata: 1\n\n".encode(), b"id: 5 \ndata: 2\n\n", b"id:\ndata: 3\n\n")
    with answering(*bodies) as (url, asked), feeds.open(url) as feed:
        assert feed.flux().collect_list().block(PATIENCE) == [b"1", b"2", b"3"]
    assert asked == [None, "größe ☃".encode(), b"5", None]


def test_an_id_that_no_header_can_have_is_a_bad_event() -> None:
    body = b"id: a\ndata: 1\n\nid: b\x01\ndata: 2\n\nid: c\ndata: 3\n\n"
    with answering(body) as (url, asked), feeds.open(url, FeedOptions(on_bad_line="skip")) as feed:
        assert feed.flux().collect_list().block(PATIENCE) == [b"1", b"3"]
        assert feed.skipped == 1
    assert asked == [None, b"c"]


@pytest.mark.parametrize("retry", ["0", "9" * 400, "9" * 5000])
def test_a_server_cannot_make_a_feed_fail_or_spin_with_retry(retry: str) -> None:
    with answering(f"retry: {retry}\ndata: 1\n\n".encode()) as (url, _), feeds.open(url) as feed:
        assert feed.flux().take(1).collect_list().block(PATIENCE) == [b"1"]
        assert isinstance(feed, ConnectedFeed)
        assert 0 < feed.backoff.first <= feed.backoff.longest


def test_a_page_instead_of_events_is_told(caplog: pytest.LogCaptureFixture) -> None:
    page = answering(b"<html>data: 1\n\n", kind="text/html; charset=utf-8")
    with page as (url, _), feeds.open(url) as feed:
        assert feed.flux().collect_list().block(PATIENCE) == []
    assert "the server answers with text/html, but server-sent events are text/event-stream" in caplog.text


BAD = (
    b"id: 1\ndata: a\n\n"
    b"id: 2\ndata: \xff\n\n"
    b"id: 3\ndata: " + b"x" * 500 + b"\n\n"
    b"data: " + b"y" * 500 + b"\nid: 4\n\n"
    b"id: 5\ndata: b\n\n"
)


class BadEvents(Events):
    """Some events that cannot be read, and then nothing."""

    def do_GET(self) -> None:
        last = self.headers.get("Last-Event-ID")
        self.asked.append(last)
        self.send_response(204 if last == "5" else 200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        if last != "5":
            self.wfile.write(BAD)
        self.close_connection = True


@contextmanager
def bad_events() -> Iterator[tuple[str, list[str | None]]]:
    handler = type("Handler", (BadEvents,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield f"sse+http://127.0.0.1:{server.server_address[1]}/", handler.asked  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            serving.join()


def test_an_event_that_cannot_be_read_is_skipped_and_not_asked_for_again() -> None:
    with bad_events() as (url, asked):
        feed = feeds.open(url, FeedOptions(on_bad_line="skip", max_line=100))
        assert list(feed.flux()) == [b"a", b"b"]
        assert feed.skipped == 3
        assert asked == [None, "5"]


def test_an_event_that_cannot_be_read_ends_the_feed_with_what_to_do() -> None:
    with bad_events() as (url, _):
        with pytest.raises(ValueError, match="an event is not UTF-8 text"):
            list(feeds.open(url, FeedOptions()).flux())
        with pytest.raises(feeds.LineTooLong, match=r"more than 5 bytes; allow more with .*--max-line"):
            list(feeds.open(url, FeedOptions(max_line=5)).flux())


def test_an_event_that_cannot_be_read_is_kept_as_a_letter_and_not_asked_for_again() -> None:
    with bad_events() as (url, asked):
        feed = feeds.open(url, FeedOptions(on_bad_line="dead-letter", max_line=100))
        first, *letters, last = feed.flux()
        assert (first, last) == (b"a", b"b")
        assert [letter.position for letter in letters] == ["event 2", "event 3", "event 4"]
        assert "not UTF-8" in letters[0].reason
        for letter in letters[1:]:
            assert letter.reason == "has more than 100 bytes; allow more with max_line (--max-line)"
            assert letter.size > 100, "it is not replayed as an empty record"
        assert asked == [None, "5"]
