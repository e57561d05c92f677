"""Sockets whose event loop is closed: other threads may still call them, and are told."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pytest

from penstock.net import ConnectionAborted, TcpClient, UdpServer
from penstock.net.transport import call_on
from penstock.spec import Subscription
from tests.net.tcp.loops import LOOPS

T = TypeVar("T")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


class Recorder:
    """Notes the end, and keeps its Subscription."""

    def __init__(self) -> None:
        self.subscription: Subscription | None = None
        self.error: BaseException | None = None

    def on_subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription

    def on_next(self, element: object) -> None:
        raise AssertionError(element)

    def on_error(self, error: BaseException) -> None:
        self.error = error

    def on_complete(self) -> None:
        raise AssertionError("there is no end")


def elsewhere(call: Callable[[], T]) -> T:
    """Call it on another thread, and wait."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(60)


class Closing:
    """A loop that is closed by another thread after somebody has seen that it is open."""

    def __init__(self, fault: str) -> None:
        self._closed = False
        self._fault = fault

    def is_closed(self) -> bool:
        return self._closed

    def call_soon_threadsafe(self, *call: object) -> None:
        self._closed = "closed" in self._fault
        raise RuntimeError(self._fault)


def test_a_loop_that_is_closed_at_the_last_moment_is_no_error_and_any_other_fault_is() -> None:
    loop: Any = Closing("Event loop is closed")
    assert not call_on(loop, print)
    loop = Closing("out of order")
    with pytest.raises(RuntimeError, match="out of order"):
        call_on(loop, print)


def opened_and_left(kind: str, opening: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What was opened on a loop that is closed now."""
    loop = LOOPS[kind]()
    try:
        return loop.run_until_complete(opening())
    finally:
        loop.close()


@on_each_loop
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_who_begins_to_receive_on_another_thread_is_told_and_may_ask_and_cancel(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        async def connect() -> Any:
            return await TcpClient.create().port(listening.getsockname()[1]).connect()

        async def bind() -> Any:
            return await UdpServer.create().bind()

        for received in (
            opened_and_left(kind, connect).inbound.receive(),
            opened_and_left(kind, bind).inbound.receive(),
        ):
            recorder = Recorder()
            elsewhere(partial(received.subscribe, recorder))
            assert isinstance(recorder.error, ConnectionAborted)
            assert "is closed" in str(recorder.error)
            assert recorder.subscription is not None
            elsewhere(partial(recorder.subscription.request, 1))
            elsewhere(recorder.subscription.cancel)
        del received
        gc.collect()  # Nobody else closes these sockets.
