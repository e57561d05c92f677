"""A few routes: the right function, its answer in any shape, and proper refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.net.http import Http, Request, reply, stream
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


def test_a_header_and_a_parameter_may_have_several_values() -> None:
    exchange = Exchange()
    exchange.scope["headers"] = [(b"Accept", b"a"), (b"x-other", b"-"), (b"accept", b"b, c")]
    exchange.scope["query_string"] = b"tag=1&other=&tag=2"
    request = Request(exchange.scope, exchange.receive, {})

    assert request.header_values("ACCEPT") == ["a", "b, c"]
    assert request.header_values("absent") == []
    assert request.query_values("tag") == ["1", "2"]
    assert request.query_values("other") == [""]


@pytest.mark.parametrize("told", [True, False], ids=["a server that can", "one that cannot"])
def test_a_websocket_at_a_wrong_path_is_a_404_where_the_server_can_say_so(told: bool) -> None:
    async def one() -> list[Any]:
        exchange = Exchange(kind="websocket", path="/nowhere")
        exchange.scope["extensions"] = {"websocket.http.response": {}} if told else {}
        exchange.incoming.put_nowait({"type": "websocket.connect"})
        await asyncio.wait_for(exchange.start(app), PATIENCE)
        return exchange.sent

    sent = asyncio.run(one())

    if told:
        assert [message["type"].rsplit(".", 1)[1] for message in sent] == ["start", "body"]
        assert sent[0]["status"] == 404
    else:
        assert [message["type"] for message in sent] == ["websocket.close"]


counting = (
    Http()
    .body_limit(10)
    .request_timeout(PATIENCE)
    .post("/count", lambda request: request.body().map(len).reduce(lambda a, b: a + b))
    .post("/echo", lambda request: stream(request.body()))
    .post("/ignore", lambda request: "ignored")
)


hurried = counting.request_timeout(0.05)


def sent_to(
    path: str, *chunks: bytes, announced: bytes | None = None, whole: bool = True, app: Http = counting
) -> tuple[int, bytes]:
    async def one() -> Exchange:
        exchange = Exchange(method="POST", path=path)
        if announced is not None:
            exchange.scope["headers"] = [(b"content-length", announced)]
        for number, chunk in enumerate(chunks, 1):
            exchange.chunk(chunk, more=number < len(chunks) or not whole)
        await asyncio.wait_for(exchange.start(app), PATIENCE)
        return exchange

    exchange = asyncio.run(one())
    return exchange.status, b"".join(exchange.bodies)


@pytest.mark.parametrize(
    ("announced", "status"), [(b"9" * 5000, 413), (b"0" * 5000 + b"11", 413), (b"0" * 5000 + b"5", 200)]
)
def test_a_size_with_thousands_of_digits_is_a_size(announced: bytes, status: int) -> None:
    assert sent_to("/count", b"12345", announced=announced)[0] == status


@pytest.mark.parametrize("path", ["/count", "/echo"])
def test_a_body_above_the_limit_is_a_413(path: str) -> None:
    assert sent_to(path, b"12345", b"67890")[0] == 200
    assert sent_to(path, b"12345678901")[0] == 413


def test_a_body_that_is_announced_above_the_limit_is_refused_before_it_is_read() -> None:
    assert sent_to("/ignore", b"", announced=b"10") == (200, b"ignored")
    status, text = sent_to("/ignore", b"", announced=b"11")
    assert status == 413
    assert b"more than 10 bytes" in text


@pytest.mark.parametrize("path", ["/count", "/echo"])
def test_a_body_that_does_not_arrive_in_time_is_a_408(path: str) -> None:
    status, _ = sent_to(path, *([b"12"] if path == "/count" else [b""]), whole=False, app=hurried)
    assert status == 408


def test_a_function_that_does_not_read_has_all_the_time() -> None:
    assert sent_to("/ignore", b"12", whole=False, app=hurried) == (200, b"ignored")


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="body_limit"):
        Http().body_limit(-1)
    with pytest.raises(ValueError, match="request_timeout"):
        Http().request_timeout(0)
