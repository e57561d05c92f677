"""Files as responses: what is served, what is not, and how much of a file is read at a time."""

from __future__ import annotations

import asyncio
import os
import threading
from email.parser import BytesParser
from pathlib import Path
from typing import Any

import pytest

from penstock.net.http import FileTruncated, Http, ResponseBroken, file
from penstock.net.http.files import CHUNK
from tests.net.http.conversing import PATIENCE, Exchange, answered, turns

TEXT = b"0123456789"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a secret beside it."""
    (tmp_path / "secret.txt").write_bytes(b"secret")
    inside = tmp_path / "public"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.txt").write_bytes(TEXT)
    (inside / "empty.bin").write_bytes(b"")
    (inside / "sub" / "index.html").write_bytes(b"<p>index")
    (inside / ".hidden").write_bytes(b"hidden")
    return inside


def ask(app: Any, path: str, method: str = "GET", **headers: str) -> Exchange:
    async def main() -> Exchange:
        exchange = Exchange(method=method, path=path)
        exchange.scope["headers"] = [
            (name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()
        ]
        exchange.chunk(b"", more=False)
        await asyncio.wait_for(exchange.start(app), PATIENCE)
        return exchange

    return asyncio.run(main())


def body(exchange: Exchange) -> bytes:
    return b"".join(exchange.bodies)


def test_a_file(folder: Path) -> None:
    got = ask(Http().directory("/", folder), "/a.txt")

    assert (got.status, body(got)) == (200, TEXT)
    assert got.headers[b"content-type"] == b"text/plain; charset=utf-8"
    assert got.headers[b"content-length"] == b"10"
    assert got.headers[b"accept-ranges"] == b"bytes"
    assert got.headers[b"cache-control"] == b"no-cache"
    assert got.headers[b"x-content-type-options"] == b"nosniff"
    assert b"x-accel-buffering" not in got.headers
    assert got.headers[b"etag"].startswith(b'"')


def test_a_file_of_your_own(folder: Path) -> None:
    own = file(folder / "a.txt", content_type="text/x-own", headers={"cache-control": "max-age=60"})
    got = ask(Http().get("/x", lambda request: own), "/x")

    assert (got.status, body(got)) == (200, TEXT)
    assert got.headers[b"content-type"] == b"text/x-own"
    assert got.headers[b"cache-control"] == b"max-age=60"
    assert ask(Http().get("/x", lambda request: file(folder / "none")), "/x").status == 404
    assert ask(Http().get("/x", lambda request: file(folder)), "/x").status == 404


def test_head_sends_no_content_and_knows_no_ranges(folder: Path) -> None:
    got = ask(Http().directory("/", folder), "/a.txt", "HEAD", range="bytes=0-1")

    assert (got.status, body(got)) == (200, b"")
    assert got.headers[b"content-length"] == b"10"


def test_an_empty_file(folder: Path) -> None:
    app = Http().directory("/", folder)

    assert body(ask(app, "/empty.bin")) == b""
    assert ask(app, "/empty.bin").headers[b"content-length"] == b"0"
    assert ask(app, "/empty.bin", range="bytes=0-").status == 416


# ---------------------------------------------------------------- ranges and conditions


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("bytes=2-4", b"234"), ("bytes=7-", b"789"), ("bytes=-2", b"89"), ("bytes=0-99", TEXT)],
)
def test_one_range(folder: Path, wanted: str, expected: bytes) -> None:
    got = ask(Http().directory("/", folder), "/a.txt", range=wanted)

    first = TEXT.index(expected)
    assert (got.status, body(got)) == (206, expected)
    assert got.headers[b"content-length"] == b"%d" % len(expected)
    assert got.headers[b"content-range"] == b"bytes %d-%d/10" % (first, first + len(expected) - 1)


def test_several_ranges(folder: Path) -> None:
    got = ask(Http().directory("/", folder), "/a.txt", range="bytes=8-9,0-2")

    assert got.status == 206
    assert got.headers[b"content-length"] == b"%d" % len(body(got))
    parts = BytesParser().parsebytes(
        b"Content-Type: " + got.headers[b"content-type"] + b"\r\n\r\n" + body(got)
    )
    assert parts.get_content_type() == "multipart/byteranges"
    found: Any = parts.get_payload()
    assert [
        (part["content-range"], part.get_content_type(), part.get_payload(decode=True)) for part in found
    ] == [("bytes 8-9/10", "text/plain", b"89"), ("bytes 0-2/10", "text/plain", b"012")]


def test_a_range_beyond_the_end(folder: Path) -> None:
    got = ask(Http().directory("/", folder), "/a.txt", range="bytes=10-")

    assert (got.status, got.headers[b"content-range"]) == (416, b"bytes */10")


def test_a_range_that_means_nothing_is_the_whole(folder: Path) -> None:
    assert body(ask(Http().directory("/", folder), "/a.txt", range="lines=1-2")) == TEXT


def test_the_rest_of_a_file_that_has_changed_is_the_whole(folder: Path) -> None:
    app = Http().directory("/", folder)
    etag = ask(app, "/a.txt").headers[b"etag"].decode()

    assert ask(app, "/a.txt", range="bytes=5-", if_range=etag).status == 206
    (folder / "a.txt").write_bytes(b"new content")
    changed = ask(app, "/a.txt", range="bytes=5-", if_range=etag)
    assert (changed.status, body(changed)) == (200, b"new content")


def test_a_client_that_has_the_file(folder: Path) -> None:
    app = Http().directory("/", folder)
    first = ask(app, "/a.txt")
    got = ask(app, "/a.txt", if_none_match=first.headers[b"etag"].decode())

    assert (got.status, body(got)) == (304, b"")
    assert got.headers[b"etag"] == first.headers[b"etag"]
    assert b"content-length" not in got.headers
    assert ask(app, "/a.txt", if_modified_since=first.headers[b"last-modified"].decode()).status == 304
    assert ask(app, "/a.txt", if_match='"another"').status == 412


def test_a_file_from_the_future_was_modified_now(folder: Path) -> None:
    os.utime(folder / "a.txt", (2**33, 2**33))
    app = Http().directory("/", folder)
    date = ask(app, "/a.txt").headers[b"last-modified"].decode()

    assert "2242" not in date


# ---------------------------------------------------------------- what is not served


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/sub/../a.txt",
        "/./a.txt",
        "//a.txt",
        "/..",
        "/",
        "/sub",
        "/sub/",
        "/a.txt/",
        "/a.txt/x",
        "/none.txt",
        "/a.txt\0",
        "/\0",
        "/..\\secret.txt",
        "/.hidden",
        "/" + "x" * 5000,
        "/\udcff",
        "/pipe",
        "/out.txt",
        "/outside/secret.txt",
    ],
)
def test_everything_else_is_not_found(folder: Path, path: str) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "out.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "outside").symlink_to(folder.parent)

    got = ask(Http().directory("/", folder), path)

    assert (got.status, body(got)) == (404, b"not found\n")


def test_an_encoded_slash_is_not_a_slash(folder: Path) -> None:
    async def main() -> int:
        exchange = Exchange(path="/sub/index.html")
        exchange.scope["raw_path"] = b"/sub%2Findex.html"
        exchange.chunk(b"", more=False)
        await exchange.start(Http().directory("/", folder))
        return exchange.status

    assert asyncio.run(main()) == 404


def test_links(folder: Path) -> None:
    (folder / "inside.txt").symlink_to(folder / "a.txt")
    (folder / "sub" / "up.txt").symlink_to("../a.txt")
    (folder / "out.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "loop").symlink_to(folder / "loop")
    app = Http().directory("/", folder)

    assert body(ask(app, "/inside.txt")) == body(ask(app, "/sub/up.txt")) == TEXT
    assert ask(app, "/out.txt").status == ask(app, "/loop").status == 404
    assert body(ask(Http().directory("/", folder, links_out=True), "/out.txt")) == b"secret"


def test_the_folder_itself_may_be_a_link_that_moves(folder: Path) -> None:
    link = folder.parent / "current"
    link.symlink_to(folder)
    app = Http().directory("/", link)
    assert body(ask(app, "/a.txt")) == TEXT
    link.unlink()
    link.symlink_to(folder / "sub")

    assert body(ask(app, "/index.html")) == b"<p>index"


def test_a_folder_beside_it_with_a_longer_name(folder: Path) -> None:
    beside = folder.with_name("public-not")
    beside.mkdir()
    (beside / "x.txt").write_bytes(b"secret")
    (folder / "x.txt").symlink_to(beside / "x.txt")

    assert ask(Http().directory("/", folder), "/x.txt").status == 404


def test_hidden_files_on_request(folder: Path) -> None:
    assert body(ask(Http().directory("/", folder, hidden=True), "/.hidden")) == b"hidden"
    assert ask(Http().directory("/", folder, hidden=True), "/..").status == 404


def test_an_index(folder: Path) -> None:
    app = Http().directory("/static", folder, index="index.html")

    assert body(ask(app, "/static/sub/")) == b"<p>index"
    assert ask(app, "/static/sub/").headers[b"content-type"] == b"text/html; charset=utf-8"
    moved = ask(app, "/static/sub")
    assert (moved.status, moved.headers[b"location"]) == (307, b"./sub/")
    assert ask(app, "/static/").status == 404
    assert ask(app, "/static").status == 404


def test_a_folder_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="none"):
        Http().directory("/", tmp_path / "none")
    with pytest.raises(ValueError, match="slash"):
        Http().directory("x", tmp_path)


# ---------------------------------------------------------------- reading


class Reads:
    """Counts the reads, which are real ones, and says on which threads they were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.threads: set[int] = set()
        self.handles: set[int] = set()
        self.hold = threading.Event()
        self.hold.set()
        self.begun = threading.Event()
        read = os.pread

        def counted(handle: int, size: int, place: int) -> bytes:
            self.count += 1
            self.threads.add(threading.get_ident())
            self.handles.add(handle)
            self.begun.set()
            assert self.hold.wait(PATIENCE)
            return read(handle, size, place)

        monkeypatch.setattr(os, "pread", counted)


