"""Finds the header of the PROXY protocol at the beginning of a connection, in pieces of any size."""

from __future__ import annotations

import os
import socket
import struct
from functools import cache
from typing import Final

from penstock.net.proxies.header import (
    LONGEST_TEXT,
    SIGNATURE,
    TEXT,
    ProxyAddress,
    ProxyHeader,
    Tlv,
    TlvType,
)

__all__ = ["HeaderParser"]


class _Malformed(Exception):
    """The bytes begin like a header, and are not one."""


_BEFORE_BLOCK: Final = 16
_FAMILIES: Final = {0x1: socket.AF_INET, 0x2: socket.AF_INET6}
_SIZES: Final = {0x0: 0, 0x1: 12, 0x2: 36, 0x3: 216}
"""How many bytes the addresses of a family take."""


class HeaderParser:
    """Takes the bytes of one header, and not one byte more."""

    __slots__ = ("_most", "absent", "begun", "fault", "header")

    def __init__(self, max_size: int = 4096) -> None:
        self._most = max_size
        self.begun = b""
        """The bytes that were taken so far."""
        self.header: ProxyHeader | None = None
        """The header, once all of it has been taken."""
        self.absent = False
        """Whether the bytes do not begin like a header."""
        self.fault: str | None = None
        """What is wrong with the header."""

    @property
    def done(self) -> bool:
        """Whether nothing more is to be taken: there is a header, or there will be none."""
        return self.absent or self.header is not None or self.fault is not None

    def take(self, data: bytes) -> int:
        """Take what belongs to the header, and return how many bytes that is."""
        if self.done:
            return 0
        before = len(self.begun)
        seen = self.begun + data
        if not any(seen.startswith(begin) or begin.startswith(seen) for begin in (SIGNATURE, TEXT)):
            self.absent = True
            return 0
        try:
            end = self._end_of(seen)
            if end is not None and end <= len(seen):
                seen = seen[:end]
                self.header = _text_header(seen) if seen.startswith(TEXT) else _binary_header(seen)
        except _Malformed as malformed:
            self.fault = str(malformed)
            return 0
        self.begun = seen
        return len(seen) - before

    def _end_of(self, seen: bytes) -> int | None:
        """Where the header ends, as soon as that is known."""
        if seen.startswith(SIGNATURE):
            if len(seen) < _BEFORE_BLOCK:
                return None
            size = _BEFORE_BLOCK + int.from_bytes(seen[14:16], "big")
            if size > self._most:
                raise _Malformed(f"it has {size:,} bytes, and max_size is {self._most:,}")
            return size
        if seen.startswith(TEXT):
            line_end = seen.find(b"\n", 0, LONGEST_TEXT)
            if line_end < 0 and len(seen) >= LONGEST_TEXT:
                raise _Malformed(f"its line does not end within {LONGEST_TEXT} bytes")
            return line_end + 1 or None
        return None


# ---------------------------------------------------------------- version 1
def _text_header(line: bytes) -> ProxyHeader:
    if not line.endswith(b"\r\n"):
        raise _Malformed("its line does not end with CR LF")
    try:
        words = line[len(TEXT) : -2].decode("ascii").split(" ")
    except UnicodeDecodeError:
        raise _Malformed("its line is not ASCII") from None
    if words[0] == "UNKNOWN":
        return ProxyHeader(version=1)  # Whatever follows means nothing.
    family = {"TCP4": socket.AF_INET, "TCP6": socket.AF_INET6}.get(words[0])
    if family is None:
        raise _Malformed("it names neither TCP4 nor TCP6 nor UNKNOWN")
    if len(words) != 5:
        raise _Malformed(f"it does not have two addresses and two ports after {words[0]}")
    source, destination = (_address(text, family) for text in words[1:3])
    from_port, to_port = (_port(text) for text in words[3:])
    return ProxyHeader((source, from_port), (destination, to_port), version=1)


