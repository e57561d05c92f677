"""A TCP proxy: each direction is a send, and ends the other side's direction when it is done."""

import asyncio

from penstock.net import TcpClient, TcpServer
from penstock.net.framing import lines
from penstock.streams import Flux


def proxy_to(port: int) -> TcpServer:
    target = TcpClient.create().port(port)

    async def forward(inbound, outbound):
        async with await target.connect() as there:
            await asyncio.gather(
                there.outbound.send(inbound.receive()).end(),
                outbound.send(there.inbound.receive()).end(),
            )

    return TcpServer.create().handle(forward)


async def counting(inbound, outbound):
    """Count lines until the client has ended its direction, then answer."""
    count = await inbound.receive().transform(lines()).count()
    await outbound.send(b"%d lines" % count)


async def main() -> None:
    async with (
        await TcpServer.create().handle(counting).bind() as server,
        await proxy_to(server.port).bind() as proxy,
        await TcpClient.create().port(proxy.port).connect() as connection,
    ):
        upload = Flux.range(100_000).map(lambda number: b"%d\n" % number)
        await connection.outbound.send(upload).end()
        answer = b"".join([chunk async for chunk in connection.inbound.receive()])
        print("through the proxy:", answer.decode())
        print("the proxy passed on the end of the upload before the answer began")


asyncio.run(main())
