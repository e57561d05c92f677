"""Compressed responses, and compressed bodies of requests."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net.http import BadEncoding, Http, Request, file, ndjson, reply, sse, stream
from penstock.net.http.compression import accepts_gzip
from penstock.net.http.inflation import Inflater
from penstock.streams import Flux
from tests.net.http.conversing import PATIENCE, Exchange, Source, turns

LONG = b"the same again and again\n" * 1000


def ask(app: Any, accepted: str | None = "gzip", method: str = "GET") -> Exchange:
    async def main() -> Exchange:
        exchange = Exchange(method=method)
        if accepted is not None:
            exchange.scope["headers"] = [(b"Accept-Encoding", accepted.encode())]
        exchange.chunk(b"", more=False)
        await asyncio.wait_for(exchange.start(app), PATIENCE)
        return exchange

    return asyncio.run(main())


def served(answer: Any, **options: Any) -> Http:
    return Http().compress(**options).get("/", lambda request: answer)


def body(exchange: Exchange) -> bytes:
    return b"".join(exchange.bodies)


# ---------------------------------------------------------------- responses


def test_a_long_text() -> None:
    got = ask(served(reply(LONG)))

    assert got.headers[b"content-encoding"] == b"gzip"
    assert got.headers[b"vary"] == b"accept-encoding"
    assert got.headers[b"content-length"] == b"%d" % len(body(got))
    assert gzip.decompress(body(got)) == LONG


@pytest.mark.parametrize(
    ("accepted", "yes"),
    [
        ("gzip", True),
        ("x-gzip", True),
        ("GZIP;q=0.1", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("*", True),
        ("br", False),
        ("", False),
        ("gzip;q=0", False),
        ("gzip;q=0, *", False),
        ("*;q=0", False),
        ("identity, gzip;q=0.5", False),
        ("identity;q=0.5, gzip", True),
        ("gzip;q=nonsense", False),
        ("gzip;q=2", False),
        ("gzip;q=nan", False),
        ("gzip; q = 0.5", True),
    ],
)
def test_what_a_client_accepts(accepted: str, yes: bool) -> None:
    assert accepts_gzip(accepted) is yes


@pytest.mark.parametrize("accepted", [None, "br"])
def test_a_client_that_does_not_ask(accepted: str | None) -> None:
    got = ask(served(reply(LONG)), accepted)

    assert (body(got), got.headers[b"vary"]) == (LONG, b"accept-encoding")
    assert b"content-encoding" not in got.headers


@pytest.mark.parametrize(
    "answer",
    [
        reply(LONG, headers={"content-type": "image/png"}),
        reply(LONG, headers={"content-encoding": "br"}),
        reply(LONG, headers={"cache-control": "public, No-Transform"}),
        reply(LONG, status=206, headers={"content-range": "bytes 0-5/6"}),
        reply(b"short"),
        stream(Flux.just(b"one of unknown type")),
    ],
    ids=["image", "encoded", "no-transform", "range", "short", "octets"],
)
def test_what_is_left_as_it_is(answer: Any) -> None:
    got, plain = ask(served(answer)), ask(answer)

    assert body(got) == body(plain)
    assert got.headers.get(b"content-encoding") == plain.headers.get(b"content-encoding")
    assert got.headers.get(b"content-length") == plain.headers.get(b"content-length")


def test_what_would_become_larger_is_left_as_it_is() -> None:
    noise = bytes(range(256))
    got = ask(served(reply(noise), minimum=1))

    assert body(got) == noise
    assert b"content-encoding" not in got.headers


def test_types_of_your_own() -> None:
    png = reply(LONG, headers={"content-type": "Image/PNG; x=y"})

    assert ask(served(png, types=["image/*"])).headers[b"content-encoding"] == b"gzip"
    assert b"content-encoding" not in ask(served(reply(LONG), types=["image/*"])).headers
    problem = reply(LONG, headers={"content-type": "application/problem+json"})
    assert ask(served(problem)).headers[b"content-encoding"] == b"gzip"


def test_headers_of_the_application_are_kept() -> None:
    answer = reply(
        LONG, headers=[("vary", "origin"), ("etag", '"x"'), ("accept-ranges", "bytes"), ("set-cookie", "a=1")]
    )
    sent = ask(served(answer)).sent[0]["headers"]

    assert [value for name, value in sent if name == b"vary"] == [b"origin", b"accept-encoding"]
    assert (b"etag", b'W/"x"') in sent
    assert (b"set-cookie", b"a=1") in sent
    assert b"accept-ranges" not in dict(sent)
    weak = reply(LONG, headers={"etag": 'W/"x"', "vary": "Accept-Encoding"})
    got = ask(served(weak))
    assert (got.headers[b"etag"], got.headers[b"vary"]) == (b'W/"x"', b"Accept-Encoding")


def test_a_file(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_bytes(LONG * 100)
    app = served(file(tmp_path / "a.txt"))
    got = ask(app)

    assert gzip.decompress(body(got)) == LONG * 100
    assert got.headers[b"etag"].startswith(b'W/"')
    assert b"content-length" not in got.headers
    head = ask(app, method="HEAD")
    assert (body(head), head.headers[b"content-encoding"]) == (b"", b"gzip")
    assert b"content-length" not in head.headers


def test_a_range_and_not_modified_vary_as_the_whole_does(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_bytes(LONG)

    async def status_and_vary(name: bytes, value: bytes) -> tuple[int, bytes | None]:
        exchange = Exchange()
        exchange.scope["headers"] = [(b"accept-encoding", b"gzip"), (name, value)]
        exchange.chunk(b"", more=False)
        await asyncio.wait_for(exchange.start(served(file(tmp_path / "a.txt"))), PATIENCE)
        return exchange.status, exchange.headers.get(b"vary")

    assert asyncio.run(status_and_vary(b"range", b"bytes=0-3")) == (206, b"accept-encoding")
    assert asyncio.run(status_and_vary(b"if-none-match", b"*")) == (304, b"accept-encoding")


def test_the_answer_to_head_has_no_body_of_another_length() -> None:
    got = ask(served(reply(LONG)), method="HEAD")

    assert (body(got), got.headers[b"content-encoding"]) == (b"", b"gzip")
    assert b"content-length" not in got.headers


@pytest.mark.parametrize("make", [sse, ndjson, lambda source: stream(source, content_type="text/plain")])
def test_elements_arrive_one_by_one(make: Any) -> None:
    async def main() -> None:
        source, exchange = Source(), Exchange()
        exchange.scope["headers"] = [(b"accept-encoding", b"gzip")]
        running = exchange.start(served(make(source)))
        unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
        await turns()
        for number in range(5):
            source.subscriber.on_next(f"element {number}")
            await exchange.until_sent(2 + number)
            assert f"element {number}".encode() in unpacking.decompress(exchange.sent[-1]["body"])
            await turns()
        source.subscriber.on_complete()
        await asyncio.wait_for(running, PATIENCE)
        unpacking.decompress(exchange.sent[-1]["body"])
        assert unpacking.eof
        assert exchange.headers[b"content-encoding"] == b"gzip"

    asyncio.run(main())


def test_headers_that_are_sent_before_the_first_element() -> None:
    async def main() -> Exchange:
        exchange = Exchange()
        exchange.scope["headers"] = [(b"accept-encoding", b"gzip")]
        running = exchange.start(served(stream(Flux.never(), content_type="text/plain", headers_within=0.01)))
        await exchange.until_sent(2)
        exchange.disconnect()
        await asyncio.wait_for(running, PATIENCE)
        return exchange

    exchange = asyncio.run(main())
    assert exchange.bodies == [b""]
    assert exchange.headers[b"content-encoding"] == b"gzip"


def test_large_elements_are_compressed_elsewhere_and_in_order() -> None:
    blocks = [bytes([65 + number]) * 300_000 for number in range(8)]
    got = ask(served(stream(Flux.from_iterable(blocks), content_type="text/plain")))

    assert gzip.decompress(body(got)) == b"".join(blocks)


def test_a_source_that_fails_at_once_is_still_a_500() -> None:
    got = ask(served(ndjson(Flux.error(RuntimeError("broken")))))

    assert (got.status, body(got)) == (500, b"the server could not produce this response\n")


def test_settings_are_checked() -> None:
    for wrong in ({"level": 10}, {"level": 0}, {"minimum": -1}):
        with pytest.raises(ValueError, match="needs"):
            Http().compress(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="collection"):
        Http().compress(types="text/html")


# ---------------------------------------------------------------- bodies of requests


def post(app: Http, *chunks: bytes, encoding: bytes = b"gzip", kind: bytes = b"") -> tuple[int, bytes]:
    async def main() -> Exchange:
        exchange = Exchange(method="POST")
        exchange.scope["headers"] = [(b"content-encoding", encoding), (b"content-type", kind)]
        for number, chunk in enumerate(chunks, 1):
            exchange.chunk(chunk, more=number < len(chunks))
        await asyncio.wait_for(exchange.start(app), PATIENCE)
        return exchange

    got = asyncio.run(main())
    return got.status, body(got)


async def echo(request: Request) -> bytes:
    return b"".join([chunk async for chunk in request.body()])


READS = Http().decompress().post("/", echo)


def test_a_compressed_body() -> None:
    packed = gzip.compress(LONG)

    assert post(READS, packed[:7], packed[7:]) == (200, LONG)
    assert post(READS, zlib.compress(LONG), encoding=b"deflate") == (200, LONG)
    assert post(READS, packed + gzip.compress(b"more")) == (200, LONG + b"more")
    assert post(READS, LONG, encoding=b"identity") == (200, LONG)
    assert post(READS, b"") == (200, b"")
    assert post(Http().post("/", echo), packed) == (200, packed)


def test_a_compressed_body_that_is_refused() -> None:
    packed = gzip.compress(LONG)

    assert post(READS, packed, encoding=b"br") == (
        415,
        b"a body that is encoded as 'br' is not accepted here\n",
    )
    assert post(READS, packed, encoding=b"gzip, gzip")[0] == 415
    assert post(READS, packed[:-1]) == (400, b"the compressed body of the request ends too early\n")
    assert post(READS, b"nonsense") == (400, b"the body of the request cannot be decompressed\n")
    assert post(READS, packed + b"x" * 20)[0] == 400


def test_a_small_body_that_stands_for_a_large_one() -> None:
    bomb = gzip.compress(bytes(100_000_000))
    seen: list[int] = []

    async def count(request: Request) -> str:
        async for chunk in request.body():
            seen.append(len(chunk))
        return "read"

    app = Http().decompress().body_limit(1_000_000).post("/", count)

    assert post(app, bomb) == (413, b"the body of the request has more than 1000000 bytes\n")
    assert max(seen) <= 64 * 1024
    assert sum(seen) <= 1_000_000


@pytest.mark.parametrize(
    ("begin", "block"),
    [(b"", gzip.compress(b"") * 200), (gzip.compress(b"")[:10], b"\0\0\0\xff\xff" * 800)],
    ids=["members", "blocks"],
)
def test_a_body_that_stands_for_nothing_has_a_limit(begin: bytes, block: bytes) -> None:
    app = Http().decompress().body_limit(10_000).post("/", echo)

    assert post(app, begin, *[block] * 10, b"") == (
        413,
        b"the body of the request has more than 10000 bytes\n",
    )


def test_the_event_loop_has_turns_while_a_body_is_decompressed() -> None:
    """Ten megabytes of zeros in one chunk, and then a chunk of thousands of empty members."""

    async def main() -> None:
        exchange = Exchange(method="POST")
        exchange.scope["headers"] = [(b"content-encoding", b"gzip")]
        exchange.chunk(gzip.compress(bytes(10_000_000)))
        exchange.chunk(gzip.compress(b"") * 10_000, more=False)
        length = Http().decompress().post("/", lambda request: ndjson(request.body().map(len).count()))
        running = exchange.start(length)
        count = 0
        while not running.done():
            await asyncio.sleep(0)
            count += 1
        assert exchange.status == 200
        # One for each piece of 64 KiB that comes out, and for each slice of 16 KiB that goes in.
        assert count > 10_000_000 // 65536 + 200_000 // 16384

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_forms() -> None:
    async def fields(request: Request) -> str:
        return repr(dict(await request.form(max_bytes=1000)))

    kind = b"application/x-www-form-urlencoded"
    app = Http().decompress().post("/", fields)

    assert post(app, gzip.compress(b"a=1"), kind=kind) == (200, b"{'a': '1'}")
    assert post(app, gzip.compress(b"a" * 10_000), kind=kind)[0] == 413
    assert post(Http().post("/", fields), gzip.compress(b"a=1"), kind=kind)[0] == 415


@given(
    st.lists(st.binary(max_size=300) | st.integers(0, 200_000).map(bytes), max_size=4),
    st.lists(st.integers(0, 10**6)),
)
def test_any_split_gives_the_same_bytes(members: list[bytes], cuts: list[int]) -> None:
    packed = b"".join(map(gzip.compress, members))
    places = sorted({0, len(packed), *(cut % (len(packed) + 1) for cut in cuts)})
    inflater, got = Inflater(), b""
    for start, end in zip(places, [*places[1:], len(packed)], strict=True):
        inflater.feed(packed[start:end])
        while piece := inflater.piece():
            assert len(piece) <= 64 * 1024
            got += piece
    inflater.finish()
    assert got == b"".join(members)


@pytest.mark.parametrize("window", [15, -15, 31], ids=["zlib", "raw deflate", "gzip"])
def test_deflate_of_every_kind_may_come_byte_by_byte(window: int) -> None:
    packer = zlib.compressobj(wbits=window)
    packed = packer.compress(b"hello" * 20) + packer.flush()
    inflater, got = Inflater(), b""
    for byte in packed:
        inflater.feed(bytes([byte]))
        while piece := inflater.piece():
            got += piece
    inflater.finish()
    assert got == b"hello" * 20


@pytest.mark.parametrize("junk", [b"junk", bytes(4), zlib.compress(b"x")[2:]])
@pytest.mark.parametrize("before", [b"", gzip.compress(b"hello")], ids=["instead of gzip", "after gzip"])
def test_what_is_not_gzip_is_refused_and_not_guessed_at(before: bytes, junk: bytes) -> None:
    inflater = Inflater(encoding="gzip")
    inflater.feed(before + junk)
    if before:
        assert inflater.piece() == b"hello"
    with pytest.raises(BadEncoding, match="cannot be decompressed"):
        inflater.piece()


def test_a_single_byte_after_the_end_is_noticed() -> None:
    inflater = Inflater(encoding="gzip")
    inflater.feed(gzip.compress(b"hello") + b"j")
    assert inflater.piece() == b"hello"
    assert inflater.piece() == b""
    with pytest.raises(BadEncoding):
        inflater.finish()


def test_an_end_in_the_header_is_too_early() -> None:
    inflater = Inflater()
    inflater.feed(gzip.compress(b"x")[:5])
    assert inflater.piece() == b""
    with pytest.raises(BadEncoding):
        inflater.finish()