def _address(text: str, family: int) -> str:
    try:
        return socket.inet_ntop(family, socket.inet_pton(family, text))
    except (OSError, ValueError):
        raise _Malformed("it has an address that does not fit its family") from None


def _port(text: str) -> int:
    if not text.isdigit() or len(text) > 5 or int(text) > 0xFFFF or (text[0] == "0" and text != "0"):
        raise _Malformed("it has a port that is not a number from 0 to 65535")
    return int(text)


# ---------------------------------------------------------------- version 2
def _binary_header(data: bytes) -> ProxyHeader:
    version_and_command, family_and_kind = data[12], data[13]
    if version_and_command >> 4 != 2:
        raise _Malformed(f"its version is {version_and_command >> 4}, which is not known")
    command, block = version_and_command & 0xF, data[_BEFORE_BLOCK:]
    if command > 1:
        raise _Malformed(f"its command is {command}, which is not known")
    if command == 0:
        return ProxyHeader(local=True)  # The proxy speaks for itself: the rest means nothing.
    family, kind = family_and_kind >> 4, family_and_kind & 0xF
    if family not in _SIZES or kind > 2:
        raise _Malformed(f"its family {family} or its kind of socket {kind} is not known")
    if family == 0 or kind == 0:
        return ProxyHeader(tlvs=_unknown_tlvs(block, data) if family == 0 else ())
    size = _SIZES[family]
    if len(block) < size:
        raise _Malformed(f"its addresses need {size} bytes, and it has {len(block)}")
    source, destination = _addresses(family, block[:size])
    return ProxyHeader(
        source, destination, datagram=kind == 2, tlvs=_tlvs(block[size:], data, _BEFORE_BLOCK + size)
    )


def _addresses(family: int, packed: bytes) -> tuple[ProxyAddress, ProxyAddress]:
    if family == 3:
        source, destination = (os.fsdecode(path.rstrip(b"\0")) for path in (packed[:108], packed[108:]))
        return source, destination
    size = (len(packed) - 4) // 2
    from_port, to_port = struct.unpack("!HH", packed[-4:])
    source, destination = (
        socket.inet_ntop(_FAMILIES[family], host) for host in (packed[:size], packed[size : 2 * size])
    )
    return (source, from_port), (destination, to_port)


def _unknown_tlvs(block: bytes, data: bytes) -> tuple[Tlv, ...]:
    """Without a family, the block may be anything: if it is not a list of TLVs, it is ignored."""
    try:
        return _tlvs(block, data, _BEFORE_BLOCK)
    except _NotTlvs:
        return ()


class _NotTlvs(_Malformed):
    """The rest of a header is not a list of TLVs."""


def _tlvs(block: bytes, data: bytes, offset: int) -> tuple[Tlv, ...]:
    """The TLVs in a block that begins at this offset of the header."""
    found, at = [], 0
    while at < len(block):
        if len(block) - at < 3:
            raise _NotTlvs("its last TLV is cut off")
        size = int.from_bytes(block[at + 1 : at + 3], "big")
        tlv = Tlv(block[at], block[at + 3 : at + 3 + size])
        if len(tlv.value) < size:
            raise _NotTlvs("its last TLV is cut off")
        if tlv.type == TlvType.CRC32C:
            _check(tlv.value, data, offset + at + 3)
        found.append(tlv)
        at += 3 + size
    return tuple(found)


# ---------------------------------------------------------------- the checksum
def _check(told: bytes, data: bytes, at: int) -> None:
    """A checksum counts with zeros in its own place."""
    if len(told) != 4 or int.from_bytes(told, "big") != crc32c(data[:at] + bytes(4) + data[at + 4 :]):
        raise _Malformed("its checksum is wrong")


def crc32c(data: bytes) -> int:
    """The CRC of RFC 4960, which is not the one that ``zlib`` has."""
    table, crc = _crc_table(), 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)
