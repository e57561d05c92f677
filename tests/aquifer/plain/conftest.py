"""What the tests of the plain dialect have in common."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.aquifer import Gateway
from tests.aquifer.plain.gateways import PlainGateway
from tests.aquifer.plain.reference import ReferenceClient

Serve = Callable[..., Gateway]
Connect = Callable[..., ReferenceClient]
Start = Callable[[PlainGateway], str]


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    """What was opened last is closed first."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def serve(cleanup: ExitStack) -> Serve:
    """Starts a gateway of ours on any free port."""

    def start(publisher: Any, **settings: Any) -> Gateway:
        return cleanup.enter_context(Gateway(publisher, "tcp://127.0.0.1:0", **settings))

    return start


@pytest.fixture
def connect(cleanup: ExitStack) -> Connect:
    """Connects a client that knows nothing but the document to a gateway of ours."""

    def open_one(gateway: Gateway, **settings: Any) -> ReferenceClient:
        return cleanup.enter_context(ReferenceClient(gateway.endpoint, **settings))

    return open_one


@pytest.fixture
def start(cleanup: ExitStack) -> Start:
    """Starts a gateway that knows nothing but the document, and returns where it listens."""

    def start_one(gateway: PlainGateway) -> str:
        return cleanup.enter_context(gateway).endpoint

    return start_one
