"""The header of the PROXY protocol: whom a proxy speaks for, in version 1 (text) and version 2 (binary).

A proxy opens a connection of its own to the server, so the server would see the proxy's address. The header
comes first on that connection, before TLS, and tells the address of the client.
"""

from __future__ import annotations

import enum
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from penstock.net.connection import Connection

__all__ = ["LONGEST_TEXT", "SIGNATURE", "TEXT", "ProxyAddress", "ProxyHeader", "Tlv", "TlvType"]

ProxyAddress = tuple[str, int] | str
"""An IP address with its port, or the path of a Unix socket."""

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
"""How a binary header begins."""
TEXT: Final = b"PROXY "
"""How a text header begins."""
LONGEST_TEXT: Final = 107
"""A text header has this many bytes at most, with its line end."""

_UNIX_PATH: Final = 108
_LONGEST_BLOCK: Final = 0xFFFF


class TlvType(enum.IntEnum):
    """The kinds of further information that version 2 defines. A proxy may send others."""

    ALPN = 0x01
    """The protocol that the client and the proxy have agreed on, such as ``h2``."""
    AUTHORITY = 0x02
    """The host name that the client asked for (SNI)."""
    CRC32C = 0x03
    """A checksum of the header. A server that sees one checks it."""
    NOOP = 0x04
    """Nothing: it fills space."""
    UNIQUE_ID = 0x05
    """An id that the proxy has given to the connection."""
    SSL = 0x20
    """What the proxy knows of the client's TLS, with entries of its own inside."""
    NETNS = 0x30
    """The name of the client's network namespace."""


class Tlv(NamedTuple):
    """A piece of further information: its type (a number, see :class:`TlvType`) and its bytes."""

    type: int
    value: bytes


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """Whom a connection is for: the client's address, and the address that the client connected to.

    Without addresses the proxy does not know, or does not tell (``UNKNOWN``).

    >>> ProxyHeader(("192.0.2.7", 40000), ("198.51.100.1", 443), version=1).encode()
    b'PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\\r\\n'
    """

    source: ProxyAddress | None = None
    """The client."""
    destination: ProxyAddress | None = None
    """Where the client connected to."""
    version: int = 2
    """1 for text, 2 for binary."""
    local: bool = False
    """The proxy speaks for itself, for instance to check whether the server is alive (version 2 only)."""
    datagram: bool = False
    """The client uses UDP, or a Unix socket of datagrams (version 2 only)."""
    tlvs: tuple[Tlv, ...] = ()
    """Further information (version 2 only)."""

    def __post_init__(self) -> None:
        """Refuse what no header can say."""
        if self.version not in (1, 2):
            raise ValueError(
                f"ProxyHeader(version={self.version!r}): the PROXY protocol has versions 1 and 2"
            )
        if (self.source is None) != (self.destination is None):
            raise ValueError("ProxyHeader(): pass both addresses, or none if they are not known")
        if self.version == 1 and (self.local or self.datagram or self.tlvs or isinstance(self.source, str)):
            raise ValueError(
                "ProxyHeader(version=1): the text form knows TCP addresses only; use version 2, or leave the "
                "addresses out"
            )
        if self.source is None and self.datagram:
            raise ValueError("ProxyHeader(datagram=True): pass the addresses")
        if self.local and (self.source is not None or self.tlvs):
            raise ValueError("ProxyHeader(local=True): a proxy that speaks for itself tells nothing else")
        object.__setattr__(self, "tlvs", tuple(_checked(Tlv(*tlv)) for tlv in self.tlvs))
        if self.source is not None and self.destination is not None:
            ours, theirs = _packed(self.source), _packed(self.destination)
            if ours.family != theirs.family:
                raise ValueError(
                    f"ProxyHeader(): {self.source!r} and {self.destination!r} are of different families; "
                    "both have to be IPv4, IPv6 or Unix"
                )
            object.__setattr__(self, "source", ours.address)
            object.__setattr__(self, "destination", theirs.address)
        if len(self._block()) > _LONGEST_BLOCK:
            raise ValueError("ProxyHeader(): with these TLVs the header is longer than 65,535 bytes")

    @classmethod
    def of(cls, connection: Connection, *, version: int = 2, tlvs: Iterable[Tlv] = ()) -> ProxyHeader:
        """The header with which a proxy passes on a connection that it has accepted.

        If that connection came with a header itself, the client of that one is passed on. Without IP
        addresses, as on a Unix socket, the header says UNKNOWN.
        """
        came = connection.proxy_header
        source: ProxyAddress | None = None if came is None else came.source
        destination: ProxyAddress | None = None if came is None else came.destination
        if source is None or (version == 1 and isinstance(source, str)):
            source, destination = _ip_address(connection.remote), _ip_address(connection.local)
        if source is None or destination is None:
            return cls(version=version, tlvs=tuple(tlvs))
        return cls(source, destination, version, tlvs=tuple(tlvs))

    def tlv(self, type: int) -> bytes | None:
        """The bytes of the first TLV of this type, or None."""
        return next((value for found, value in self.tlvs if found == type), None)

    def encode(self) -> bytes:
        """The bytes that begin a connection."""
        if self.version == 1:
            return self._text()
        block = self._block()
        command = 0x20 if self.local else 0x21
        family = 0 if self.source is None else _packed(self.source).family << 4 | (2 if self.datagram else 1)
        return SIGNATURE + struct.pack("!BBH", command, family, len(block)) + block

    def _text(self) -> bytes:
        if not isinstance(self.source, tuple) or not isinstance(self.destination, tuple):
            return b"PROXY UNKNOWN\r\n"
        (source, from_port), (destination, to_port) = self.source, self.destination
        family = "TCP6" if ":" in source else "TCP4"
        return f"PROXY {family} {source} {destination} {from_port} {to_port}\r\n".encode("ascii")

    def _block(self) -> bytes:
        addresses = b""
        if self.source is not None and self.destination is not None:
            source, destination = _packed(self.source), _packed(self.destination)
            addresses = source.host + destination.host + source.port + destination.port
        return addresses + b"".join(
            struct.pack("!BH", tlv.type, len(tlv.value)) + tlv.value for tlv in self.tlvs
        )


