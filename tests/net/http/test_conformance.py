"""What a request's body is as a Publisher, and what reads a response as a Subscriber, keep the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from penstock.net.http import Request, body, ws
from penstock.net.http.outflow import Outflow
from penstock.net.http.reception import Reception
from penstock.streams import on_dropped
from penstock.tck import PublisherVerification, SubscriberBlackboxVerification
from penstock.tck.subscriber.subject import ScriptedError
from tests.net.http.websocket_peers import websocket_server
from tests.patient_kit import PATIENT


@pytest.fixture(autouse=True)
def dropped() -> Iterator[None]:
    """Errors that nobody waits for any more need not be logged here."""
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        yield


class Sender:
    """A client's upload of so many chunks; then it is done, or gone."""

    def __init__(self, chunks: int, last: dict[str, Any]) -> None:
        self._left = chunks
        self._last = last

    async def receive(self) -> dict[str, Any]:
        if not self._left:
            return self._last
        self._left -= 1
        return {"type": "http.request", "body": b"x", "more_body": True}


class Idle:
    """A subscriber that is there and asks for nothing."""

    def on_subscribe(self, subscription: Any) -> None: ...

    def on_next(self, element: Any) -> None: ...

    def on_error(self, error: BaseException) -> None: ...

    def on_complete(self) -> None: ...


class TestBody(PublisherVerification):
    """``body(receive)``, on the event loop of its server."""

    environment = PATIENT
    profile = "asyncio"

    def create_publisher(self, elements: int) -> Any:
        return body(Sender(elements, {"type": "http.request", "body": b"", "more_body": False}).receive)

    def create_failed_publisher(self) -> Any:
        """The second subscriber hears that there was a first."""
        flux = self.create_publisher(1)
        flux.subscribe(Idle())
        return flux


class Form:
    """A client's form with so many parts, or with one part of so many chunks."""

    def __init__(self, first: bytes, each: bytes, count: int) -> None:
        self._first = first
        self._each = each
        self._left = count

    async def receive(self) -> dict[str, Any]:
        if self._first:
            first, self._first = self._first, b""
            return {"type": "http.request", "body": first, "more_body": True}
        if not self._left:
            return {"type": "http.request", "body": b"\r\n--b--\r\n", "more_body": False}
        self._left -= 1
        return {"type": "http.request", "body": self._each, "more_body": True}

    def parts(self) -> Any:
        headers = [(b"content-type", b"multipart/form-data; boundary=b")]
        return Request({"headers": headers}, self.receive, {}).parts(max_parts=2**62)


HEAD = b"\r\n--b\r\ncontent-disposition: form-data; name=x\r\n\r\n"


class TestParts(PublisherVerification):
    """``request.parts()``, none of which is read."""

    environment = PATIENT
    profile = "asyncio"

    def create_publisher(self, elements: int) -> Any:
        return Form(b"preamble", HEAD, elements).parts()


class TestPartBody(PublisherVerification):
    """``part.body()`` of the first part."""

    environment = PATIENT
    profile = "asyncio"

    def create_publisher(self, elements: int) -> Any:
        return Form(HEAD, b"x", elements).parts().concat_map(lambda part: part.body())


class TestBodyThatIsWatched(PublisherVerification):
    """The same while a response waits for the client to go, and so reads ahead."""

    environment = PATIENT
    profile = "asyncio"

    def create_publisher(self, elements: int) -> Any:
        sender = Sender(elements, {"type": "http.request", "body": b"", "more_body": False})
        gone = asyncio.get_running_loop().create_future()

        async def receive() -> Any:
            if sender._left < 0:
                return await gone  # the client has sent everything, and stays
            message = await sender.receive()
            if not message["more_body"]:
                sender._left = -1
            return message

        flux = body(receive)
        watching = asyncio.ensure_future(Reception.of(receive).gone())
        self.add_cleanup(watching.cancel)
        return flux

    create_failed_publisher = TestBody.create_failed_publisher


async def counted(connection: ServerConnection) -> None:
    """Sends as many messages as the path says, and closes."""
    assert connection.request is not None
    for number in range(int(connection.request.path[1:])):
        await connection.send(str(number))


@pytest.fixture(scope="module")
def counting() -> Iterator[str]:
    with websocket_server(counted) as url:
        yield url


class TestWebSocketReceive(PublisherVerification):
    """``ws(url).receive()``: the first demand of each subscriber opens a WebSocket of its own."""

    environment = PATIENT
    profile = "asyncio"
    url = ""

    @pytest.fixture(autouse=True)
    def _server(self, counting: str) -> None:
        type(self).url = counting

    def create_publisher(self, elements: int) -> Any:
        return ws(f"{self.url}{elements}").receive()


class TestWebSocketInbound(PublisherVerification):
    """``connection.inbound.receive()``, which has one subscriber, and is watched for the server's close."""

    environment = PATIENT
    profile = "asyncio"
    url = ""

    @pytest.fixture(autouse=True)
    def _server(self, counting: str) -> None:
        type(self).url = counting

    def create_publisher(self, elements: int) -> Any:
        opening = ws(f"{self.url}{elements}").connect()
        return opening.flat_map_many(lambda connection: self._received(connection))

    def _received(self, connection: Any) -> Any:
        self.add_cleanup(connection.abort)
        return connection.inbound.receive()

    def create_failed_publisher(self) -> Any:
        return ws("ws://127.0.0.1:1/").connect().flat_map_many(self._received)


def reading(verification: Any, outflow: Outflow) -> Outflow:
    """Have a task read batches, and say that they were sent."""

    async def work() -> None:
        try:
            while (batch := await outflow.batch()) is not None:
                outflow.sent(len(batch), sum(map(len, batch)))
        except ScriptedError:
            return

    task = asyncio.get_running_loop().create_task(work())
    verification.add_cleanup(task.cancel)
    return outflow


class TestOutflow(SubscriberBlackboxVerification):
    """What a response subscribes with, while the client reads."""

    environment = PATIENT
    profile = "asyncio"

    def create_subscriber(self) -> Any:
        return reading(self, Outflow(4))

    def create_element(self, number: int) -> Any:
        return b"%d" % number


class TestOutflowOfAClientThatDoesNotRead(SubscriberBlackboxVerification):
    """The window fills up."""

    environment = PATIENT
    profile = "asyncio"

    def create_subscriber(self) -> Any:
        return Outflow(4)
