"""A few routes: the right function, its answer in any shape, and proper refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.net.http import Http, Request, reply
from penstock.streams import Flux, Mono
from tests.net.http.conversing import PATIENCE, Exchange, answered


async def later(request: Request) -> str:
    await asyncio.sleep(0)
    return request.path["name"]


def wrong(request: Request) -> Any:
    raise RuntimeError("this route broke")


app = (
    Http()
    .get("/", lambda request: "root")
    .get("/bytes", lambda request: b"bytes")
    .get("/flux", lambda request: Flux.range(2))
    .get("/mono", lambda request: Mono.just({"a": 1}))
    .get("/later/{name}", later)
    .get("/query", lambda request: ndjson_of(request.query))
    .get("/headers", lambda request: request.headers["x-mine"])
    .get("/teapot", lambda request: reply("short and stout", status=418))
    .get("/a.b", lambda request: "a dot is a dot")
    .get("/wrong", wrong)
    .get("/nothing", lambda request: None)  # type: ignore[arg-type, return-value]
    .post("/", lambda request: "posted")
    .put("/", lambda request: "put")
    .route("DELETE", "/", lambda request: "deleted")
)


def ndjson_of(thing: Any) -> Mono[Any]:
    return Mono.just(thing)


def ask(path: str, method: str = "GET", query: bytes = b"") -> tuple[int, bytes]:
    async def one() -> Exchange:
        exchange = Exchange(method=method, path=path)
        exchange.scope["query_string"] = query
        exchange.scope["headers"] = [(b"X-Mine", b"yes")]
        exchange.chunk(b"", more=False)
        await asyncio.wait_for(exchange.start(app), PATIENCE)
        return exchange

    exchange = asyncio.run(one())
    return exchange.status, b"".join(exchange.bodies)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", b"root"),
        ("/bytes", b"bytes"),
        ("/flux", b"0\n1\n"),
        ("/mono", b'{"a":1}\n'),
        ("/later/ada", b"ada"),
        ("/headers", b"yes"),
        ("/a.b", b"a dot is a dot"),
    ],
)
def test_a_path_finds_its_function(path: str, expected: bytes) -> None:
    assert ask(path) == (200, expected)


@pytest.mark.parametrize(
    ("method", "expected"), [("POST", b"posted"), ("PUT", b"put"), ("DELETE", b"deleted")]
)
def test_so_does_a_method(method: str, expected: bytes) -> None:
    assert ask("/", method) == (200, expected)


def test_a_query_is_taken_apart() -> None:
    assert ask("/query", query=b"a=1&b=zw%C3%B6lf&c=") == (200, '{"a":"1","b":"zwölf","c":""}\n'.encode())


def test_a_response_is_passed_on() -> None:
    assert ask("/teapot") == (418, b"short and stout")


@pytest.mark.parametrize("path", ["/aXb", "/later/", "/later/a/b", "/elsewhere"])
def test_what_is_not_there_is_a_404(path: str) -> None:
    assert ask(path)[0] == 404


def test_what_is_there_for_others_is_a_405() -> None:
    exchange = asyncio.run(answered(app, method="PATCH"))

    assert exchange.status == 405
    assert exchange.headers[b"allow"] == b"DELETE, GET, POST, PUT"


@pytest.mark.parametrize(("path", "said"), [("/wrong", "this route broke"), ("/nothing", "a route returns")])
def test_a_function_that_fails_is_a_500(path: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(path) == (500, b"the server could not produce this response\n")
    assert said in caplog.text


@pytest.mark.parametrize("path", ["", "relative"])
def test_a_path_begins_with_a_slash(path: str) -> None:
    with pytest.raises(ValueError, match="slash"):
        Http().get(path, lambda request: "")


def test_a_route_needs_a_function() -> None:
    with pytest.raises(TypeError, match="needs a function"):
        Http().get("/", "text")  # type: ignore[arg-type]


def test_the_application_starts_and_stops() -> None:
    async def live() -> list[str]:
        exchange = Exchange(kind="lifespan")
        for moment in ("startup", "shutdown"):
            exchange.incoming.put_nowait({"type": f"lifespan.{moment}"})
        await asyncio.wait_for(exchange.start(app), PATIENCE)
        return [message["type"] for message in exchange.sent]

    assert asyncio.run(live()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_another_protocol_is_refused() -> None:
    with pytest.raises(RuntimeError, match="'telnet'"):
        asyncio.run(answered(app, kind="telnet"))
