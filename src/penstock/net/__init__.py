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
    ReceiveStopped,
    SendRefused,
)
from penstock.net.loops import new_event_loop, run
from penstock.net.metrics import Metrics
from penstock.net.states import ConnectionObserver, State
from penstock.net.tcp.client import TcpClient
from penstock.net.tcp.server import RunningServer, TcpServer
from penstock.net.tls import BadCertificate
from penstock.net.udp.channel import UdpChannel
from penstock.net.udp.client import UdpClient
from penstock.net.udp.datagram import Datagram
from penstock.net.udp.errors import DatagramOverflow, DatagramTooLarge, MulticastFailed
from penstock.net.udp.metrics import UdpMetrics
from penstock.net.udp.overflow import UdpOverflow
from penstock.net.udp.server import UdpServer
from penstock.net.udp.settings import UdpObserver
from penstock.net.udp.sides import UdpInbound, UdpOutbound
from penstock.net.wiretap import Wiretap, WiretapFormat

__all__ = [
    "BadCertificate",
    "BindFailed",
    "Closed",
    "ConnectFailed",
    "Connection",
    "ConnectionAborted",
    "ConnectionObserver",
    "Datagram",
    "DatagramOverflow",
    "DatagramTooLarge",
    "HandshakeFailed",
    "IdleTimeout",
    "Inbound",
    "Metrics",
    "MulticastFailed",
    "NetError",
    "Outbound",
    "ReceiveStopped",
    "ReceiverTaken",
    "RunningServer",
    "SendRefused",
    "State",
    "TcpClient",
    "TcpServer",
    "UdpChannel",
    "UdpClient",
    "UdpInbound",
    "UdpMetrics",
    "UdpObserver",
    "UdpOutbound",
    "UdpOverflow",
    "UdpServer",
    "Wiretap",
    "WiretapFormat",
    "new_event_loop",
    "run",
]
