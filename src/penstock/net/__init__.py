"""Sockets as streams: TCP, TLS, Unix and UDP, with backpressure that reaches the peer.

>>> import asyncio
>>> from penstock.net import TcpClient, TcpServer
>>> async def main():
...     echo = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
...     async with await echo.bind() as server:
...         async with await TcpClient.create().port(server.port).connect() as connection:
...             await connection.outbound.send(b"hello")
...             async for chunk in connection.inbound.receive().take(1):
...                 return chunk
>>> asyncio.run(main())
b'hello'
"""

from penstock.net.channel.inbound import Inbound
from penstock.net.channel.outbound import Outbound
from penstock.net.channel.tracking import Closed
from penstock.net.connection import Connection
from penstock.net.errors import (
    BindFailed,
    ConnectFailed,
    ConnectionAborted,
    HandshakeFailed,
    IdleTimeout,
    NetError,
    ReceiverTaken,
    SendRefused,
)
from penstock.net.loops import new_event_loop, run
from penstock.net.metrics import Metrics
from penstock.net.states import ConnectionObserver, State
from penstock.net.tcp.client import TcpClient
from penstock.net.tcp.server import RunningServer, TcpServer
from penstock.net.tls import BadCertificate
from penstock.net.wiretap import Wiretap, WiretapFormat

__all__ = [
    "BadCertificate",
    "BindFailed",
    "Closed",
    "ConnectFailed",
    "Connection",
    "ConnectionAborted",
    "ConnectionObserver",
    "HandshakeFailed",
    "IdleTimeout",
    "Inbound",
    "Metrics",
    "NetError",
    "Outbound",
    "ReceiverTaken",
    "RunningServer",
    "SendRefused",
    "State",
    "TcpClient",
    "TcpServer",
    "Wiretap",
    "WiretapFormat",
    "new_event_loop",
    "run",
]