def is_open(handle: int) -> bool:
    try:
        os.fstat(handle)
    except OSError:
        return False
    return True


def test_a_file_is_read_at_the_pace_of_the_client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "large.bin").write_bytes(bytes(50 * CHUNK))
    reads = Reads(monkeypatch)

    async def main() -> int:
        exchange = Exchange(path="/large.bin")
        exchange.taking.clear()
        running = exchange.start(Http().directory("/", folder))
        await exchange.until_sent(1)
        for _ in range(20):  # time enough for more reads on threads, if there were any
            await asyncio.to_thread(int)
            await turns()
        held = reads.count
        exchange.taking.set()
        await asyncio.wait_for(running, PATIENCE)
        assert sum(map(len, exchange.bodies)) == 50 * CHUNK
        return held

    exchange_reads = asyncio.run(main())
    assert exchange_reads <= 4
    assert reads.count == 50
    assert threading.get_ident() not in reads.threads
    assert not any(map(is_open, reads.handles))


def test_a_file_that_becomes_shorter_does_not_end_properly(folder: Path) -> None:
    large = folder / "large.bin"
    large.write_bytes(bytes(50 * CHUNK))

    async def main() -> Exchange:
        exchange = Exchange(path="/large.bin")
        exchange.taking.clear()
        running = exchange.start(Http().directory("/", folder))
        await exchange.until_sent(1)
        os.truncate(large, 10 * CHUNK)
        exchange.taking.set()
        with pytest.raises(ResponseBroken) as raised:
            await asyncio.wait_for(running, PATIENCE)
        assert isinstance(raised.value.__cause__, FileTruncated)
        return exchange

    exchange = asyncio.run(main())
    assert all(message["more_body"] for message in exchange.sent[1:])


