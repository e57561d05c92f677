"""A UDP client: a socket with one peer."""

from __future__ import annotations

import socket
from typing import Self

from penstock.net.errors import ConnectFailed, MulticastFailed
from penstock.net.loops import block_on
from penstock.net.udp.channel import UdpChannel, open_channel
from penstock.net.udp.datagram import Address
from penstock.net.udp.settings import UdpBuilder, UdpSettings

__all__ = ["UdpClient"]


class UdpClient(UdpBuilder):
    """The configuration of a client. :meth:`connect` opens a socket, as often as you like.

    ::

        async with await UdpClient.create().host("localhost").port(9000).connect() as channel:
            await channel.outbound.send(b"ping")

    A connected UDP socket sends to one address only, receives from that address only, and is told if nobody
    is there. That connecting succeeds does not mean that somebody is: nothing has been sent yet.
    """

    @classmethod
    def create(cls) -> Self:
        """A client of this machine, until you say otherwise."""
        return cls(UdpSettings(host="127.0.0.1"))

    async def connect(self) -> UdpChannel:
        """Open a connected socket; ConnectFailed says why there is none."""
        loops = self._settings.loops
        return await (self._connect() if loops is None else loops.open(self._connect))

    async def _connect(self) -> UdpChannel:
        if not self._settings.port:
            raise ValueError("connect() needs a port: UdpClient.create().host(…).port(…)")
        try:
            return await open_channel(self._settings, _connect, listening=False)
        except MulticastFailed:
            raise
        except OSError as error:  # TimeoutError is one
            raise ConnectFailed.to(self._settings.where, error) from error

    def connect_now(self, timeout: float = 45.0) -> UdpChannel:
        """Connect, from a thread without an event loop. The socket lives on one in the background."""
        loops = self._settings.loops
        if loops is not None:
            return loops.open_now(self._connect, timeout)
        return block_on(self._connect, timeout)


def _connect(opened: socket.socket, address: Address) -> Address:
    opened.connect(address)
    peer: Address = opened.getpeername()
    return peer
