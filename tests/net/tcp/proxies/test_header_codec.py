"""The header of the PROXY protocol: what is written is read again, in any pieces; garbage is refused."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net import ProxyHeader, Tlv, TlvType
from penstock.net.proxies.header import SIGNATURE
from penstock.net.proxies.parser import HeaderParser, crc32c

ports = st.integers(0, 65_535)
v4 = st.tuples(st.ip_addresses(v=4).map(str), ports)
v6 = st.tuples(st.ip_addresses(v=6).map(str), ports)
paths = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=27)
tlvs = st.lists(
    st.builds(Tlv, st.integers(0, 255).filter(lambda kind: kind != TlvType.CRC32C), st.binary(max_size=60)),
    max_size=4,
).map(tuple)


def texts() -> st.SearchStrategy[ProxyHeader]:
    known = st.one_of(st.tuples(v4, v4), st.tuples(v6, v6))
    return st.one_of(
        st.just(ProxyHeader(version=1)),
        known.map(lambda ends: ProxyHeader(*ends, version=1)),
    )


def binaries() -> st.SearchStrategy[ProxyHeader]:
    known = st.one_of(st.tuples(v4, v4), st.tuples(v6, v6), st.tuples(paths, paths))
    return st.one_of(
        st.just(ProxyHeader(local=True)),
        tlvs.map(lambda found: ProxyHeader(tlvs=found)),
        st.builds(
            lambda ends, datagram, found: ProxyHeader(*ends, datagram=datagram, tlvs=found),
            known,
            st.booleans(),
            tlvs,
        ),
    )


headers = st.one_of(texts(), binaries())


def header_of(data: bytes, max_size: int = 4096) -> ProxyHeader | None:
    """The header at the beginning of these bytes; None if more are needed."""
    parser = HeaderParser(max_size)
    parser.take(data)
    assert parser.fault is None
    assert not parser.absent
    return parser.header


def fault_of(data: bytes) -> str:
    """What is wrong with the header; nothing of it is taken."""
    parser = HeaderParser()
    assert parser.take(data) == 0
    assert parser.done
    assert (parser.header, parser.begun, parser.absent) == (None, b"", False)
    assert parser.take(data) == 0
    return str(parser.fault)


@given(header=headers, rest=st.binary(max_size=40), cuts=st.lists(st.integers(1, 300), max_size=12))
def test_what_is_written_is_read_again_in_any_pieces_and_the_rest_is_left(
    header: ProxyHeader, rest: bytes, cuts: list[int]
) -> None:
    data = header.encode() + rest
    parser, at = HeaderParser(), 0
    # A socket may deliver pieces of any size; what the parser leaves is seen again with the next piece.
    for size in [*cuts, len(data)]:
        at += parser.take(data[at : at + size])
        if parser.header is not None:
            break

    assert parser.header == header
    assert data[at:] == rest
    assert parser.take(b"more") == 0


@given(header=headers)
def test_byte_by_byte(header: ProxyHeader) -> None:
    data = header.encode()
    parser = HeaderParser()
    for number, byte in enumerate(data):
        assert parser.header is None, number
        assert parser.take(bytes([byte])) == 1

    assert parser.header == header


def is_garbage(data: bytes) -> bool:
    """Whether this is no header, nor the beginning of one beyond the words that every header begins with."""
    return not data.startswith((b"PROXY ", SIGNATURE)) or data in {b"PROXY ", SIGNATURE}


# The filter is needed: Hypothesis tries the constants that it finds in the modules under test.
@given(garbage=st.binary(max_size=300).filter(is_garbage))
def test_garbage_is_refused_or_waited_for_and_never_taken_for_a_header(garbage: bytes) -> None:
    parser = HeaderParser()
    taken = parser.take(garbage)

    assert parser.header is None
    assert parser.begun == garbage[:taken]
    if not parser.done:
        assert b"PROXY ".startswith(garbage) or SIGNATURE.startswith(garbage)


@given(begun=st.sampled_from([b"PROXY ", b"PROXY TCP4 ", SIGNATURE]), garbage=st.binary(max_size=300))
def test_garbage_after_a_good_beginning_is_a_fault_or_waited_for(begun: bytes, garbage: bytes) -> None:
    parser = HeaderParser()
    taken = parser.take(begun + garbage)

    assert not parser.absent
    assert parser.begun == (begun + garbage)[:taken]
    if parser.fault is None and parser.header is None:
        assert taken == len(begun + garbage) < 4096


@pytest.mark.parametrize(
    ("line", "source", "destination"),
    [
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\r\n", ("192.0.2.7", 40000), ("198.51.100.1", 443)),
        (b"PROXY TCP6 2001:DB8::7 ::1 1 65535\r\n", ("2001:db8::7", 1), ("::1", 65535)),
        (b"PROXY UNKNOWN\r\n", None, None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535 and whatever\r\n", None, None),
    ],
)
def test_text_as_the_specification_writes_it(
    line: bytes, source: tuple[str, int] | None, destination: tuple[str, int] | None
) -> None:
    assert header_of(line) == ProxyHeader(source, destination, version=1)


def test_binary_as_the_specification_writes_it() -> None:
    data = bytes.fromhex("0d0a0d0a000d0a515549540a 21 11 000c c0000207 c6336401 9c40 01bb")
    header = ProxyHeader(("192.0.2.7", 40000), ("198.51.100.1", 443))

    assert header.encode() == data
    assert header_of(data) == header


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\n", "CR LF"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 40000\r\n", "two ports"),
        (b"PROXY TCP4  192.0.2.7 198.51.100.1 40000 443\r\n", "two ports"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 443 1\r\n", "two ports"),
        (b"PROXY TCP4 192.0.2.07 198.51.100.1 40000 443\r\n", "address"),
        (b"PROXY TCP4 ::1 198.51.100.1 40000 443\r\n", "address"),
        (b"PROXY TCP6 192.0.2.7 ::1 40000 443\r\n", "address"),
        (b"PROXY TCP6 fe80::1%eth0 ::1 40000 443\r\n", "address"),
        (b"PROXY TCP4 localhost 198.51.100.1 40000 443\r\n", "address"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n", "port"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 443\r\n", "port"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1 0443 443\r\n", "port"),
        (b"PROXY TCP4 192.0.2.7 198.51.100.1  443\r\n", "port"),
        (b"PROXY UDP4 192.0.2.7 198.51.100.1 40000 443\r\n", "neither TCP4"),
        (b"PROXY tcp4 192.0.2.7 198.51.100.1 40000 443\r\n", "neither TCP4"),
        (b"PROXY TCP4 192.0.2.\xb2 198.51.100.1 40000 443\r\n", "ASCII"),
        (b"PROXY UNKNOWN " + b"x" * 100 + b"\r\n", "107 bytes"),
    ],
)
def test_text_that_is_almost_right_is_refused(line: bytes, why: str) -> None:
    assert why in fault_of(line)


def binary(command: int, family: int, block: bytes) -> bytes:
    return SIGNATURE + struct.pack("!BBH", command, family, len(block)) + block


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (binary(0x11, 0x11, bytes(12)), "version is 1"),
        (binary(0x22, 0x11, bytes(12)), "command is 2"),
        (binary(0x21, 0x41, bytes(12)), "family 4"),
        (binary(0x21, 0x13, bytes(12)), "kind of socket 3"),
        (binary(0x21, 0x11, bytes(11)), "need 12 bytes, and it has 11"),
        (binary(0x21, 0x21, bytes(35)), "need 36 bytes"),
        (binary(0x21, 0x31, bytes(215)), "need 216 bytes"),
        (binary(0x21, 0x11, bytes(12) + b"\x01\x00"), "TLV is cut off"),
        (binary(0x21, 0x11, bytes(12) + b"\x01\x00\x02x"), "TLV is cut off"),
        (binary(0x21, 0x11, bytes(5000)), "5,016 bytes, and max_size is 4,096"),
    ],
)
def test_binary_that_is_almost_right_is_refused(data: bytes, why: str) -> None:
    assert why in fault_of(data)


def test_the_size_is_refused_before_the_rest_has_arrived() -> None:
    assert "max_size" in fault_of(binary(0x21, 0x11, bytes(60_000))[:16])


@pytest.mark.parametrize("block", [b"", bytes(12), b"\x01", b"anything at all"])
def test_of_a_proxy_that_speaks_for_itself_the_rest_means_nothing(block: bytes) -> None:
    assert header_of(binary(0x20, 0x11, block)) == ProxyHeader(local=True)


@pytest.mark.parametrize("block", [b"\x01", b"\x01\x00\x09x"])
def test_of_an_unknown_family_the_rest_may_mean_nothing(block: bytes) -> None:
    assert header_of(binary(0x21, 0x00, block)) == ProxyHeader()


def with_checksum(wrong: int = 0) -> bytes:
    block = bytes(12) + b"\x02\x00\x05x.org" + b"\x03\x00\x04" + bytes(4)
    data = binary(0x21, 0x11, block)
    return data[:-4] + struct.pack("!I", crc32c(data) ^ wrong)


def test_a_checksum_is_checked() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    header = header_of(with_checksum())
    assert header is not None
    assert header.tlv(TlvType.AUTHORITY) == b"x.org"
    assert header.tlv(TlvType.UNIQUE_ID) is None
    assert "checksum" in fault_of(with_checksum(wrong=1))


def test_an_ipv4_address_inside_ipv6_stays_what_it_is() -> None:
    header = ProxyHeader(("::ffff:192.0.2.7", 1), ("::ffff:198.51.100.1", 2))

    assert header_of(header.encode()) == header
    assert ipaddress.IPv6Address(header.source[0]).ipv4_mapped  # type: ignore[index]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"version": 3}, "versions 1 and 2"),
        ({"source": ("192.0.2.7", 1)}, "both addresses"),
        ({"source": ("192.0.2.7", 1), "destination": ("::1", 1)}, "different families"),
        ({"source": ("example.org", 1), "destination": ("::1", 1)}, "not an IP address"),
        ({"source": ("192.0.2.7", 70_000), "destination": ("192.0.2.7", 1)}, "not a port"),
        ({"source": "x" * 109, "destination": "y"}, "108 bytes"),
        ({"source": "x", "destination": "y", "version": 1}, "TCP addresses only"),
        ({"local": True, "version": 1}, "TCP addresses only"),
        ({"tlvs": ((2, b"x"),), "version": 1}, "TCP addresses only"),
        ({"tlvs": ((256, b"x"),)}, "from 0 to 255"),
        ({"tlvs": ((2, b"x" * 40_000), (2, b"x" * 40_000))}, "longer than 65,535"),
        ({"tlvs": ((2, b"x" * 70_000),)}, "65,535 bytes"),
        ({"datagram": True}, "pass the addresses"),
        ({"local": True, "tlvs": ((2, b"x"),)}, "tells nothing else"),
    ],
)
def test_a_header_that_cannot_be_written_is_refused_when_it_is_made(
    arguments: dict[str, object], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        ProxyHeader(**arguments)  # type: ignore[arg-type]
