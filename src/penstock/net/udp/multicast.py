"""Joining and leaving multicast groups, for IPv4 and IPv6."""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass

from penstock.arguments import a_whole_number
from penstock.net.errors import MulticastFailed

__all__ = ["Interface", "Membership", "MulticastSettings"]

Interface = str | int | None
"""A network interface: its name, its number, or for IPv4 its address. None lets the system choose."""


@dataclass(frozen=True, slots=True)
class Membership:
    """A multicast group, and the interface that it is received on."""

    group: str
    interface: Interface = None

    def __post_init__(self) -> None:
        try:
            multicast = ipaddress.ip_address(self.group).is_multicast
        except ValueError:
            multicast = False
        if not multicast:
            raise ValueError(
                f"join({self.group!r}): this is not a multicast address; those of IPv4 are 224.0.0.0 to "
                "239.255.255.255, those of IPv6 begin with ff"
            )

    def join(self, opened: socket.socket) -> None:
        """Receive what is sent to the group."""
        self._change(opened, "join", socket.IP_ADD_MEMBERSHIP, socket.IPV6_JOIN_GROUP)

    def leave(self, opened: socket.socket) -> None:
        """Stop receiving what is sent to the group."""
        self._change(opened, "leave", socket.IP_DROP_MEMBERSHIP, socket.IPV6_LEAVE_GROUP)

    def _change(self, opened: socket.socket, what: str, ipv4: int, ipv6: int) -> None:
        group = ipaddress.ip_address(self.group)
        family = socket.AF_INET if group.version == 4 else socket.AF_INET6
        if opened.family != family:
            raise MulticastFailed(
                f"cannot {what} {self}: this is an IPv{4 if group.version == 6 else 6} socket; "
                f"use host({'0.0.0.0' if group.version == 4 else '::'!r})"
            )
        try:
            if group.version == 4:
                opened.setsockopt(socket.IPPROTO_IP, ipv4, group.packed + _ipv4_interface(self.interface))
            else:
                number = struct.pack("=I", _number(self.interface))
                opened.setsockopt(socket.IPPROTO_IPV6, ipv6, group.packed + number)
        except OSError as error:
            failed = MulticastFailed(f"cannot {what} {self}: {error.strerror or error}")
            failed.errno = error.errno
            raise failed from error

    def __str__(self) -> str:
        return self.group if self.interface is None else f"{self.group} on {self.interface}"


@dataclass(frozen=True, slots=True)
class MulticastSettings:
    """How to send to a group: from which interface, how far, and whether this machine receives it too."""

    interface: Interface = None
    ttl: int | None = None
    loop: bool | None = None

    def __post_init__(self) -> None:
        if self.ttl is not None:
            a_whole_number(self.ttl, "ttl of multicast()", least=0, most=255)

    def apply(self, opened: socket.socket) -> None:
        """Set these options on a socket."""
        try:
            if opened.family == socket.AF_INET6:
                self._apply_ipv6(opened)
            else:
                self._apply_ipv4(opened)
        except OSError as error:
            failed = MulticastFailed(f"cannot set {self}: {error.strerror or error}")
            failed.errno = error.errno
            raise failed from error

    def _apply_ipv4(self, opened: socket.socket) -> None:
        level = socket.IPPROTO_IP
        if self.interface is not None:
            any_group = b"\0\0\0\0"
            opened.setsockopt(level, socket.IP_MULTICAST_IF, any_group + _ipv4_interface(self.interface))
        if self.ttl is not None:
            opened.setsockopt(level, socket.IP_MULTICAST_TTL, self.ttl)
        if self.loop is not None:
            opened.setsockopt(level, socket.IP_MULTICAST_LOOP, int(self.loop))

    def _apply_ipv6(self, opened: socket.socket) -> None:
        level = socket.IPPROTO_IPV6
        if self.interface is not None:
            opened.setsockopt(level, socket.IPV6_MULTICAST_IF, _number(self.interface))
        if self.ttl is not None:
            opened.setsockopt(level, socket.IPV6_MULTICAST_HOPS, self.ttl)
        if self.loop is not None:
            opened.setsockopt(level, socket.IPV6_MULTICAST_LOOP, int(self.loop))


def _ipv4_interface(interface: Interface) -> bytes:
    """The rest of ``struct ip_mreqn``: the address and the number of the interface."""
    address = b"\0\0\0\0"
    if isinstance(interface, str):
        try:
            address = ipaddress.IPv4Address(interface).packed
        except ValueError:
            return struct.pack("=4si", address, _number(interface))
        return struct.pack("=4si", address, 0)
    return struct.pack("=4si", address, _number(interface))


def _number(interface: Interface) -> int:
    if interface is None:
        return 0
    if isinstance(interface, int):
        return interface
    try:
        return socket.if_nametoindex(interface)
    except OSError as error:
        there = ", ".join(name for _, name in socket.if_nameindex())
        raise MulticastFailed(f"there is no network interface {interface!r}; there are {there}") from error
