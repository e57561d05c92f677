"""A forked child that uses a connection of its parent."""

from __future__ import annotations

import os

import pytest

from tests.streams.schedulers.child import IN_CHILD, run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

CONNECTION = f"""{IN_CHILD}
from functools import partial
from penstock.net import NetError, TcpClient, TcpServer, UdpClient, UdpServer

in_child = partial(in_child, told="the parent process at a fork", refused=NetError)
"""

TCP = """
server = TcpServer.create().host("127.0.0.1").port(0).handle(lambda i, o: o.send(i.receive())).bind_now()
client = TcpClient.create().host("127.0.0.1").port(server.port).connect_now()
"""


@pytest.mark.parametrize(
    "use",
    [
        "next(iter(client.inbound.receive()))",
        "client.outbound.send(b'child').mono().block()",
        "client.on_dispose().block()",
    ],
)
def test_a_child_is_told_that_a_connection_belongs_to_its_parent_which_goes_on_with_it(use: str) -> None:
    printed = run_script(f"""{CONNECTION}{TCP}
in_child(lambda: {use})
client.outbound.send(b"parent").mono().block()
print(next(iter(client.inbound.receive())))
client.close()
client.on_dispose().block()
server.close_now()
""")

    assert printed == "child True\nb'parent'\n"


def test_a_child_is_told_that_a_socket_for_datagrams_belongs_to_its_parent() -> None:
    printed = run_script(f"""{CONNECTION}
server = UdpServer.create().host("127.0.0.1").port(0).bind_now()
in_child(lambda: next(iter(server.inbound.receive())))
server.close_now()
""")

    assert printed == "child True\n"


def test_a_child_opens_connections_of_its_own() -> None:
    printed = run_script(f"""{CONNECTION}{TCP}
def own():
    client = TcpClient.create().host("127.0.0.1").port(server.port).connect_now()
    client.outbound.send(b"own").mono().block()
    return next(iter(client.inbound.receive()))
in_child(own)
client.close()
client.on_dispose().block()
server.close_now()
""")

    assert printed == "child b'own'\n"


def test_a_child_goes_on_with_a_loop_that_did_not_run() -> None:
    printed = run_script(f"""{CONNECTION}
import asyncio

loop = asyncio.new_event_loop()

def echo(inbound, outbound):
    return outbound.send(inbound.receive())

async def begin():
    server = await TcpServer.create().host("127.0.0.1").port(0).handle(echo).bind()
    return server, await TcpClient.create().host("127.0.0.1").port(server.port).connect()

server, client = loop.run_until_complete(begin())

async def end():
    await client.outbound.send(b"both")
    elements = [await client.inbound.receive().first()]
    await client.aclose()
    await server.aclose()
    return elements

in_child(lambda: loop.is_closed())
print(loop.run_until_complete(end()))
loop.close()
""")

    assert printed == "child False\n[b'both']\n"