class _Packed(NamedTuple):
    """An address as version 2 has it: the number of its family, its bytes, and its usual spelling."""

    family: int
    host: bytes
    port: bytes
    address: ProxyAddress


def _packed(address: ProxyAddress) -> _Packed:
    if isinstance(address, str):
        path = os.fsencode(address)
        if len(path) > _UNIX_PATH or path.endswith(b"\0"):
            raise ValueError(f"ProxyHeader(): {address!r:.80} is not a path of at most 108 bytes")
        return _Packed(3, path.ljust(_UNIX_PATH, b"\0"), b"", address)
    host, port = address
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 0xFFFF:
        raise ValueError(f"ProxyHeader(): {port!r} is not a port")
    for number, family in ((1, socket.AF_INET), (2, socket.AF_INET6)):
        try:
            packed = socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return _Packed(number, packed, struct.pack("!H", port), (socket.inet_ntop(family, packed), port))
    raise ValueError(f"ProxyHeader(): {host!r:.80} is not an IP address; look up a name before")


def _checked(tlv: Tlv) -> Tlv:
    if not isinstance(tlv.value, bytes) or not isinstance(tlv.type, int) or not 0 <= tlv.type <= 0xFF:
        raise ValueError("ProxyHeader(tlvs=…): a TLV has a type from 0 to 255, and bytes")
    if len(tlv.value) > _LONGEST_BLOCK:
        raise ValueError("ProxyHeader(tlvs=…): a TLV has at most 65,535 bytes")
    return tlv


def _ip_address(text: str) -> tuple[str, int] | None:
    """The address in a text such as ``[::1]:80``, or None if it is not one."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]").partition("%")[0]
    if not port.isdecimal():
        return None
    try:
        packed = _packed((host, int(port)))
    except ValueError:
        return None
    return packed.address if isinstance(packed.address, tuple) else None
