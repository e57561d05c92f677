"""Files under every server, over real sockets."""

from __future__ import annotations

import os

import httpx2
import pytest

from tests.net.http.serving import Served

pytestmark = pytest.mark.slow

LARGE = 64 * 1024 * 1024


def test_a_file_whole_in_parts_and_not_at_all(server: Served) -> None:
    content = os.urandom(1_000_000)
    (server.folder / "data.bin").write_bytes(content)

    whole = server.ask.get("/files/data.bin")
    assert (whole.status_code, whole.content) == (200, content)
    assert whole.headers["content-length"] == "1000000"
    middle = server.ask.get("/files/data.bin", headers={"range": "bytes=1000-499999"})
    assert (middle.status_code, middle.content) == (206, content[1000:500_000])
    both = server.ask.get("/files/data.bin", headers={"range": "bytes=0-9,-10"})
    assert both.status_code == 206
    assert content[:10] in both.content
    assert content[-10:] in both.content
    assert server.ask.get("/files/data.bin", headers={"range": "bytes=1000000-"}).status_code == 416
    same = server.ask.get("/files/data.bin", headers={"if-none-match": whole.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    head = server.ask.head("/files/data.bin")
    assert (head.status_code, head.headers["content-length"]) == (200, "1000000")
    # The connection is still in order after all of these.
    assert server.ask.get("/files/data.bin").content == content


@pytest.mark.parametrize(
    "path",
    [
        "/files/../conftest.py",
        "/files/%2e%2e/%2e%2e/etc/passwd",
        "/files/..%2f..%2fetc%2fpasswd",
        "/files/a%00b",
    ],
)
def test_no_way_out(server: Served, path: str) -> None:
    with server.connection() as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
    assert answer.split()[1] in (b"404", b"400")


def test_a_file_that_becomes_shorter_is_cut_off(server: Served) -> None:
    large = server.folder / "shrinking.bin"
    large.write_bytes(b"")
    os.truncate(large, LARGE)

    with server.ask.stream("GET", "/files/shrinking.bin") as answer:
        chunks = answer.iter_raw()
        next(chunks)
        os.truncate(large, 0)
        with pytest.raises(httpx2.RemoteProtocolError):
            for _ in chunks:
                pass
    assert server.ask.get("/numbers/1").text == "0\n"
