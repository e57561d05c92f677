"""Responses that were compressed more than once: ``content-encoding: gzip, gzip``."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from penstock.net import NetError
from penstock.net.http import Call, get

PATIENCE = 60.0


@asynccontextmanager
async def answering(encoding: str, body: bytes) -> AsyncIterator[Call]:
    """A request to a server that has this answer to everything."""
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: {len(body)}\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode() + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, asyncio.timeout(PATIENCE):
        yield get(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip, gzip", lambda data: gzip.compress(gzip.compress(data))),
        ("deflate ,GZIP", lambda data: gzip.compress(zlib.compress(data))),
        ("identity, gzip", gzip.compress),
    ],
)
def test_a_body_that_was_packed_twice_is_unpacked_and_has_to_be_whole(
    encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    async def main() -> None:
        packed = pack(b"hello " * 10_000)
        async with answering(encoding, packed) as call:
            assert (await call.answer()).body == b"hello " * 10_000
        async with answering(encoding, packed[:-9]) as call:
            with pytest.raises(NetError, match="ends too early"):
                await call.answer()

    asyncio.run(main())


def test_a_body_that_was_packed_twice_is_not_unpacked_whole() -> None:
    once = zlib.compressobj(9, wbits=31)
    packed = gzip.compress(b"".join(once.compress(bytes(1_000_000)) for _ in range(100)) + once.flush())

    async def main() -> tuple[list[int], int]:
        async with answering("gzip", gzip.compress(b"")) as call:
            await call.answer()  # what is imported and kept for ever does not count
        tracemalloc.start()
        try:
            async with answering("gzip, gzip", packed) as call:
                sizes = await call.receive().map(len).collect_list()
            return sizes, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    sizes, peak = asyncio.run(main())
    assert sum(sizes) == 100_000_000
    assert max(sizes) <= 64 * 1024
    assert peak < 20_000_000


def test_a_body_that_was_packed_hundreds_of_times_is_refused() -> None:
    async def main() -> None:
        async with answering(", ".join(["gzip"] * 500), b"") as call:
            with pytest.raises(NetError, match="compressed 500 times over"):
                await call.answer()

    asyncio.run(main())