def test_a_file_that_is_removed_while_it_is_sent_arrives_whole(folder: Path) -> None:
    large = folder / "large.bin"
    content = os.urandom(20 * CHUNK)
    large.write_bytes(content)

    async def main() -> Exchange:
        exchange = Exchange(path="/large.bin")
        exchange.taking.clear()
        running = exchange.start(Http().directory("/", folder))
        await exchange.until_sent(1)
        large.unlink()
        exchange.taking.set()
        await asyncio.wait_for(running, PATIENCE)
        return exchange

    assert body(asyncio.run(main())) == content


def test_a_client_that_leaves_while_a_thread_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "large.bin").write_bytes(bytes(50 * CHUNK))
    reads = Reads(monkeypatch)
    reads.hold.clear()

    async def main() -> None:
        exchange = Exchange(path="/large.bin")
        running = exchange.start(Http().directory("/", folder))
        await asyncio.to_thread(reads.begun.wait, PATIENCE)
        exchange.disconnect()
        await asyncio.wait_for(running, PATIENCE)
        assert all(map(is_open, reads.handles))  # the thread is still reading
        reads.hold.set()
        async with asyncio.timeout(PATIENCE):
            while any(map(is_open, reads.handles)):
                await asyncio.sleep(0.001)
        await turns()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert reads.count <= 2


def test_a_disk_that_fails_is_an_error_of_the_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*arguments: Any, **options: Any) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        got = asyncio.run(answered(file(folder / "a.txt")))

    assert got.status == 500
    assert "cannot be opened" in caplog.text
