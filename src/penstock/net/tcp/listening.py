"""The sockets that a server listens on, with their options set before they are bound.

Some options mean nothing afterwards (``SO_REUSEPORT``), and some cannot be set any more (``IPV6_V6ONLY``).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
from typing import Any

from penstock.net.settings import Settings

__all__ = ["listening_sockets"]


async def listening_sockets(settings: Settings) -> list[socket.socket]:
    """One for each address that the host stands for, bound; or the one of a path."""
    if settings.path is not None:
        await _make_way(settings.path)
        return [_bound(settings, socket.AF_UNIX, settings.path)]
    found = await asyncio.get_running_loop().getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in addresses:
            try:
                sockets.append(_bound(settings, family, address))
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error  # A name may stand for an address of IPv6 on a machine that has none.
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    if not sockets and missing is not None:
        raise missing
    return sockets


def _bound(settings: Settings, family: int, address: Any) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        if family != socket.AF_UNIX and os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Not whatever the system has set: "::" and "0.0.0.0" may be two servers.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for option in settings.options:
            option.apply(listening)
        listening.bind(address)
    except BaseException:
        listening.close()
        raise
    return listening


async def _make_way(path: str) -> None:
    """A socket that a dead server left is removed; one that answers belongs to somebody."""
    if path.startswith("\0") or not os.path.exists(path):
        return
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "there is a file that is no socket")
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.setblocking(False)
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(probe, path), 1.0)
    except (ConnectionRefusedError, FileNotFoundError):
        with contextlib.suppress(FileNotFoundError):  # somebody else has just removed it
            os.unlink(path)
        return
    finally:
        probe.close()
    raise OSError(errno.EADDRINUSE, "a server answers there")
