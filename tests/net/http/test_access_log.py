"""One line for each request, whatever becomes of it, and no line that a client has written."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.net.http import AccessEntry, Http, ResponseBroken, ndjson, reply, stream
from penstock.net.http import access_log as module_of_the_log
from penstock.streams import Flux
from tests.net.http.conversing import PATIENCE, Exchange, answered, turns

NAME = "penstock.net.http.access"


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=NAME)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == NAME]


def only(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    (line,) = lines(caplog)
    found: dict[str, Any] = json.loads(line)
    return found


def test_the_common_format(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(answered(Http().access_log().get("/", lambda request: "hello")))

    (line,) = lines(caplog)
    assert re.fullmatch(
        r"192\.0\.2\.1 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000\] "
        r'"GET / HTTP/1\.1" 200 5 \d+\.\d{3}',
        line,
    )
    (record,) = [record for record in caplog.records if record.name == NAME]
    assert record.access.path == "/"  # type: ignore[attr-defined]


def test_json(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        exchange = Exchange(method="POST", path="/x")
        exchange.scope.update(query_string=b"a=1", http_version="2", headers=[(b"User-Agent", b"tests")])
        exchange.chunk(b"12")
        exchange.chunk(b"345", more=False)
        app = Http().access_log("json").post("/x", lambda request: ndjson(request.body().count()))
        await asyncio.wait_for(exchange.start(app), PATIENCE)

    asyncio.run(main())
    found = only(caplog)
    assert found.pop("seconds") >= 0
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "peer": "192.0.2.1",
        "method": "POST",
        "path": "/x",
        "query": "a=1",
        "protocol": "HTTP/2",
        "status": 200,
        "sent": 2,
        "received": 5,
        "complete": True,
        "close_code": None,
        "agent": "tests",
    }


def test_it_can_be_turned_off(caplog: pytest.LogCaptureFixture) -> None:
    app = Http().get("/", lambda request: "hello")
    asyncio.run(answered(app))
    asyncio.run(answered(app.access_log().access_log(None)))
    logging.getLogger(NAME).setLevel(logging.WARNING)
    asyncio.run(answered(app.access_log()))

    assert lines(caplog) == []


def test_what_no_route_answers_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(answered(Http().access_log("json"), path="/none"))

    assert (only(caplog)["status"], only(caplog)["complete"]) == (404, True)


def test_a_client_without_an_address(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        exchange = Exchange()
        exchange.scope["client"] = None
        exchange.chunk(b"", more=False)
        await exchange.start(Http().access_log())

    asyncio.run(main())
    assert lines(caplog)[0].startswith("- - - [")


# ---------------------------------------------------------------- cut off


def test_a_client_that_leaves_during_the_response(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        exchange = Exchange()
        source = Flux.concat(Flux.just(b"first"), Flux.never())
        running = exchange.start(Http().access_log("json").get("/", lambda request: stream(source)))
        await exchange.until_sent(2)
        await turns()
        exchange.disconnect()
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(main())
    found = only(caplog)
    assert (found["status"], found["sent"], found["complete"]) == (200, 5, False)


def test_a_client_that_leaves_during_its_upload(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        exchange = Exchange(method="POST")
        app = Http().access_log().post("/", lambda request: ndjson(request.body().count()))
        running = exchange.start(app)
        exchange.chunk(b"half")
        await turns()
        exchange.disconnect()
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(main())
    (line,) = lines(caplog)
    assert re.search(r'" - 0 \d+\.\d{3} cut$', line)


def test_a_source_that_fails_in_the_middle(caplog: pytest.LogCaptureFixture) -> None:
    def numbers() -> Iterator[bytes]:
        yield b"1"
        raise RuntimeError("broken")

    app = Http().access_log("json").get("/", lambda request: stream(Flux.from_iterable(numbers())))
    with pytest.raises(ResponseBroken):
        asyncio.run(answered(app))

    assert (only(caplog)["status"], only(caplog)["complete"]) == (200, False)


def test_an_application_that_fails_before_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(answered(Http().access_log("json").get("/", lambda request: broken)))

    assert (only(caplog)["status"], only(caplog)["complete"]) == (500, False)


def test_a_server_that_stops(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        exchange = Exchange()
        running = exchange.start(Http().access_log("json").get("/", lambda request: stream(Flux.never())))
        await turns()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert (only(caplog)["status"], only(caplog)["complete"]) == (None, False)


# ---------------------------------------------------------------- WebSockets


def websocket(app: Http, *messages: Any, path: str = "/ws") -> Exchange:
    async def main() -> Exchange:
        exchange = Exchange(kind="websocket", path=path)
        exchange.incoming.put_nowait({"type": "websocket.connect"})
        for message in messages:
            exchange.incoming.put_nowait(message)
        await asyncio.wait_for(exchange.start(app), PATIENCE)
        return exchange

    return asyncio.run(main())


ECHO = Http().access_log("json").ws("/ws", lambda inbound, outbound: outbound.send(inbound.receive()))
TALK = [{"type": "websocket.receive", "text": "ü"}, {"type": "websocket.receive", "bytes": b"123"}]


@pytest.mark.parametrize(("code", "complete"), [(1000, True), (4000, True), (1006, False)])
def test_a_websocket_that_the_client_closes(
    caplog: pytest.LogCaptureFixture, code: int, complete: bool
) -> None:
    websocket(ECHO, *TALK, {"type": "websocket.disconnect", "code": code})

    found = only(caplog)
    assert (found["method"], found["status"], found["received"]) == ("WS", 101, 5)
    assert (found["close_code"], found["complete"]) == (code, complete)


def test_a_websocket_that_we_close(caplog: pytest.LogCaptureFixture) -> None:
    websocket(
        Http().access_log().ws("/ws", lambda inbound, outbound: outbound.send("bye").close(4001, "enough"))
    )

    (line,) = lines(caplog)
    assert re.search(r'"WS /ws HTTP/1\.1" 101 3 \d+\.\d{3} closed=4001$', line)


def test_a_websocket_at_a_wrong_path(caplog: pytest.LogCaptureFixture) -> None:
    websocket(ECHO, path="/other")

    assert (only(caplog)["status"], only(caplog)["complete"]) == (403, True)


# ---------------------------------------------------------------- nothing can go wrong


def test_a_function_of_your_own(caplog: pytest.LogCaptureFixture) -> None:
    app = (
        Http()
        .access_log(lambda access: f"{access.method} took {access.seconds >= 0}")
        .get("/", lambda request: "x")
    )
    asyncio.run(answered(app))

    assert lines(caplog) == ["GET took True"]


@pytest.mark.parametrize("wrong", [lambda access: 1 / 0, lambda access: None, lambda: "no argument"])
def test_a_function_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture, wrong: Any) -> None:
    app = Http().access_log(wrong).get("/", lambda request: "hello")
    first, second = asyncio.run(answered(app)), asyncio.run(answered(app))

    assert first.status == second.status == 200
    assert [" 200 5 " in line for line in lines(caplog)] == [True, True]
    assert caplog.text.count("the format of the access log failed") == 1


def test_a_filter_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken(record: logging.LogRecord) -> bool:
        raise RuntimeError("broken")

    logging.getLogger(NAME).addFilter(broken)
    try:
        assert asyncio.run(answered(Http().access_log().get("/", lambda request: "hello"))).status == 200
    finally:
        logging.getLogger(NAME).removeFilter(broken)


@pytest.mark.parametrize("format", ["common", "json", lambda access: f"{access.path} {access.agent}"])
def test_a_client_cannot_write_lines_of_its_own(caplog: pytest.LogCaptureFixture, format: Any) -> None:
    async def main() -> None:
        exchange = Exchange(path='/a\r\nb\u2028c\x85d\x1b[2J"e\\ %s %d \udcff')
        exchange.scope["headers"] = [(b"user-agent", b"x\ny\x1b]0;z\x07")]
        exchange.scope["query_string"] = b"q=\n\r"
        exchange.chunk(b"", more=False)
        await exchange.start(Http().access_log(format))

    asyncio.run(main())
    (line,) = lines(caplog)
    assert line.isprintable()
    assert len(line.splitlines()) == 1
    assert "%s %d" in line


def test_a_quotation_mark_does_not_end_the_request(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(answered(Http().access_log(), path='/" 200 1 0.1'))

    assert '"GET /\\" 200 1 0.1 HTTP/1.1" 404 ' in lines(caplog)[0]


def test_the_other_lines_of_the_log_cannot_be_forged_either(caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: Any) -> Any:
        raise RuntimeError("broken")

    asyncio.run(answered(Http().route("GET", "/{name}", broken), path="/a\nb"))

    assert "GET /a\\nb from 192.0.2.1:5: the route failed" in caplog.text


def test_a_clock_that_jumps_makes_no_negative_duration(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([1000.0, 10.0])
    monkeypatch.setattr(module_of_the_log, "monotonic", lambda: next(times))
    asyncio.run(answered(Http().access_log("json").get("/", lambda request: reply("x"))))

    assert only(caplog)["seconds"] == 0


def test_a_wrong_format_is_refused() -> None:
    with pytest.raises(ValueError, match="'common', 'json' or a function"):
        Http().access_log("xml")  # type: ignore[arg-type]


def test_compressed_bytes_are_counted_as_they_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[AccessEntry] = []

    def keep(access: AccessEntry) -> str:
        seen.append(access)
        return "kept"

    async def main() -> Exchange:
        exchange = Exchange()
        exchange.scope["headers"] = [(b"accept-encoding", b"gzip")]
        exchange.chunk(b"", more=False)
        app = Http().access_log(keep).compress().get("/", lambda request: "x" * 10_000)
        await asyncio.wait_for(exchange.start(app), PATIENCE)
        return exchange

    sent = sum(map(len, asyncio.run(main()).bodies))
    assert seen[0].sent == sent < 1000
