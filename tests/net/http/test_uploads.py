"""Forms with files under every server: they arrive whole, in flat memory, at the pace of the reader."""

from __future__ import annotations

import hashlib
import os

import pytest

from tests.net.http.serving import Served

pytestmark = pytest.mark.slow

LARGE = 100 * 1024 * 1024
MOST_GROWTH = 32 * 1024
"""KiB that a server may grow while it takes a file three times as large."""
BLOCK = os.urandom(256 * 1024)


def test_a_hundred_megabytes_in_flat_memory(server: Served) -> None:
    head = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="large.bin"\r\n\r\n'
    tail = b'\r\n--edge\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n--edge--\r\n'
    expected = hashlib.sha256()
    with server.connection() as client:
        client.sendall(
            b"POST /parts/large HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"
            b"Content-Type: multipart/form-data; boundary=edge\r\n"
            b"Content-Length: %d\r\n\r\n" % (len(head) + LARGE + len(tail))
        )
        client.sendall(head)
        for _ in range(LARGE // len(BLOCK)):
            client.sendall(BLOCK)
            expected.update(BLOCK)
        client.sendall(tail)
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
    assert b"200" in answer.splitlines()[0]
    state = server.state("large")
    assert state["parts"] == [
        ["file", "large.bin", LARGE, expected.hexdigest()],
        ["note", None, 5, hashlib.sha256(b"hello").hexdigest()],
    ]
    assert state["grown"] < MOST_GROWTH


def test_a_client_library_sends_a_form(server: Served) -> None:
    answer = server.ask.post("/parts/library", data={"a": "1"}, files={"f": ("ü.txt", b"content")})

    assert answer.status_code == 200
    parts = server.state("library")["parts"]
    assert [part[:3] for part in parts] == [["a", None, 1], ["f", "ü.txt", 7]]


def test_fields(server: Served) -> None:
    answer = server.ask.post("/form", data={"name": "Zoë & co", "colour": ["red", "blue"]})

    assert answer.json() == [["name", "Zoë & co"], ["colour", "red"], ["colour", "blue"]]


def test_a_broken_form_is_refused(server: Served) -> None:
    kind = {"content-type": "multipart/form-data; boundary=edge"}
    answer = server.ask.post("/parts/broken", content=b"--edge\r\nhalf", headers=kind)

    assert (answer.status_code, answer.text[:38]) == (400, "the form ends before its last boundary")


def test_a_reader_that_leaves_every_part_at_its_beginning(server: Served) -> None:
    files = {name: (name, BLOCK * 4) for name in "abc"}

    assert server.ask.post("/beginnings", files=files).text == "a b c"
