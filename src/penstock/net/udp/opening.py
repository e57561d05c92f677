"""Opening a UDP socket: every address of the host in turn, options first."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from penstock.net.udp.channel import UdpChannel
from penstock.net.udp.datagram import Address
from penstock.net.udp.settings import UdpSettings

__all__ = ["open_channel"]


async def open_channel(
    settings: UdpSettings,
    attach: Callable[[socket.socket, Address], Address | None],
    *,
    listening: bool,
) -> UdpChannel:
    """A channel on a new socket; ``attach`` binds or connects it, and returns the peer if there is one.

    Raises the OSError of the last address if none will do.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(settings.lookup_timeout):
        found = await loop.getaddrinfo(
            settings.host,
            settings.port,
            type=socket.SOCK_DGRAM,
            proto=socket.IPPROTO_UDP,
            flags=socket.AI_PASSIVE if listening else 0,
        )
    failed: OSError | None = None
    for family, kind, protocol, _, address in found:
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setblocking(False)
            for option in settings.options:
                # Before the address is taken: SO_REUSEADDR and others mean nothing afterwards.
                option.apply(opened)
            if settings.multicast is not None:
                settings.multicast.apply(opened)
            peer = attach(opened, address)
            for membership in settings.memberships:
                membership.join(opened)
            channel = UdpChannel(settings, opened, peer)
            channel.begin()
            return channel
        except OSError as error:
            opened.close()
            failed = error
        except BaseException:
            opened.close()
            raise
    raise failed or OSError(f"no address was found for {settings.where}")
