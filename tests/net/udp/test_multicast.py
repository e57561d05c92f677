"""Groups are joined and left for real, on whichever interface of this machine carries them."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct

import pytest

from penstock.net import ConnectFailed, Datagram, MulticastFailed, UdpChannel, UdpClient, UdpServer
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.udp.waiting import LONG

on_each_loop = pytest.mark.parametrize("kind", LOOPS)

GROUPS = {4: ("239.255.77.1", "239.255.77.2", "0.0.0.0"), 6: ("ff12::7701", "ff12::7702", "::")}
each_version = pytest.mark.parametrize("version", GROUPS)


def carrying(version: int, *, besides: str = "") -> str:
    """The name of an interface on which a group can be reached; the loopback first, if it can do that."""
    group, _, anywhere = GROUPS[version]
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    refused = []
    for number, name in socket.if_nameindex():
        if name == besides:
            continue
        packed = ipaddress.ip_address(group).packed
        try:
            with (
                socket.socket(family, socket.SOCK_DGRAM) as member,
                socket.socket(family, socket.SOCK_DGRAM) as sender,
            ):
                member.bind((anywhere, 0))
                member.settimeout(1)
                if version == 4:
                    at = struct.pack("=4si", b"\0\0\0\0", number)
                    member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, packed + at)
                    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, b"\0\0\0\0" + at)
                else:
                    at = struct.pack("=I", number)
                    member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, packed + at)
                    sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, number)
                sender.sendto(b"?", (group, member.getsockname()[1]))
                member.recv(10)
                return name
        except OSError as error:
            refused.append(f"{name}: {error}")
    pytest.skip(f"no interface carries IPv{version} multicast here: {'; '.join(refused)}")


@on_each_loop
@each_version
def test_a_group_is_joined_and_left(kind: str, version: int) -> None:
    interface = carrying(version)
    group, other_group, anywhere = GROUPS[version]

    async def main() -> None:
        server = UdpServer.create().host(anywhere).join(group, interface=interface)
        sender = (
            UdpServer.create().host(anywhere).multicast(interface=interface, ttl=0 if version == 4 else 1)
        )
        async with await server.bind() as member, await sender.bind() as source:
            received = aiter(member.inbound.receive())

            async def said(group: str) -> None:
                """Only what is to the groups joined arrives; what is to the port itself always does."""
                await source.outbound.send(Datagram(b"to " + group.encode(), (group, member.port)))

            async def heard() -> bytes:
                return (await asyncio.wait_for(anext(received), LONG)).data

            await said(group)
            assert await heard() == b"to " + group.encode()
            member.join(other_group, interface=interface)
            member.leave(group, interface=interface)
            await said(group)
            await said(other_group)
            # The first of the two would have come first.
            assert await heard() == b"to " + other_group.encode()
            with pytest.raises(MulticastFailed, match=f"cannot leave {group}"):
                member.leave(group, interface=interface)

    run_on(kind, main())


@each_version
def test_the_options_of_the_sender_are_set(version: int) -> None:
    interface = carrying(version)
    number = socket.if_nametoindex(interface)
    _, _, anywhere = GROUPS[version]

    async def main() -> UdpChannel:
        settings = UdpServer.create().host(anywhere).multicast(interface=number, ttl=7, loop=False)
        async with await settings.bind() as channel:
            opened = channel.socket
            if version == 4:
                assert opened.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 7
                assert opened.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP) == 0
            else:
                assert opened.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS) == 7
                assert opened.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP) == 0
                assert opened.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF) == number
            return channel

    assert run_on("asyncio", main()).closed


def test_without_loop_this_machine_hears_nothing_of_itself() -> None:
    interface = carrying(4, besides="lo")  # where nothing but itself can be heard
    group = GROUPS[4][0]

    async def main() -> None:
        server = UdpServer.create().host("0.0.0.0").join(group, interface=interface)
        quiet = UdpServer.create().host("0.0.0.0").multicast(interface=interface, loop=False, ttl=0)
        heard = quiet.multicast(interface=interface, loop=True, ttl=0)
        async with await server.bind() as member, await quiet.bind() as silent, await heard.bind() as loud:
            await silent.outbound.send(Datagram(b"silent", (group, member.port)))
            await loud.outbound.send(Datagram(b"loud", (group, member.port)))
            assert (await member.inbound.receive().first()).data == b"loud"

    run_on("asyncio", main())


@on_each_loop
@each_version
def test_a_client_speaks_to_a_group(kind: str, version: int) -> None:
    interface = carrying(version)
    group, _, anywhere = GROUPS[version]

    async def main() -> None:
        server = UdpServer.create().host(anywhere).join(group, interface=interface)
        async with await server.bind() as member:
            client = UdpClient.create().host(group).port(member.port).multicast(interface=interface, ttl=1)
            async with await client.connect() as connected:
                await connected.outbound.send(b"to all of you")
                assert (await member.inbound.receive().first()).data == b"to all of you"

    run_on(kind, main())


def test_an_interface_may_be_given_by_its_address() -> None:
    carrying(4)
    group = GROUPS[4][0]

    async def main() -> None:
        async with (
            await UdpServer.create().host("0.0.0.0").join(group, interface="127.0.0.1").bind() as member
        ):
            sender = UdpServer.create().multicast(interface="127.0.0.1", ttl=0)
            async with await sender.bind() as source:
                await source.outbound.send(Datagram(b"x", (group, member.port)))
                assert (await member.inbound.receive().first()).address == source.address

    run_on("asyncio", main())


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="not a multicast address"):
        UdpServer.create().join("192.0.2.1")
    with pytest.raises(ValueError, match="from 0 to 255"):
        UdpServer.create().multicast(ttl=256)

    async def main() -> None:
        with pytest.raises(MulticastFailed, match=r"no network interface 'moon0'; there are .*lo"):
            await UdpServer.create().host("0.0.0.0").join("239.1.2.3", interface="moon0").bind()
        with pytest.raises(MulticastFailed, match=r"use host\('::'\)"):
            await UdpServer.create().join("ff12::1").bind()
        with pytest.raises(MulticastFailed, match="no network interface"):
            await UdpClient.create().port(9).multicast(interface="moon0").connect()
        with pytest.raises(ConnectFailed):
            await UdpClient.create().host("no-such-host.invalid").port(9).connect()

    run_on("asyncio", main())
