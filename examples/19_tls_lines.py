"""Lines over TLS with a self-signed certificate: each line is answered, in order."""

import asyncio
import logging
import tempfile
from pathlib import Path

from penstock.net import HandshakeFailed, SelfSigned, TcpClient, TcpServer
from penstock.net.framing import end_with, lines
from penstock.streams import Flux


def answer(inbound, outbound):
    return outbound.send_object(inbound.receive_objects().map(lambda line: f"{line}? {len(line)} letters"))


async def main(folder: Path) -> None:
    # The server logs a warning for the stranger, with its address.
    logging.getLogger("penstock.net").setLevel(logging.ERROR)
    certificate, key = SelfSigned.make("localhost").save(folder)
    server = (
        TcpServer.create()
        .secure(certificate=certificate, key=key)
        .framing(lines(max_length=1000, encoding="utf-8"))
        .encoder(end_with(b"\n"))
        .handle(answer)
    )
    async with await server.bind() as running:
        client = TcpClient.create().host("localhost").port(running.port)
        try:
            await client.secure().connect()
        except HandshakeFailed:
            print("a stranger does not trust it")
        async with await client.secure(trust=certificate).connect() as connection:
            print("encrypted with", connection.tls.version())
            words = Flux.just("penstock", "water", "gate").map(end_with(b"\n"))
            await connection.outbound.send(words)
            async for line in connection.inbound.receive().transform(lines(encoding="utf-8")).take(3):
                print(line)


with tempfile.TemporaryDirectory() as made:
    asyncio.run(main(Path(made)))
