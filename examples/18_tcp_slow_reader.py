"""A client that reads slowly: the server's source makes no more than the sockets between them hold."""

import asyncio

from penstock.net import TcpClient, TcpServer
from penstock.streams import Flux

CHUNK = bytes(64 * 1024)
made = 0


def chunks():
    """Make chunks as they are requested."""
    global made
    while True:
        made += 1
        yield CHUNK


async def main() -> None:
    endless = TcpServer.create().handle(lambda inbound, outbound: outbound.send(Flux.from_iterable(chunks())))
    async with await endless.option("SO_SNDBUF", 256 * 1024).bind() as server:
        client = TcpClient.create().port(server.port).option("SO_RCVBUF", 256 * 1024)
        async with await client.connect() as connection:
            read = 0
            async for chunk in connection.inbound.receive():
                read += len(chunk)
                await asyncio.sleep(0.01)  # a slow reader
                if read > 2_000_000:
                    break
            ahead = made * len(CHUNK) - read
            print("read two megabytes, slowly")
            print("the source was never more than eight megabytes ahead:", ahead < 8_000_000)


asyncio.run(main())
