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

from penstock.net.asyncio_transport import AsyncioTransport
from penstock.net.connection import Connection
from penstock.net.endpoint import EndpointObserver, EndpointState, SocketEndpoint
from penstock.net.errors import (
    AcquireTimeout,
    BindFailed,
    ConnectFailed,
    ConnectionAborted,
    DatagramOverflow,
    DatagramTooLarge,
    HandshakeFailed,
    IdleTimeout,
    LoopsClosed,
    MulticastFailed,
    NetError,
    PoolClosed,
    PoolFull,
    ReceiverTaken,
    ReceiveStopped,
    ResolveFailed,
    SendRefused,
)
from penstock.net.inbound import Inbound
from penstock.net.labels import address_text
from penstock.net.lifecycle import CloseReport, ConnectionObserver, ConnectionState
from penstock.net.loop_resources import LoopResources, Tenant
from penstock.net.loops import new_event_loop, run
from penstock.net.metrics import PoolMetrics, TcpMetrics, Traffic, UdpMetrics
from penstock.net.outbound import Outbound
from penstock.net.proxies.errors import ProxyAuthenticationFailed, ProxyFailed
from penstock.net.proxies.header import ProxyAddress, ProxyHeader, Tlv, TlvType
from penstock.net.proxies.protocol import ProxyProtocol
from penstock.net.proxies.proxy import Proxy
from penstock.net.self_signed import SelfSigned
from penstock.net.settings import Handler, SocketOption, SupportsFrames, TcpSettings
from penstock.net.tcp.client import TcpClient
from penstock.net.tcp.dialer import Resolver
from penstock.net.tcp.pool import ConnectionPool
from penstock.net.tcp.server import RunningServer, TcpServer
from penstock.net.tls import BadCertificate, ServerNames, TlsSession, TlsSettings
from penstock.net.transport import EventLoop, Flush, SocketHandle, TimerHandle, Transport, TransportEvents
from penstock.net.udp.channel import UdpChannel
from penstock.net.udp.client import UdpClient
from penstock.net.udp.datagram import Address, Datagram, OverflowSettings, UdpOverflow
from penstock.net.udp.multicast import Interface, Membership, MulticastSettings
from penstock.net.udp.server import UdpServer
from penstock.net.udp.settings import SendPace, UdpHandler, UdpObserver, UdpSettings
from penstock.net.udp.sides import UdpInbound, UdpOutbound
from penstock.net.wiretap import Wiretap, WiretapFormat

__all__ = [
    "AcquireTimeout",
    "Address",
    "AsyncioTransport",
    "BadCertificate",
    "BindFailed",
    "CloseReport",
    "ConnectFailed",
    "Connection",
    "ConnectionAborted",
    "ConnectionObserver",
    "ConnectionPool",
    "ConnectionState",
    "Datagram",
    "DatagramOverflow",
    "DatagramTooLarge",
    "EndpointObserver",
    "EndpointState",
    "EventLoop",
    "Flush",
    "Handler",
    "HandshakeFailed",
    "IdleTimeout",
    "Inbound",
    "Interface",
    "LoopResources",
    "LoopsClosed",
    "Membership",
    "MulticastFailed",
    "MulticastSettings",
    "NetError",
    "Outbound",
    "OverflowSettings",
    "PoolClosed",
    "PoolFull",
    "PoolMetrics",
    "Proxy",
    "ProxyAddress",
    "ProxyAuthenticationFailed",
    "ProxyFailed",
    "ProxyHeader",
    "ProxyProtocol",
    "ReceiveStopped",
    "ReceiverTaken",
    "ResolveFailed",
    "Resolver",
    "RunningServer",
    "SelfSigned",
    "SendPace",
    "SendRefused",
    "ServerNames",
    "SocketEndpoint",
    "SocketHandle",
    "SocketOption",
    "SupportsFrames",
    "TcpClient",
    "TcpMetrics",
    "TcpServer",
    "TcpSettings",
    "Tenant",
    "TimerHandle",
    "TlsSession",
    "TlsSettings",
    "Tlv",
    "TlvType",
    "Traffic",
    "Transport",
    "TransportEvents",
    "UdpChannel",
    "UdpClient",
    "UdpHandler",
    "UdpInbound",
    "UdpMetrics",
    "UdpObserver",
    "UdpOutbound",
    "UdpOverflow",
    "UdpServer",
    "UdpSettings",
    "Wiretap",
    "WiretapFormat",
    "address_text",
    "new_event_loop",
    "run",
]
