"""The event loop is behind the transports: nothing above them knows asyncio."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import penstock.net
from penstock.net import Connection, EventLoop, Transport, TransportEvents
from penstock.net.bridge import Bridge
from penstock.net.udp.transport import DatagramTransport
from tests.net.memory.transports import MemoryDatagrams, MemoryLoop, MemoryTransport, connected

FOLDER = Path(penstock.net.__file__).parent

ABOVE = [
    "connection.py",
    "echo.py",
    "handler.py",
    "inbound.py",
    "lifecycle.py",
    "outbound.py",
    "receiver.py",
    "sender.py",
    "sole_publisher.py",
    "transport.py",
    "udp/receiver.py",
    "udp/sender.py",
]


@pytest.mark.parametrize("name", ABOVE)
def test_what_stands_above_a_transport_imports_no_event_loop(name: str) -> None:
    tree = ast.parse((FOLDER / name).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {one for one in imported if one.split(".")[0] in ("asyncio", "uvloop")}
    assert not {one for one in imported if one.endswith((".asyncio_transport", ".bridge"))} - {
        "penstock.net.bridge"  # for the type checker alone
    }


def test_the_transports_of_the_tests_are_transports() -> None:
    loop: EventLoop = MemoryLoop()
    transport: Transport = MemoryTransport(MemoryLoop())
    datagrams: DatagramTransport = MemoryDatagrams(MemoryLoop())
    connection, _, _ = connected()
    bridge: TransportEvents = connection._bridge
    assert loop.time() == transport.get_write_buffer_size() == 0
    assert datagrams.loop is not loop
    assert isinstance(bridge, Bridge)
    assert isinstance(connection, Connection)
