"""A UDP server: a socket that receives from anybody."""

from __future__ import annotations

import logging
import socket
from typing import Self

from penstock.net.errors import BindFailed, MulticastFailed
from penstock.net.loops import block_on
from penstock.net.udp.channel import UdpChannel, open_channel
from penstock.net.udp.datagram import Address
from penstock.net.udp.multicast import Interface, Membership
from penstock.net.udp.settings import UdpBuilder, UdpSettings

__all__ = ["UdpServer"]

_log = logging.getLogger("penstock.net")


class UdpServer(UdpBuilder):
    """The configuration of a server. :meth:`bind` starts one; the same configuration may be bound many times.

    ::

        server = await (
            UdpServer.create()
            .port(9000)
            .overflow(UdpOverflow.DROP_OLDEST, capacity=1000)
            .handle(lambda inbound, outbound: outbound.send(inbound.receive()))
            .bind()
        )
        async with server:
            await server.wait_closed()

    A received datagram carries the address of its sender, so sending it back is an echo. Without
    ``handle(…)`` you use the two sides of the channel and close it.
    """

    @classmethod
    def create(cls) -> Self:
        """A server on the loopback address and any free port, until you say otherwise."""
        return cls(UdpSettings(host="127.0.0.1"))

    def join(self, group: str, *, interface: Interface = None) -> Self:
        """Join a multicast group from the start. The channel's own ``join()`` does so later."""
        return self._with(memberships=(*self._settings.memberships, Membership(group, interface)))

    async def bind(self) -> UdpChannel:
        """Bind the address. The server runs on this loop, or on one of ``run_on()``, until it is closed."""
        loops = self._settings.loops
        return await (self._bind() if loops is None else loops.open(self._bind))

    async def _bind(self) -> UdpChannel:
        try:
            channel = await open_channel(self._settings, _bind, listening=True)
        except MulticastFailed:
            raise
        except OSError as error:  # TimeoutError is one
            raise BindFailed.at(self._settings.where, error) from error
        _log.info("%s is receiving datagrams", channel.label)
        return channel

    def bind_now(self, timeout: float = 45.0) -> UdpChannel:
        """Bind, from a thread without an event loop. The server runs on one in the background."""
        loops = self._settings.loops
        if loops is not None:
            return loops.open_now(self._bind, timeout)
        return block_on(self._bind, timeout)


def _bind(opened: socket.socket, address: Address) -> None:
    opened.bind(address)
