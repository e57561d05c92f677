"""The access log under every server."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.net.http.serving import PATIENCE, Served

pytestmark = pytest.mark.slow


def logged(server: Served, path: str) -> dict[str, Any]:
    """The line for this path; it is written when the exchange is over, which may be after the client is."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        text = (server.folder / "access.log").read_text()
        lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
        found = [line for line in lines if line["path"] == path]
        if found:
            assert len(found) == 1
            return dict(found[0])
        time.sleep(0.02)
    raise AssertionError(f"no line for {path}: {text}")


def test_a_request(server: Served) -> None:
    server.ask.get("/numbers/10", headers={"user-agent": "tests"})

    found = logged(server, "/numbers/10")
    assert (found["peer"], found["method"], found["status"], found["sent"]) == ("127.0.0.1", "GET", 200, 20)
    assert (found["complete"], found["agent"]) == (True, "tests")
    assert found["seconds"] >= 0


def test_a_client_that_leaves(server: Served) -> None:
    with server.ask.stream("GET", "/silent/logged") as answer:
        assert next(answer.iter_raw()) == b"first\n"

    found = logged(server, "/silent/logged")
    assert (found["status"], found["sent"], found["complete"]) == (200, 6, False)


def test_a_source_that_fails(server: Served) -> None:
    with server.connection() as client:
        client.sendall(b"GET /fails/7 HTTP/1.1\r\nHost: test\r\n\r\n")
        while client.recv(65536):
            pass

    found = logged(server, "/fails/7")
    assert (found["status"], found["complete"]) == (200, False)


def test_a_websocket(server: Served) -> None:
    async def talk() -> None:
        async with connect(server.ws("/echo")) as client:
            await client.send("hello")
            assert await client.recv() == "hello"

    asyncio.run(asyncio.wait_for(talk(), PATIENCE))
    found = logged(server, "/echo")
    assert (found["method"], found["status"], found["sent"], found["received"]) == ("WS", 101, 5, 5)
    assert found["close_code"] in (1000, 1006)  # hypercorn does not pass on the client's code


def test_a_line_end_in_a_path(server: Served) -> None:
    with server.connection() as client:
        client.sendall(
            b"GET /x%0a%7B%22path%22:%22/forged%22%7D HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
        )
        while client.recv(65536):
            pass

    assert logged(server, '/x\n{"path":"/forged"}')["status"] == 404
    assert '\n{"path":"/forged' not in (server.folder / "access.log").read_text()
