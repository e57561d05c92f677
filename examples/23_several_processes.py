"""Several processes serve one port, and the system deals out the connections among them."""

import asyncio
import multiprocessing
import os
import socket

from penstock.net import TcpClient, TcpServer, run


async def tell_who(inbound, outbound):
    await outbound.send(b"%d" % os.getpid())


async def serve(port, started):
    async with await TcpServer.create().port(port).reuse_port().handle(tell_who).bind() as server:
        started.release()
        await server.wait_closed()


def work(port, started):
    run(serve(port, started))


async def who(port):
    async with await TcpClient.create().port(port).connect() as connection:
        return int(await connection.inbound.receive().first())


async def everybody(port, expected):
    seen: set[int] = set()
    while seen != expected:
        seen.add(await who(port))
    return len(seen)


if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    started = spawn.Semaphore(0)
    with socket.socket() as reserved:  # Nobody listens here: it keeps the port until the workers have it.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        workers = [spawn.Process(target=work, args=(port, started)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for _ in workers:
            assert started.acquire(timeout=40), "a worker has not started"
    print(asyncio.run(everybody(port, {worker.pid for worker in workers})), "processes answered")
    for worker in workers:
        worker.terminate()
        worker.join()
