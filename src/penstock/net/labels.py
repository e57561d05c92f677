"""How sockets and connections are named: ``host:port``, ``[v6]:port`` or a path, and an id for the log."""

from __future__ import annotations

import os
import socket
import sys
from itertools import count
from typing import Any

__all__ = ["address_text", "let_go", "local_of", "new_id", "remote_of"]


def address_text(address: Any) -> str:
    """A socket's address as people write it. An IPv4 peer of an IPv6 socket has its IPv4 address."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[0].removeprefix("::ffff:") if "." in address[0] else address[0], address[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(address, bytes):
        address = os.fsdecode(address)
    if not address:
        return "unnamed"  # the client of a Unix socket
    text = str(address)
    return f"@{text[1:]}" if text.startswith("\0") else text


def local_of(transport: Any) -> str:
    """The address of this side."""
    return address_text(transport.get_extra_info("sockname"))


def remote_of(transport: Any) -> str:
    """The address of the peer. The client of a Unix socket has none, so its process is named."""
    peer = transport.get_extra_info("peername")
    if peer:
        return address_text(peer)
    return _caller(transport.get_extra_info("socket")) or "unnamed"


def _caller(connection: Any) -> str | None:
    if connection is None or not hasattr(socket, "SO_PEERCRED"):
        return None
    try:
        process = int.from_bytes(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder
        )
    except OSError:
        return None
    return f"process {process}"


def let_go(descriptor: int) -> None:
    """In a forked child: let go of a socket that the parent's event loop has, without a word to that loop.

    Something else takes the place of the descriptor, because its owner may still close it, and would close
    whatever had got its number meanwhile.
    """
    if descriptor >= 0:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.dup2(nothing, descriptor, inheritable=False)
        finally:
            os.close(nothing)


_SPREAD = 0x9E3779B1
"""An odd factor: consecutive numbers look different after it, and all 2^32 stay distinct."""


def _begin() -> None:
    global _numbers
    _numbers = count(int.from_bytes(os.urandom(4), "big"))


_numbers: count[int]
_begin()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)  # the workers of a server often share a log


def new_id() -> str:
    """A new id: eight characters, unique in this process. May be called on any thread."""
    return f"{next(_numbers) * _SPREAD & 0xFFFFFFFF:08x}"
