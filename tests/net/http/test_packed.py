"""Compression under every server."""

from __future__ import annotations

import gzip

import httpx2
import pytest

from tests.net.http.serving import Served

pytestmark = pytest.mark.slow


def test_a_stream_arrives_whole(server: Served) -> None:
    answer = server.ask.get("/packed/numbers/100000", headers={"accept-encoding": "gzip"})

    assert answer.headers["content-encoding"] == "gzip"
    assert answer.text.split() == [str(number) for number in range(100_000)]
    assert answer.num_bytes_downloaded < len(answer.content)


def test_elements_arrive_as_they_are_made(server: Served) -> None:
    with server.ask.stream("GET", "/packed/silent/packed", headers={"accept-encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        assert next(answer.iter_lines()) == '"first\\n"'
    server.until("packed", "closed")


def test_a_source_that_fails_later_does_not_end_properly(server: Served) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        server.ask.get("/packed/fails/5", headers={"accept-encoding": "gzip"})


def test_a_compressed_upload(server: Served) -> None:
    packed = {"content-encoding": "gzip"}

    assert (
        server.ask.post("/packed/size", content=gzip.compress(bytes(999_999)), headers=packed).text
        == "999999\n"
    )
    bomb = server.ask.post("/packed/size", content=gzip.compress(bytes(50_000_000)), headers=packed)
    assert (bomb.status_code, bomb.text) == (413, "the body of the request has more than 1000000 bytes\n")


def test_the_answer_to_head_does_not_tell_the_length_of_the_plain_body(server: Served) -> None:
    answer = server.ask.head("/packed/text", headers={"accept-encoding": "gzip"})

    assert answer.headers["content-encoding"] == "gzip"
    assert "content-length" not in answer.headers
