"""A UDP socket that speaks to one other."""

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
    """Says whom to speak to; :meth:`connect` makes the socket. The same one may connect many times.

    ::

        async with await UdpClient.create().host("localhost").port(9000).connect() as channel:
            await channel.outbound.send(b"ping")

    To connect means that the socket sends to this address alone, receives from it alone, and hears if nobody
    is there. It says nothing about whether somebody is: nothing has been sent yet.
    """

    @classmethod
    def create(cls) -> Self:
        """A client of this machine, until it is told otherwise."""
        return cls(UdpSettings(host="127.0.0.1"))

    async def connect(self) -> UdpChannel:
        """The socket, connected; ConnectFailed says why it is not."""
        if not self._settings.port:
            raise ValueError("connect() needs a port: UdpClient.create().host(…).port(…)")
        try:
            return await open_channel(self._settings, _connect, listening=False)
        except MulticastFailed:
            raise
        except OSError as error:  # TimeoutError is one
            raise ConnectFailed.to(self._settings.where, error) from error

    def connect_now(self, timeout: float = 45.0) -> UdpChannel:
        """Connect, from a thread that has no event loop; the socket lives on one in the background."""
        return block_on(self.connect(), timeout)


def _connect(opened: socket.socket, address: Address) -> Address:
    opened.connect(address)
    return opened.getpeername()  # type: ignore[no-any-return]
